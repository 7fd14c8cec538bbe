/* SPDX-License-Identifier: Apache-2.0 */
/* Series in double with a fixed order of plain additions and multiplications: their error, some
 * 1e-16, is far below what could move the rounding to f32 of any f16 argument. */
#include "quant/exp2_half.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "quant/half.h"

/* Arguments whose exp2f is one unit above the correctly rounded value, ascending. */
static const uint16_t exp2_above[] = {
    0x1bf5, 0x21a6, 0x22d3, 0x2d80, 0x3263, 0x3352, 0x3749, 0x3959, 0x3c58, 0x402c, 0x422c,
    0x4416, 0x4516, 0x4616, 0x4716, 0x480b, 0x488b, 0x490b, 0x498b, 0x4a0b, 0x4a8b, 0x4b0b,
    0x4b8b, 0x9df8, 0x9f35, 0xb54e, 0xbb50, 0xbfa8, 0xc1d4, 0xc3d4, 0xc4ea, 0xc5ea, 0xc6ea,
    0xc7ea, 0xc875, 0xc8f5, 0xc975, 0xc9f5, 0xca75, 0xcaf5, 0xcb75, 0xcbf5,
};
/* Arguments whose log2f is one unit larger, or smaller, in magnitude than the rounded value. */
static const uint16_t log2_above[] = {
    0x361c, 0x3a5e, 0x3b5f, 0x3bc9, 0x3bdd, 0x3bde, 0x3bdf, 0x3c16, 0x3c19, 0x3d16, 0x3e12, 0x3e97,
};
static const uint16_t log2_below[] = {
    0x3bed, 0x3bf6, 0x3bfb, 0x3c07, 0x3c21, 0x3ca7, 0x3d9a, 0x3f18, 0x421c,
};

static bool contains(const uint16_t *list, size_t n, uint16_t h) {
    size_t lo = 0;
    size_t hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (list[mid] < h) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < n && list[lo] == h;
}

float csn_exp2_half(uint16_t h) {
    float x = csn_half_to_f32(h);
    if (x != x) {
        return x;
    }
    if (x >= 128.0f) {
        return csn_f32_from_bits(0x7f800000u);
    }
    if (x < -150.0f) {
        return 0.0f;
    }
    double whole = (double)(int)x;                           /* towards zero; |r| < 1 */
    double r = ((double)x - whole) * 0.69314718055994530942; /* ln 2 */
    double sum = 0;
    for (int k = 20; k >= 1; k--) { /* Horner form of the exponential series */
        sum = (1.0 + sum) * (r / (double)k);
    }
    float y = (float)ldexp(1.0 + sum, (int)whole);
    if (contains(exp2_above, sizeof(exp2_above) / sizeof(exp2_above[0]), h)) {
        y = csn_f32_from_bits(csn_f32_bits(y) + 1);
    }
    return y;
}

float csn_log2_half(uint16_t h) {
    int exponent = (int)(h >> 10 & 31u) - 15;
    double m = 1.0 + (double)(h & 0x3ffu) / 1024.0;
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    /* ln m = 2 atanh(z) = 2 (z + z^3 / 3 + ...), |z| <= 0.1716 */
    double z = (m - 1.0) / (m + 1.0);
    double z2 = z * z;
    double sum = 0;
    for (int k = 27; k >= 3; k -= 2) {
        sum = (sum + 1.0 / (double)k) * z2;
    }
    double ln = 2.0 * (z + z * sum);
    float y = (float)((double)exponent + ln * 1.44269504088896340736); /* 1 / ln 2 */
    if (contains(log2_above, sizeof(log2_above) / sizeof(log2_above[0]), h)) {
        y = csn_f32_from_bits(csn_f32_bits(y) + 1);
    } else if (contains(log2_below, sizeof(log2_below) / sizeof(log2_below[0]), h)) {
        y = csn_f32_from_bits(csn_f32_bits(y) - 1);
    }
    return y;
}
