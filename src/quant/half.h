/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 against f32, inline for loops over many values (facts 4.1). Exact towards f32;
 * towards f16 and bf16 round half to even, save that subnormal f16 results round half away from
 * zero, as the format's reference does.
 */
#ifndef CSN_QUANT_HALF_H
#define CSN_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t csn_f32_bits(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}

static inline float csn_f32_from_bits(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}

static inline float csn_half_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact in f32 */
        return csn_f32_from_bits(sign | csn_f32_bits((float)mantissa * 0x1p-24f));
    }
    if (exponent == 31) {
        return csn_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    }
    return csn_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t csn_half_from_f32(float x) {
    uint32_t b = csn_f32_bits(x);
    uint32_t sign = b >> 16 & 0x8000u;
    uint32_t a = b & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (a >= 0x47800000u) { /* 65536 and above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (a >= 0x38800000u) { /* 2^-14: normal; a carry out of the mantissa may reach infinity */
        uint32_t r = a + 0xfffu + (a >> 13 & 1u);
        return (uint16_t)(sign | ((r - 0x38000000u) >> 13));
    }
    if (a < 0x33000000u) { /* below 2^-25 */
        return (uint16_t)sign;
    }
    uint32_t shift = 126u - (a >> 23); /* 14..24: units of 2^-24 */
    uint32_t m = (a & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | ((m + (1u << (shift - 1))) >> shift));
}

static inline float csn_bfloat_to_f32(uint16_t h) {
    return csn_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t csn_bfloat_from_f32(float x) {
    uint32_t b = csn_f32_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(b >> 16 | 0x40u);
    }
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

#endif
