/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1, q1s and q1t (facts 4.8 to 4.10): one scale and 32 weights of +-1, or of 0 and +-1,
 * a tile; cols % 32 == 0.
 *
 *   y = tree(lane),  lane[g % 8] += (w_scale[g] * x_scale[g]) * (float)sum_i(w * q_x)
 *
 * then the outliers of q1s and q1t one after another (outliers_template.h). */
#include "kernels/ref/ref.h"

static float half(const uint8_t *p) {
    return csn_f16_to_f32(csn_load_u16(p));
}

static inline float outlier_delta(const uint8_t *value, float weight, const uint8_t *scale) {
    return half(value) - weight * half(scale);
}

#include "kernels/outliers_template.h"

static void tiles(bool is_q1t, const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                  uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t tile_bytes = is_q1t ? CSN_Q1T_TILE : CSN_Q1_TILE;
    for (uint64_t r = r0; r < r1; r++) {
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < x->n_groups; g++) {
                const uint8_t *tile = w->data + (r * x->n_groups + g) * tile_bytes;
                int32_t s = 0;
                for (unsigned k = 0; k < 32; k++) {
                    s += (is_q1t ? csn_q1t_weight(tile, k) : csn_q1_bit(tile, k) * 2 - 1) *
                         qx[g * 32 + k];
                }
                lane[g % 8] += (half(tile) * xs[g]) * (float)s;
            }
            y[t * y_stride + r] = csn_tree8(lane);
        }
    }
}

void csn_matmul_i8_q1_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                          uint64_t y_stride, uint64_t r0, uint64_t r1) {
    tiles(false, w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q1s_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    tiles(false, w, x, n, y, y_stride, r0, r1);
    add_outliers(false, w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q1t_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    tiles(true, w, x, n, y, y_stride, r0, r1);
    add_outliers(true, w, x, n, y, y_stride, r0, r1);
}
