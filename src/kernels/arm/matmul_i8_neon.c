/* SPDX-License-Identifier: Apache-2.0 */
#include <arm_neon.h>

/* -128 * 127 twice fits 16 bits. */
static inline int32x4_t dot(int8x16_t a, int8x16_t x, int8x16_t b, int8x16_t y) {
    int16x8_t first = vmlal_high_s8(vmull_s8(vget_low_s8(a), vget_low_s8(x)), a, x);
    int16x8_t second = vmlal_high_s8(vmull_s8(vget_low_s8(b), vget_low_s8(y)), b, y);
    return vpadalq_s16(vpaddlq_s16(first), second);
}

#define CSN_ISA(name) name##_neon
#include "kernels/arm/matmul_i8_template.h"
