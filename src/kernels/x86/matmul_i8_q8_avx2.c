/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row and q8_2f (ref/matmul_i8_q8_ref.c says what they mean), AVX2. */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"

/* eight rows at once */
static void load_scales(const uint8_t *f16, uint64_t m, float *out) {
    uint64_t r = 0;
    for (; r + 8 <= m; r += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(f16 + 2 * r));
        _mm256_storeu_ps(out + r, _mm256_cvtph_ps(h));
    }
    for (; r < m; r++) {
        out[r] = csn_scale16(f16 + 2 * r);
    }
}

#include "kernels/exact_template.h"

enum { LEAD = 384 /* bytes; not for a list of rows, whose gaps would be fetched */ };

struct q8 {
    const int8_t *codes; /* [rows][cols] */
    uint64_t cols;
    uint64_t last; /* valid columns of the last group, 1 to 32 */
    uint64_t n_groups;
};

CSN_INLINE __m256i load_group(const int8_t *w, uint64_t m) {
    if (m == 32) {
        return csn_load256(w);
    }
    _Alignas(32) int8_t part[32] = {0};
    memcpy(part, w, m);
    return _mm256_load_si256((const void *)part);
}

/* ---- few vectors ---- */

CSN_INLINE void q8_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x, uint64_t t,
                        int nc, uint64_t j, __m256 *f) {
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m256i sums = few_sums_int8(rows, at, x->q + (t + (uint64_t)c) * x->q_stride + 64 * j);
        __m256 xs = _mm256_loadu_ps(few_pair(x, t + (uint64_t)c, j)->scale);
        f[c] = _mm256_mul_ps(xs, _mm256_cvtepi32_ps(sums));
    }
}

CSN_INLINE void q8_edge(const void *ctx, const struct few_rows *rows, struct few_at at,
                        uint8_t *copy, struct few_rows *ret) {
    const struct q8 *m = ctx;
    for (int k = 0; k < FEW_ROWS; k++) {
        ret->w[k] = memcpy(copy + k * FEW_EDGE, rows->w[k] + at.w, m->cols % 64);
    }
}

/* ---- many vectors ---- */

static void pack_q8(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q8 *m = ctx;
    const int8_t *row[8];
    for (uint64_t i = 0; i < 8; i++) {
        row[i] = m->codes + (r + i < r1 ? r + i : r1 - 1) * m->cols + g0 * 32;
    }
    for (uint64_t g = 0; g < ng; g++) {
        __m256i v[8];
        uint64_t valid = g0 + g + 1 == m->n_groups ? m->last : 32;
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = load_group(row[i] + g * 32, valid);
        }
        gemm_store_int8(v, p->plane[g]);
    }
}

static struct q8 q8_of(const csn_matrix *w, const csn_x8 *x) {
    return (struct q8){.codes = (const int8_t *)w->data,
                       .cols = w->cols,
                       .last = w->cols % 32 == 0 ? 32 : w->cols % 32,
                       .n_groups = x->n_groups};
}

CSN_INLINE struct few_kind kind_of(const csn_matrix *w, bool adds_exact) {
    return (struct few_kind){.step = q8_step,
                             .edge = q8_edge,
                             .step_bytes = {.w = 64},
                             .row_bytes = {.w = w->cols},
                             .n_steps = w->cols / 64,
                             .has_edge = w->cols % 64 != 0,
                             .row_scale = w->data + w->rows * w->cols,
                             .adds_exact = adds_exact};
}

static void multiply(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                     uint64_t r0, uint64_t r1, bool adds_exact) {
    const uint8_t *scales = w->data + w->rows * w->cols;
    const struct q8 m = q8_of(w, x);
    if (!few_fits(x, n)) {
        gemm_i8(pack_q8, &m, GEMM_8BIT, scales, x, n, y, y_stride, r0, r1);
        if (adds_exact) {
            add_exact(w, x, n, y, y_stride, r0, r1);
        }
        return;
    }
    if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_fn ref =
            adds_exact ? csn_matmul_i8_exact_q8_row_ref : csn_matmul_i8_q8_row_ref;
        ref(w, x, n, y, y_stride, r0, r1);
        return;
    }
    struct few_kind kind = kind_of(w, adds_exact);
    kind.lead = LEAD;
    few_i8(&kind, &m, &(struct few_rows){.w = {w->data}, .scale = {w->data}}, x, n, y, y_stride, r0,
           r1);
}

void csn_matmul_i8_q8_row_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, x, n, y, y_stride, r0, r1, false);
}

void csn_matmul_i8_exact_q8_row_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                     uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, x, n, y, y_stride, r0, r1, true);
}

void csn_matmul_i8_q8_2f_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, x, n, y, y_stride, r0, r1, false);
}

void csn_matmul_i8_exact_q8_2f_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                    uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, x, n, y, y_stride, r0, r1, true);
}

void csn_matmul_i8_rows_q8_row_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                    bool adds_exact, float *y, uint64_t y_stride,
                                    const uint32_t *rows, uint64_t n_rows) {
    if (n_rows < FEW_ROWS) {
        csn_matmul_i8_rows_q8_row_ref(w, x, n, adds_exact, y, y_stride, rows, n_rows);
        return;
    }
    const struct q8 m = q8_of(w, x);
    const struct few_kind kind = kind_of(w, adds_exact);
    few_i8_rows(&kind, &m, w->data, x, n, y, y_stride, rows, n_rows);
}

void csn_matmul_i8_rows_q8_2f_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                   bool adds_exact, float *y, uint64_t y_stride,
                                   const uint32_t *rows, uint64_t n_rows) {
    csn_matmul_i8_rows_q8_row_avx2(w, x, n, adds_exact, y, y_stride, rows, n_rows);
}

void csn_scale_x_q8_2f_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                            float *out) {
    const uint8_t *factors = w->data + w->rows * w->cols + 2 * w->rows;
    for (uint64_t t = 0; t < n; t++, x += x_stride, out += w->cols) {
        uint64_t i = 0;
        for (; i + 8 <= w->cols; i += 8) {
            __m256 f = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(factors + 2 * i)));
            _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
        }
        for (; i < w->cols; i++) {
            out[i] = x[i] * csn_scale16(factors + 2 * i);
        }
    }
}
