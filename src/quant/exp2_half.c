/* SPDX-License-Identifier: Apache-2.0 */
/* Series in double with a fixed order of plain additions and multiplications: their error, some
 * 3e-16, moves the rounding to f32 of no f16 argument (the test compares them all). exp2 runs twice
 * for each row of each q4tp product, so it is short: a table of sixteenths and seven terms. */
#include "quant/exp2_half.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "quant/half.h"

const double csn_exp2_sixteenths[16] = {
    1.0,
    1.0442737824274138,
    1.0905077326652577,
    1.1387886347566916,
    1.189207115002721,
    1.241857812073484,
    1.2968395546510096,
    1.3542555469368927,
    1.4142135623730951,
    1.4768261459394993,
    1.5422108254079407,
    1.6104903319492543,
    1.681792830507429,
    1.7562521603732995,
    1.8340080864093424,
    1.9152065613971474,
};

const uint16_t csn_exp2_above[CSN_N_EXP2_ABOVE] = {
    0x1bf5, 0x21a6, 0x22d3, 0x2d80, 0x3263, 0x3352, 0x3749, 0x3959, 0x3c58, 0x402c, 0x422c, 0x4416,
    0x4516, 0x4616, 0x4716, 0x480b, 0x488b, 0x490b, 0x498b, 0x4a0b, 0x4a8b, 0x4b0b, 0x4b8b, 0x9df8,
    0x9f35, 0xb54e, 0xbb50, 0xbfa8, 0xc1d4, 0xc3d4, 0xc4ea, 0xc5ea, 0xc6ea, 0xc7ea, 0xc875, 0xc8f5,
    0xc975, 0xc9f5, 0xca75, 0xcaf5, 0xcb75, 0xcbf5, 0xcbf5, 0xcbf5, 0xcbf5, 0xcbf5, 0xcbf5, 0xcbf5,
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
    /* x = n / 16 + rest, |rest| <= 1/32: n by the rounding of the addition (ties to even) */
    double n = ((double)x * 16.0 + 6755399441055744.0) - 6755399441055744.0;
    double r = ((double)x - n / 16.0) * 0.69314718055994530942; /* ln 2 */
    double sum = 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    int64_t k = (int64_t)n;
    double root = csn_exp2_sixteenths[k & 15];
    uint64_t bits = (uint64_t)((k >> 4) + 1023) << 52; /* 2^floor(n / 16), a normal number */
    double power;
    memcpy(&power, &bits, sizeof(power));
    float y = (float)((root + root * (sum * r)) * power);
    uint16_t above = 0;
    for (int i = 0; i < CSN_N_EXP2_ABOVE; i++) {
        above |= csn_exp2_above[i] == h;
    }
    return csn_f32_from_bits(csn_f32_bits(y) + above);
}

/* log2 of m * 2^exponent, m in [1, 2), rounded to f32. */
static float log2_of(double m, int exponent) {
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
    return (float)((double)exponent + ln * 1.44269504088896340736); /* 1 / ln 2 */
}

float csn_log2(float x) {
    uint32_t b = csn_f32_bits(x);
    return log2_of(1.0 + (double)(b & 0x7fffffu) * 0x1p-23, (int)(b >> 23) - 127);
}

float csn_log2_half(uint16_t h) {
    float y = log2_of(1.0 + (double)(h & 0x3ffu) / 1024.0, (int)(h >> 10 & 31u) - 15);
    if (contains(log2_above, sizeof(log2_above) / sizeof(log2_above[0]), h)) {
        y = csn_f32_from_bits(csn_f32_bits(y) + 1);
    } else if (contains(log2_below, sizeof(log2_below) / sizeof(log2_below[0]), h)) {
        y = csn_f32_from_bits(csn_f32_bits(y) - 1);
    }
    return y;
}
