/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q2tp (facts 4.12): two bits a weight, a group's scale is a rung of its row's ladder.
 *
 *   y = tree(lane),
 *   lane[g % 8] += ((0.5 * rung[code[g]]) * x_scale[g]) * (float)sum_i((2 * c_w - 3) * q_x)
 */
#include "kernels/ref/ref.h"
#include "quant/q4tp.h"

void csn_matmul_i8_q2tp_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    uint64_t gpr = x->n_groups;
    const uint8_t *params = w->data + w->rows * gpr * 8;
    for (uint64_t r = r0; r < r1; r++) {
        const uint8_t *codes = params + 4 * w->rows + r * csn_q4tp_code_bytes(gpr);
        float rung[CSN_Q4TP_RUNGS];
        csn_q2tp_ladder(csn_load_u16(params + 4 * r), csn_load_u16(params + 4 * r + 2), rung);
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *qx = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            float lane[8] = {0.0f};
            for (uint64_t g = 0; g < gpr; g++) {
                const uint8_t *b = w->data + (r * gpr + g) * 8;
                int32_t s = 0;
                for (int k = 0; k < 32; k++) {
                    s += (2 * (b[k / 4] >> k % 4 * 2 & 3) - 3) * qx[g * 32 + k];
                }
                lane[g % 8] += ((0.5f * rung[csn_q4tp_code(codes, g)]) * xs[g]) * (float)s;
            }
            y[t * y_stride + r] = csn_tree8(lane);
        }
    }
}
