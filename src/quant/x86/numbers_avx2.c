/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/numbers_template.h"

bool csn_numbers_side_by_side_avx2(const struct csn_number_field *f, const uint8_t *p, uint64_t n,
                                   uint64_t *ret_n) {
    return side_by_side(f, p, n, ret_n);
}

bool csn_numbers_apart_avx2(const uint8_t *p, uint64_t n, uint32_t stride, uint64_t *ret_n) {
    return apart(p, n, stride, ret_n);
}
