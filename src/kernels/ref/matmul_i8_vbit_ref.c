/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, vbit and vbit_ro (facts 4.6, 4.7): codes of a row's own width, an f16 scale a group.
 *
 *   y = tree(lane),  lane[g % 8] += (w_scale[g] * x_scale[g]) * (float)sum_i((code - zero) * q_x)
 *
 * zero = 2^(bits - 1) - 1; with 8 bits code - zero reaches 128, one more than an int8 holds. */
#include "kernels/ref/ref.h"
#include "quant/vbit.h"

void csn_matmul_i8_vbit_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const csn_vbit v = csn_vbit_parts(w);
    csn_vbit_at at = csn_vbit_begin(&v, r0);
    for (uint64_t r = r0; r < r1; r++) {
        const csn_vbit_row row = csn_vbit_walk(&v, &at, r);
        const int zero = csn_vbit_zero(row.bits);
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < x->n_groups; g++) {
                float ws = csn_f16_to_f32(csn_load_u16(v.scales + 2 * (r * x->n_groups + g)));
                int32_t s = 0;
                for (uint64_t i = g * 32; i < g * 32 + 32; i++) {
                    s += ((int)csn_vbit_code(row.p, row.bits, i) - zero) * qx[i];
                }
                lane[g % 8] += (ws * xs[g]) * (float)s;
            }
            y[t * y_stride + r] = csn_tree8(lane);
        }
    }
}

void csn_matmul_i8_vbit_ro_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_vbit_ref(w, x, n, y, y_stride, r0, r1);
}
