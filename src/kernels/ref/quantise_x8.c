/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of int8 mode: groups of 32, scale = absmax / 127, codes rounded half to even. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Rounds half to even for |v| < 2^22 without the rounding mode or libm: adding 1.5 * 2^23 leaves
 * the integer in the low bits of the mantissa. */
static inline int32_t round_even(float v) {
    float shifted = v + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    return bits - 0x4B400000;
}

void csn_quantise_x8(const float *x, uint64_t x_stride, uint64_t n, uint64_t cols, int8_t *q,
                     float *scale, int32_t *sum) {
    uint64_t n_groups = (cols + 31) / 32;
    for (uint64_t t = 0; t < n; t++) {
        for (uint64_t g = 0; g < n_groups; g++) {
            const float *xg = x + t * x_stride + g * 32;
            int8_t *qg = q + (t * n_groups + g) * 32;
            uint64_t m = cols - g * 32 < 32 ? cols - g * 32 : 32;
            float absmax = 0.0f;
            for (uint64_t i = 0; i < m; i++) {
                float a = fabsf(xg[i]);
                absmax = a > absmax ? a : absmax;
            }
            float s = absmax / 127.0f;
            int32_t total = 0;
            memset(qg, 0, 32);
            if (s > 0.0f) {
                for (uint64_t i = 0; i < m; i++) {
                    int32_t code = round_even(xg[i] / s);
                    code = code > 127 ? 127 : code < -127 ? -127 : code;
                    qg[i] = (int8_t)code;
                    total += code;
                }
            }
            scale[t * n_groups + g] = s;
            sum[t * n_groups + g] = total;
        }
    }
}
