/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of int8 mode: groups of 32, scale = absmax / 127, codes rounded half to even. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "quant/half.h"

/* Rounds half to even for |v| < 2^22 without the rounding mode or libm: adding 1.5 * 2^23 leaves
 * the integer in the low bits of the mantissa. */
static inline int32_t round_even(float v) {
    float shifted = v + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    return bits - 0x4B400000;
}

/* Codes of one group of m values; q is zero before. */
static void group(const float *x, uint64_t m, int8_t *q, float *scale, int16_t *offset) {
    float absmax = 0.0f;
    for (uint64_t i = 0; i < m; i++) {
        float a = fabsf(x[i]);
        absmax = a > absmax || isnan(a) ? a : absmax; /* nothing is larger than a NaN */
    }
    *scale = absmax / 127.0f;
    if (*scale > 0.0f && *scale < INFINITY) {
        for (uint64_t i = 0; i < m; i++) {
            int32_t code = round_even(x[i] / *scale);
            code = code > 127 ? 127 : code < -127 ? -127 : code;
            q[i] = (int8_t)code;
            offset[i % 4 / 2] = (int16_t)(offset[i % 4 / 2] - 8 * code);
        }
    }
}

/* Of vector t, whose scales and sums are there. */
static void make_pairs(const csn_x8 *x8, uint64_t t) {
    for (uint64_t i = 0; i < x8->g_stride * 4; i++) {
        uint64_t g = i / 8 * 2 + i % 8 / 4; /* value i % 8 of pair i / 8 */
        csn_x8_pair *pair = &x8->pair[t * (x8->g_stride / 2) + i / 8];
        pair->scale[i % 8] = x8->scale[t * x8->g_stride + g];
        pair->minus[i % 8] = x8->minus[t * x8->g_stride + g];
    }
}

void csn_quantise_x8_any_ref(const float *x, uint64_t x_stride, const csn_x8 *x8, uint64_t t0,
                             uint64_t t1) {
    for (uint64_t t = t0; t < t1; t++) {
        int8_t *q = x8->q + t * x8->q_stride;
        int8_t *split = x8->split + t * x8->q_stride;
        memset(q, 0, x8->q_stride);
        memset(split, 0, x8->q_stride);
        memset(x8->scale + t * x8->g_stride, 0, x8->g_stride * sizeof(float));
        memset(x8->offset + t * x8->g_stride * 2, 0, x8->g_stride * 2 * sizeof(int16_t));
        for (uint64_t g = 0; g < x8->n_groups; g++) {
            uint64_t m = x8->cols - g * 32 < 32 ? x8->cols - g * 32 : 32;
            group(x + t * x_stride + g * 32, m, q + g * 32, &x8->scale[t * x8->g_stride + g],
                  &x8->offset[(t * x8->g_stride + g) * 2]);
            int8_t *even = split + g / 2 * 64 + g % 2 * 16;
            for (int k = 0; k < 16; k++) {
                even[k] = q[g * 32 + 2 * k];
                even[k + 32] = q[g * 32 + 2 * k + 1];
            }
        }
        for (uint64_t g = t * x8->g_stride; g < (t + 1) * x8->g_stride; g++) {
            x8->minus[g] = x8->offset[2 * g] + x8->offset[2 * g + 1];
        }
        if (x8->pair != NULL) {
            make_pairs(x8, t);
        }
    }
}

/* Magnitudes of finite floats are ordered as the integers of their bits are. */
static int32_t magnitude(float x) {
    return (int32_t)(csn_f32_bits(x) & 0x7fffffffu);
}

void csn_take_exact_any_ref(float *x, const csn_x8 *x8, uint64_t t) {
    for (uint64_t k = 0; k < CSN_X8_EXACT; k++) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < x8->cols; i++) {
            best = magnitude(x[i]) > magnitude(x[best]) ? i : best;
        }
        x8->exact_i[t * CSN_X8_EXACT + k] = (uint32_t)best;
        x8->exact_x[t * CSN_X8_EXACT + k] = x[best];
        x[best] = 0;
    }
}
