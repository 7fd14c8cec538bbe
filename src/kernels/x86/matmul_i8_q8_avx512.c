/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row and q8_2f (ref/matmul_i8_q8_ref.c says what they mean), AVX-512 with VNNI. */
#include "kernels/x86/gemm_i8_avx512.h"

struct q8 {
    const uint8_t *codes; /* [rows][cols] */
    uint64_t cols;
};

static void pack_q8(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q8 *m = ctx;
    const __m256i flip = _mm256_set1_epi8(-128);
    for (uint64_t i = 0; i < GEMM_ROWS; i += 8) {
        const uint8_t *row[8];
        for (uint64_t k = 0; k < 8; k++) {
            row[k] = m->codes + (r + i + k < r1 ? r + i + k : r1 - 1) * m->cols;
        }
        for (uint64_t g = 0; g < ng; g++) {
            const uint64_t c = (g0 + g) * 32;
            const __mmask32 valid = m->cols - c < 32 ? (1u << (m->cols - c)) - 1 : UINT32_MAX;
            __m256i v[8];
            CSN_UNROLL
            for (int k = 0; k < 8; k++) {
                v[k] = _mm256_xor_si256(_mm256_maskz_loadu_epi8(valid, row[k] + c), flip);
            }
            csn_transpose8(v);
            CSN_UNROLL
            for (int j = 0; j < 8; j++) {
                _mm256_store_si256((void *)p->code[g][j][i], v[j]);
            }
        }
    }
}

static void multiply(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                     uint64_t r0, uint64_t r1, bool adds_exact) {
    const struct q8 m = {.codes = w->data, .cols = w->cols};
    const struct gemm_rows rows = {w->data + w->rows * w->cols, adds_exact};
    gemm_i8(pack_q8, &m, GEMM_8BIT, &rows, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q8_row_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n)) {
        csn_matmul_i8_q8_row_avx2(w, x, n, y, y_stride, r0, r1);
    } else {
        multiply(w, x, n, y, y_stride, r0, r1, false);
    }
}

void csn_matmul_i8_exact_q8_row_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                       uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n)) {
        csn_matmul_i8_exact_q8_row_avx2(w, x, n, y, y_stride, r0, r1);
    } else {
        multiply(w, x, n, y, y_stride, r0, r1, true);
    }
}

void csn_matmul_i8_q8_2f_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q8_row_avx512(w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_exact_q8_2f_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                      uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_exact_q8_row_avx512(w, x, n, y, y_stride, r0, r1);
}
