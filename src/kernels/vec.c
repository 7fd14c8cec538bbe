/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the table of vec.h and holds the sizes that its callers need. */
#include "kernels/vec.h"

#include "base/cpu.h"
#include "kernels/vec_tables.h"

const csn_vec *csn_vec_get(void) {
#ifdef __x86_64__
    if ((csn_cpu_flags() & CSN_CPU_AVX2) != 0) {
        return &csn_vec_avx2;
    }
#endif
    return &csn_vec_ref;
}

uint64_t csn_attend_scratch(uint32_t head_dim, uint64_t n_rows) {
    uint64_t hdp = ((uint64_t)head_dim + 15) / 16 * 16;
    return CSN_KV_BLOCK * (head_dim + hdp) + n_rows * (head_dim + hdp + 2);
}
