/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row ([i8 rows*cols][f16 rows], CMF 5, facts 4.2): codes may be -128.
 *
 *   y = row_scale * (lane0 + lane1),  lane[g % 2] += x_scale[g] * (float)sum_i(q_w * q_x)
 */
#include "kernels/ref/ref.h"

void csn_matmul_i8_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1);

void csn_matmul_i8_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint8_t *scales = w->data + w->rows * w->cols;
    for (uint64_t r = r0; r < r1; r++) {
        const int8_t *qw = (const int8_t *)w->data + r * w->cols;
        float row_scale = csn_f16_to_f32(csn_load_u16(scales + 2 * r));
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->n_groups * 32;
            const float *xs = x->scale + t * x->n_groups;
            float lane[2] = {0.0f, 0.0f};
            for (uint64_t g = 0; g < x->n_groups; g++) {
                uint64_t m = w->cols - g * 32 < 32 ? w->cols - g * 32 : 32;
                int32_t s = 0;
                for (uint64_t i = 0; i < m; i++) {
                    s += qw[g * 32 + i] * qx[g * 32 + i];
                }
                lane[g % 2] += xs[g] * (float)s;
            }
            y[t * y_stride + r] = row_scale * (lane[0] + lane[1]);
        }
    }
}
