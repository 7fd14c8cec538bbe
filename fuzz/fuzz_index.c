/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a sparse index (CMF 7): what passes the check is walked to its last byte. */
#include "format/cmf/cmf_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    caisson_error err;
    if (csn_cmf_check_index(data, size, &err) != CAISSON_OK) {
        return 0;
    }
    csn_cmf_index_iter it = {0};
    csn_cmf_index_entry e;
    uint32_t n = 0;
    uint64_t sum = 0;
    while (csn_cmf_index_next(csn_str_make((const char *)data, size), &it, &e)) {
        n++;
        for (uint64_t i = 0; i < 2 * (uint64_t)e.n_groups; i++) {
            sum += e.groups[i];
        }
        for (uint32_t i = 0; i < e.n_heads; i++) {
            sum += e.heads[i];
        }
    }
    if (n != csn_get32(data) || sum == UINT64_MAX) {
        __builtin_trap();
    }
    return 0;
}
