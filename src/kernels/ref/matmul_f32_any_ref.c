/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, any dtype that decodes: decode a piece of a row, multiply. This file is the definition
 * of the order of summation (kernels.h): 32 lanes, fused, then the halving tree. The pieces are
 * multiples of 32 columns, so they do not show in the result. */
#include <math.h>

#include "kernels/ref/ref.h"

enum {
    PIECE = 1024, /* columns decoded at once: 4 KiB, stays in L1 */
    VECTORS = 4   /* vectors that share a decoded piece */
};

float csn_tree32(float *lane) {
    for (int half = 16; half >= 1; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

void csn_matmul_f32_any_ref(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                            float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    float piece[PIECE];
    float lane[VECTORS][32];
    for (uint64_t r = r0; r < r1; r++) {
        for (uint64_t t0 = 0; t0 < n; t0 += VECTORS) {
            uint64_t nt = n - t0 < VECTORS ? n - t0 : VECTORS;
            memset(lane, 0, sizeof(lane));
            for (uint64_t c = 0; c < w->cols; c += PIECE) {
                uint64_t m = w->cols - c < PIECE ? w->cols - c : PIECE;
                w->dtype->decode(w, r * w->cols + c, m, piece);
                for (uint64_t t = 0; t < nt; t++) {
                    const float *xt = x + (t0 + t) * x_stride + c;
                    for (uint64_t i = 0; i < m; i++) {
                        lane[t][i % 32] = fmaf(piece[i], xt[i], lane[t][i % 32]);
                    }
                }
            }
            for (uint64_t t = 0; t < nt; t++) {
                y[(t0 + t) * y_stride + r] = csn_tree32(lane[t]);
            }
        }
    }
}
