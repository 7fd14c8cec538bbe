/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels for NEON share. */
#ifndef CSN_KERNELS_ARM_NEON_H
#define CSN_KERNELS_ARM_NEON_H

#include <arm_neon.h>

#include "kernels/inline.h"
#include "kernels/ref/ref.h"

CSN_INLINE float csn_scale16(const uint8_t *p) {
    float16x4_t h = vreinterpret_f16_u16(vdup_n_u16(csn_load_u16(p)));
    return vgetq_lane_f32(vcvt_f32_f16(h), 0);
}

/* Four of the 16 codes of q as floats, k = 0 to 3. */
CSN_INLINE float32x4_t csn_four_codes(int8x16_t q, int k) {
    int16x8_t w = k < 2 ? vmovl_s8(vget_low_s8(q)) : vmovl_high_s8(q);
    return vcvtq_f32_s32(k % 2 == 0 ? vmovl_s16(vget_low_s16(w)) : vmovl_high_s16(w));
}

/* 16 bytes of nibbles, each code + 8: the codes of even columns, and of odd ones. */
CSN_INLINE int8x16x2_t csn_nibbles(const uint8_t *p) {
    const int8x16_t eight = vdupq_n_s8(8);
    uint8x16_t n = vld1q_u8(p);
    return (int8x16x2_t){{vsubq_s8(vreinterpretq_s8_u8(vandq_u8(n, vdupq_n_u8(15))), eight),
                          vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(n, 4)), eight)}};
}

#endif
