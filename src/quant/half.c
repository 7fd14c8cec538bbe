/* SPDX-License-Identifier: Apache-2.0 */
/* Element conversions between f32, f16 and bf16 with the rounding of the format (facts 4.1). It
 * differs from IEEE 754 in one place: subnormal f16 results round half away from zero. */
#include "quant/dtype.h"

static uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof(b));
    return b;
}

static float float_of(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof(x));
    return x;
}

float csn_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 31;
    uint32_t mantissa = h & 0x3FF;
    if (exponent == 31) {
        return float_of(sign | 0x7F800000 | mantissa << 13);
    }
    if (exponent == 0) { /* mantissa * 2^-24, exact */
        float magnitude = (float)mantissa * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t csn_f32_to_f16(float x) {
    uint32_t b = bits_of(x);
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    uint32_t magnitude = b & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
        return sign | 0x7E00;
    }
    if (magnitude < 0x33000000) { /* below 2^-25 */
        return sign;
    }
    if (magnitude < 0x38800000) {                 /* below 2^-14: subnormal, half away from zero */
        uint32_t shift = 126 - (magnitude >> 23); /* 14 to 24 */
        uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
        return (uint16_t)(sign | (mantissa + (UINT32_C(1) << (shift - 1))) >> shift);
    }
    /* half to even; a carry walks into the exponent, as it should */
    uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    if (rounded >= 0x47800000) {
        return sign | 0x7C00;
    }
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

float csn_bf16_to_f32(uint16_t h) {
    return float_of((uint32_t)h << 16);
}

uint16_t csn_f32_to_bf16(float x) {
    uint32_t b = bits_of(x);
    if ((b & 0x7FFFFFFF) > 0x7F800000) {
        return (uint16_t)(b >> 16 | 0x40);
    }
    return (uint16_t)((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}
