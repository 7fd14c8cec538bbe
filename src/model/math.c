/* SPDX-License-Identifier: Apache-2.0 */
/* Computed in double with power series, whose coefficients are 1/k! and 1/k, and rounded once. Used
 * for tables (rotary angles, frequencies), not for inner loops. */
#include "model/math.h"

#include <stdint.h>
#include <string.h>

static const double LN2_HI = 0x1.62e42fee00000p-1; /* 32 bits: times |n| < 2^20 it is exact */
static const double LN2_LO = 0x1.a39ef35793c76p-33;

/* Adding and taking away 1.5 * 2^52 rounds |v| < 2^51 to an integer, half to even. */
static double round_even(double v) {
    const double magic = 0x1.8p52;
    volatile double shifted = v + magic; /* kept out of reach of algebra */
    return shifted - magic;
}

static double power_of_two(int n) { /* -1022 <= n <= 1023 */
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &bits, sizeof(d));
    return d;
}

void csn_sincos(float angle, float *ret_sin, float *ret_cos) {
    /* pi/2 in two parts, the first of 33 bits: times a quadrant below 2^20 it is exact */
    const double half_pi_hi = 0x1.921fb54400000p+0;
    const double half_pi_lo = 0x1.0b4611a626331p-34;
    const double x = (double)angle;
    if (!(x > -0x1p20 && x < 0x1p20)) {
        *ret_sin = 0.0f;
        *ret_cos = 0.0f;
        return;
    }
    double n = round_even(x * 0x1.45f306dc9c883p-1);
    double r = (x - n * half_pi_hi) - n * half_pi_lo;
    double z = r * r;
    double s = 0.0; /* r - r^3/3! + ..., |r| <= pi/4 */
    double c = 0.0;
    for (int k = 17; k >= 3; k -= 2) {
        s = (s + 1.0) * -z / (double)(k * (k - 1));
        c = (c + 1.0) * -z / (double)((k - 1) * (k - 2));
    }
    s = r + r * s;
    c = 1.0 + c;
    int64_t quadrant = (int64_t)n & 3;
    double sine = (quadrant & 1) != 0 ? c : s;
    double cosine = (quadrant & 1) != 0 ? s : c;
    *ret_sin = (float)(quadrant >= 2 ? -sine : sine);
    *ret_cos = (float)(quadrant == 1 || quadrant == 2 ? -cosine : cosine);
}

double csn_f64_exp(double x) {
    double n = round_even(x * 0x1.71547652b82fep+0);
    double r = (x - n * LN2_HI) - n * LN2_LO;
    double p = 0.0;
    for (int k = 15; k >= 1; k--) {
        p = (p + 1.0) * r / (double)k;
    }
    return (1.0 + p) * power_of_two((int)n);
}

float csn_sigmoid(float x) {
    double away = x > -80.0f ? x < 80.0f ? -(double)x : -80.0 : 80.0;
    return (float)(1.0 / (1.0 + csn_f64_exp(away)));
}

double csn_f64_log(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52 & 0x7FF) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m; /* [1, 2) */
    memcpy(&m, &bits, sizeof(m));
    if (m > 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1.0) / (m + 1.0); /* log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172 */
    double z = s * s;
    double p = 0.0;
    for (int k = 25; k >= 3; k -= 2) {
        p = (p + 1.0 / (double)k) * z;
    }
    return exponent * LN2_HI + (exponent * LN2_LO + 2.0 * (s + s * p));
}

double csn_f64_pow(double base, double exponent) {
    return csn_f64_exp(exponent * csn_f64_log(base));
}
