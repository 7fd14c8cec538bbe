/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8g and q4g (quant/group128.h): an f16 scale for four groups of x; codes of q8g may be
 * -128. The groups that pad a row are zeros of x and count like any other.
 *
 *   y = tree(lane),  lane[g % 8] += (w_scale[g / 4] * x_scale[g]) * (float)sum_i(code * q_x)
 */
#include "kernels/ref/ref.h"
#include "quant/group128.h"

static int32_t sum_of_32(const uint8_t *row, unsigned bits, uint64_t g, const int8_t *qx) {
    int32_t s = 0;
    for (uint64_t i = g * 32; i < g * 32 + 32; i++) {
        int code = bits == 8 ? (int8_t)row[i] : (row[i / 2] >> i % 2 * 4 & 15) - 8;
        s += code * qx[i];
    }
    return s;
}

static void multiply(const csn_matrix *w, unsigned bits, const csn_x8 *x, uint64_t n, float *y,
                     uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t n_scales = csn_group128_count(w->cols);
    const uint64_t row_bytes = n_scales * 16 * bits;
    for (uint64_t r = r0; r < r1; r++) {
        const uint8_t *scales = w->data + w->rows * row_bytes + 2 * r * n_scales;
        for (uint64_t t = 0; t < n; t++) {
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < 4 * n_scales; g++) {
                float ws = csn_f16_to_f32(csn_load_u16(scales + g / 4 * 2));
                int32_t s = sum_of_32(w->data + r * row_bytes, bits, g, x->q + t * x->q_stride);
                lane[g % 8] += (ws * x->scale[t * x->g_stride + g]) * (float)s;
            }
            y[t * y_stride + r] = csn_tree8(lane);
        }
    }
}

void csn_matmul_i8_q8g_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, 8, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4g_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    multiply(w, 4, x, n, y, y_stride, r0, r1);
}
