/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row ([i8 rows*cols][f16 rows], facts 4.2; codes may be -128) and q8_2f (the same,
 * then [f16 cols], facts 4.5; the column factors went into x, scale_x below).
 *
 *   y = row_scale * tree(lane),  lane[g % 8] += x_scale[g] * (float)sum_i(q_w * q_x)
 */
#include "kernels/ref/ref.h"

static void load_scales(const uint8_t *f16, uint64_t m, float *out) {
    for (uint64_t r = 0; r < m; r++) {
        out[r] = csn_f16_to_f32(csn_load_u16(f16 + 2 * r));
    }
}

#include "kernels/exact_template.h"

void csn_matmul_i8_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint8_t *scales = w->data + w->rows * w->cols;
    for (uint64_t r = r0; r < r1; r++) {
        const int8_t *qw = (const int8_t *)w->data + r * w->cols;
        float row_scale = csn_f16_to_f32(csn_load_u16(scales + 2 * r));
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < x->n_groups; g++) {
                uint64_t m = w->cols - g * 32 < 32 ? w->cols - g * 32 : 32;
                int32_t s = 0;
                for (uint64_t i = 0; i < m; i++) {
                    s += qw[g * 32 + i] * qx[g * 32 + i];
                }
                lane[g % 8] += xs[g] * (float)s;
            }
            y[t * y_stride + r] = row_scale * csn_tree8(lane);
        }
    }
}

void csn_matmul_i8_q8_2f_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q8_row_ref(w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_exact_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                    uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q8_row_ref(w, x, n, y, y_stride, r0, r1);
    add_exact(w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_exact_q8_2f_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                   uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_exact_q8_row_ref(w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_rows_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                   bool adds_exact, float *y, uint64_t y_stride,
                                   const uint32_t *rows, uint64_t n_rows) {
    csn_matmul_i8_fn one = adds_exact ? csn_matmul_i8_exact_q8_row_ref : csn_matmul_i8_q8_row_ref;
    for (uint64_t i = 0; i < n_rows; i++) {
        one(w, x, n, y, y_stride, rows[i], (uint64_t)rows[i] + 1);
    }
}

void csn_matmul_i8_rows_q8_2f_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, bool adds_exact,
                                  float *y, uint64_t y_stride, const uint32_t *rows,
                                  uint64_t n_rows) {
    csn_matmul_i8_rows_q8_row_ref(w, x, n, adds_exact, y, y_stride, rows, n_rows);
}

void csn_scale_x_q8_2f_ref(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                           float *out) {
    const uint8_t *factors = w->data + w->rows * w->cols + 2 * w->rows;
    for (uint64_t i = 0; i < w->cols; i++) {
        float f = csn_f16_to_f32(csn_load_u16(factors + 2 * i));
        for (uint64_t t = 0; t < n; t++) {
            out[t * w->cols + i] = x[t * x_stride + i] * f;
        }
    }
}
