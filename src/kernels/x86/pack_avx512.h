/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of rows of one and two bits for gemm_i8_avx512.h, included by a kernel file that says how
 * the 32 codes of a group are made. */
#ifndef CSN_KERNELS_X86_PACK_AVX512_H
#define CSN_KERNELS_X86_PACK_AVX512_H

#include "kernels/x86/gemm_i8_avx512.h"

struct pack {
    const uint8_t *w;   /* groups of `bytes` bytes, gpr a row */
    const float *scale; /* [row][scale_stride], or NULL: the f16 that a group begins with */
    uint64_t gpr, bytes, scale_stride;
};

/* Codes + 8 of the group at p in the order of the columns. */
typedef __m256i (*pack_codes_fn)(const uint8_t *p);

CSN_INLINE void pack_rows(pack_codes_fn codes_of, const struct pack *m, uint64_t r, uint64_t r1,
                          uint64_t g0, uint64_t ng, struct gemm_panel *p) {
    for (uint64_t i = 0; i < GEMM_ROWS; i += 8) {
        const uint8_t *w[8];
        const float *scale[8];
        for (uint64_t k = 0; k < 8; k++) {
            const uint64_t row = r + i + k < r1 ? r + i + k : r1 - 1;
            w[k] = m->w + (row * m->gpr + g0) * m->bytes;
            scale[k] = m->scale != NULL ? m->scale + row * m->scale_stride + g0 : NULL;
        }
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (int k = 0; k < 8; k++) {
                const uint8_t *group = w[k] + g * m->bytes;
                v[k] = codes_of(group);
                p->scale[g][i + (uint64_t)k] = m->scale != NULL ? scale[k][g] : csn_scale16(group);
            }
            csn_transpose8(v);
            CSN_UNROLL
            for (int j = 0; j < 8; j++) {
                _mm256_store_si256((void *)p->code[g][j][i], v[j]);
            }
        }
    }
}

#endif
