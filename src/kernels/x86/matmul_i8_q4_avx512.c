/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q4_block, q4_tiled, q4tp and q4g (the files of ref/ say what they mean), AVX-512 with
 * VNNI. */
#include "kernels/x86/few_q4_tiled_avx512.h"
#include "kernels/x86/gemm_i8_avx512.h"
#include "quant/group128.h"
#include "quant/q4tp.h"

/* Group g of row r: 16 bytes at nib + (r * gpr + g) * stride; its scale is f16 at the same place
 * from `halves` on, in strides of s_stride (one of 1 << s_shift groups), or one of `floats`. */
struct q4 {
    const uint8_t *nib, *halves;
    const float *floats;
    uint64_t stride, s_stride, gpr;
    unsigned s_shift;
};

static void pack_q4(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q4 *m = ctx;
    const __m128i mask = _mm_set1_epi8(15);
    for (uint64_t i = 0; i < GEMM_ROWS; i += 8) {
        uint64_t row[8];
        for (uint64_t k = 0; k < 8; k++) {
            row[k] = r + i + k < r1 ? r + i + k : r1 - 1;
        }
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (int k = 0; k < 8; k++) {
                const uint64_t flat = row[k] * m->gpr + g0 + g;
                __m128i n = csn_load128(m->nib + flat * m->stride);
                __m128i even = _mm_and_si128(n, mask);
                __m128i odd = _mm_and_si128(_mm_srli_epi16(n, 4), mask);
                v[k] = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
                p->scale[g][i + (uint64_t)k] =
                    m->floats != NULL ? m->floats[row[k] * m->s_stride + g0 + g]
                                      : csn_scale16(m->halves + (flat >> m->s_shift) * m->s_stride);
            }
            csn_transpose8(v);
            CSN_UNROLL
            for (int j = 0; j < 8; j++) {
                _mm256_store_si256((void *)p->code[g][j][i], v[j]);
            }
        }
    }
}

/* n_groups: of x, padded as the rows are. */
static void multiply(const struct q4 *m, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                     uint64_t r0, uint64_t r1) {
    csn_x8 padded = *x;
    padded.n_groups = m->gpr;
    gemm_i8(pack_q4, m, GEMM_4BIT, NULL, &padded, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4_block_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                   uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n)) {
        csn_matmul_i8_q4_block_avx2(w, x, n, y, y_stride, r0, r1);
        return;
    }
    const struct q4 m = {.nib = w->data,
                         .halves = w->data + w->rows * x->n_groups * 16,
                         .stride = 16,
                         .s_stride = 2,
                         .gpr = x->n_groups};
    multiply(&m, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4_tiled_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                   uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n) && r1 - r0 >= FEW_ROWS) {
        few_q4_tiled(w, x, n, y, y_stride, r0, r1);
        return;
    }
    const struct q4 m = {
        .nib = w->data + 2, .halves = w->data, .stride = 18, .s_stride = 18, .gpr = x->n_groups};
    multiply(&m, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4tp_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n) || w->unpacked == NULL) {
        csn_matmul_i8_q4tp_avx2(w, x, n, y, y_stride, r0, r1);
        return;
    }
    const struct q4 m = {.nib = w->data,
                         .floats = w->unpacked,
                         .stride = 16,
                         .s_stride = csn_ladder_stride(w->cols),
                         .gpr = x->n_groups};
    multiply(&m, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4g_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (gemm_is_few(x, n)) {
        csn_matmul_i8_q4g_avx2(w, x, n, y, y_stride, r0, r1);
        return;
    }
    const uint64_t n_scales = csn_group128_count(w->cols);
    const struct q4 m = {.nib = w->data,
                         .halves = w->data + w->rows * n_scales * (CSN_GROUP128 / 2),
                         .stride = 16,
                         .s_stride = 2,
                         .gpr = 4 * n_scales,
                         .s_shift = 2};
    multiply(&m, x, n, y, y_stride, r0, r1);
}
