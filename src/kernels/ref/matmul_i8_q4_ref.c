/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q4_block and q4_tiled (facts 4.3, 4.4): 32 nibbles and an f16 scale a group; byte k
 * holds elements 2k (low) and 2k+1 (high), each code - 8. Needs cols % 32 == 0, so that groups do
 * not cross rows (csn_kernel_matmul_i8 sees to it).
 *
 *   y = tree(lane),  lane[g % 8] += (w_scale[g] * x_scale[g]) * (float)sum_i((n_w - 8) * q_x)
 */
#include "kernels/ref/ref.h"

/* Group g of the flattened tensor: nibbles at nib + g * stride, scale at scale + g * s_stride. */
static void q4(const uint8_t *nib, size_t stride, const uint8_t *scale, size_t s_stride,
               const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    for (uint64_t r = r0; r < r1; r++) {
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < x->n_groups; g++) {
                const uint8_t *b = nib + (r * x->n_groups + g) * stride;
                float ws = csn_f16_to_f32(csn_load_u16(scale + (r * x->n_groups + g) * s_stride));
                int32_t s = 0;
                for (int k = 0; k < 16; k++) {
                    s += ((b[k] & 15) - 8) * qx[g * 32 + 2 * k];
                    s += ((b[k] >> 4) - 8) * qx[g * 32 + 2 * k + 1];
                }
                lane[g % 8] += (ws * xs[g]) * (float)s;
            }
            y[t * y_stride + r] = csn_tree8(lane);
        }
    }
}

void csn_matmul_i8_q4_block_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint8_t *scales = w->data + w->rows * x->n_groups * 16;
    q4(w->data, 16, scales, 2, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4_tiled_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    q4(w->data + 2, 18, w->data, 18, x, n, y, y_stride, r0, r1);
}
