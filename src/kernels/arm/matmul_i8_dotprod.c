/* SPDX-License-Identifier: Apache-2.0 */
#include <arm_neon.h>

static inline int32x4_t dot(int8x16_t a, int8x16_t x, int8x16_t b, int8x16_t y) {
    return vdotq_s32(vdotq_s32(vdupq_n_s32(0), a, x), b, y);
}

#define CSN_ISA(name) name##_dotprod
#include "kernels/arm/matmul_i8_template.h"
