/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of a group of 32 weights that are stored as codes from lo to hi, w = code * scale, for
 * formats whose scale may be any f16: the encoders of q4_block, q4_tiled, vbit and vbit_ro.
 *
 * The references take S(absmax / end) and leave the code at the longer end all but unused. Any
 * scale of either sign is valid, so the search tries to put the largest weight m on codes around
 * either end (scale m / k), moves the best of these to the least squares scale of its codes, rounds
 * that to f16 and measures with the rounded scale. The reference's choice is always among what is
 * measured: the squared error is never larger than its.
 *
 * Sums are f32 and a halving tree, so bytes are the same on every CPU, however many of them a
 * compiler adds at once. */
#include "quant/quant_internal.h"

/* How far from an end of the codes the largest weight is put: 1.2 codes to either side, in steps of
 * 0.3. Found for 4 bits on SmolLM2-135M and on Gaussian noise: 69 candidates in place of these 18
 * take 0.04 % more off the error. */
enum { N_STEPS = 9, N_TARGETS = 2 * N_STEPS, N_REFINE = 2 };

/* x rounded half to even and clamped, |x| < 2^22. On integers, because compilers do not
 * turn float comparisons into vector code: the sum's lowest bits are the rounded value. */
static inline float code_of(float x, csn_codes c) {
    int q = (int)csn_f32_bits(x + 12582912.0f) - 0x4b400000;
    q = q < c.lo ? c.lo : q;
    q = q > c.hi ? c.hi : q;
    return (float)q;
}

static float add_up(float v[CSN_GROUP]) {
    for (int i = 0; i < 16; i++) {
        v[i] += v[i + 16];
    }
    for (int i = 0; i < 8; i++) {
        v[i] += v[i + 8];
    }
    for (int i = 0; i < 4; i++) {
        v[i] += v[i + 4];
    }
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/* xq = sum of x times code, qq = sum of codes squared: with the least squares scale xq / qq the
 * squared error is that of zero less xq^2 / qq. */
static void fit(const float x[CSN_GROUP], csn_codes c, float inv, float *xq, float *qq) {
    float a[CSN_GROUP];
    float b[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float q = code_of(x[i] * inv, c);
        a[i] = x[i] * q;
        b[i] = q * q;
    }
    *xq = add_up(a);
    *qq = add_up(b);
}

float csn_codes_error(const float x[CSN_GROUP], csn_codes c, float s) {
    float inv = 1.0f / s;
    float e[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float d = x[i] - code_of(x[i] * inv, c) * s;
        e[i] = d * d;
    }
    return add_up(e);
}

float csn_codes_measure(const float x[CSN_GROUP], csn_codes c, float s, float code[CSN_GROUP]) {
    float e[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float q = code_of(x[i] / s, c);
        float d = x[i] - q * s;
        code[i] = q;
        e[i] = d * d;
    }
    return add_up(e);
}

static float largest(const float x[CSN_GROUP]) {
    float m = 0;
    for (int i = 0; i < CSN_GROUP; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        float b = m < 0 ? -m : m;
        m = a > b ? x[i] : m;
    }
    return m;
}

/* Through f16 and back; as large as the scale rule asks (facts 4.1), with its own sign. */
static float round_scale(float x, uint16_t *ret) {
    float s = csn_scale_rule(x < 0 ? -x : x, ret);
    *ret |= x < 0 ? 0x8000u : 0;
    return x < 0 ? -s : s;
}

/* Multiples of the scale that the largest weight may be, around either end of the codes. */
static void make_targets(csn_codes c, float target[N_TARGETS]) {
    for (int i = 0; i < N_STEPS; i++) {
        int from_middle = i - N_STEPS / 2;
        double d = 0.3 * from_middle;
        target[i] = (float)((double)c.lo - d);
        target[N_STEPS + i] = (float)((double)c.hi + d);
    }
}

void csn_codes_search(const float x[CSN_GROUP], csn_codes c, uint16_t *h, float code[CSN_GROUP]) {
    float m = largest(x);
    float s0 = csn_half_to_f32(*h);
    float least = csn_codes_measure(x, c, s0, code);
    /* Below the smallest scale there is nothing to choose; beyond the largest the tensor is lost.
     */
    if (least <= 0 || (*h & 0x7c00u) == 0x7c00u || *h == 0x0400u) {
        return;
    }
    float target[N_TARGETS];
    make_targets(c, target);
    float best = 0; /* xq^2 / qq */
    float scale = 0;
    for (int i = 0; i < N_TARGETS; i++) {
        float xq;
        float qq;
        fit(x, c, target[i] / m, &xq, &qq);
        float gain = qq > 0 ? xq * (xq / qq) : 0;
        if (gain > best) {
            best = gain;
            scale = xq / qq;
        }
    }
    for (int i = 0; i < N_REFINE && scale != 0; i++) {
        float trial[CSN_GROUP];
        float xq = 0;
        float qq = 0;
        uint16_t trial_h;
        float s = round_scale(scale, &trial_h);
        float e = csn_codes_measure(x, c, s, trial);
        if (e < least * CSN_LESS) {
            least = e;
            *h = trial_h;
            memcpy(code, trial, sizeof(trial));
        }
        fit(x, c, 1.0f / s, &xq, &qq);
        scale = qq > 0 ? xq / qq : 0;
    }
}
