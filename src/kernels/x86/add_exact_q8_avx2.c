/* SPDX-License-Identifier: Apache-2.0 */
/* What int8 mode takes out of an input before it is quantised, q8_row and q8_2f: the plain C,
 * eight rows at once. */
#include <immintrin.h>

#include "kernels/types.h"

static void load_scales(const uint8_t *f16, uint64_t m, float *out) {
    uint64_t r = 0;
    for (; r + 8 <= m; r += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(f16 + 2 * r));
        _mm256_storeu_ps(out + r, _mm256_cvtph_ps(h));
    }
    for (; r < m; r++) {
        out[r] = _cvtsh_ss((uint16_t)(f16[2 * r] | f16[2 * r + 1] << 8));
    }
}

#include "kernels/exact_template.h"

void csn_add_exact_q8_row_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_exact(w, x, n, y, y_stride, r0, r1);
}

void csn_add_exact_q8_2f_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_exact(w, x, n, y, y_stride, r0, r1);
}
