/* SPDX-License-Identifier: Apache-2.0 */
/* 32 weights as one f16 scale and 32 nibbles, w = (nibble - 8) * scale: the encoder of q4_block and
 * q4_tiled.
 *
 * The reference takes S(absmax / 7) and leaves code 0 all but unused. Any scale of either sign is
 * valid in the format, so the search tries to put the largest weight m on codes around -8 (scale
 * -m / k) and around +7 (scale m / k), moves the best of these to the least squares scale of its
 * codes, rounds that to f16 and measures with the rounded scale. The reference's choice is always
 * among what is measured: the squared error is never larger than its.
 *
 * Sums are f32 and a halving tree, so bytes are the same on every CPU, however many of them a
 * compiler adds at once. */
#include "quant/quant_internal.h"

/* Which code the largest weight is put on, as a factor: the code is -k, clamped. Positive k: near
 * -8; negative: near +7. Found on SmolLM2-135M and on Gaussian noise: 69 candidates in place of
 * these 18 take 0.04 % more off the error. */
static const float targets[] = {6.8f,  7.1f,  7.4f,  7.7f,  8.0f,  8.3f,  8.6f,  8.9f,  9.2f,
                                -5.8f, -6.1f, -6.4f, -6.7f, -7.0f, -7.3f, -7.6f, -7.9f, -8.2f};
enum { N_TARGETS = sizeof(targets) / sizeof(targets[0]), N_REFINE = 2 };

/* x rounded half to even and clamped to -8..7, |x| < 2^22. On integers, because compilers do not
 * turn float comparisons into vector code: the sum's lowest bits are the rounded value. */
static inline float code_of(float x) {
    int q = (int)csn_f32_bits(x + 12582912.0f) - 0x4b400000;
    q = q < -8 ? -8 : q;
    q = q > 7 ? 7 : q;
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
static void fit(const float x[CSN_GROUP], float inv, float *xq, float *qq) {
    float a[CSN_GROUP];
    float b[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float q = code_of(x[i] * inv);
        a[i] = x[i] * q;
        b[i] = q * q;
    }
    *xq = add_up(a);
    *qq = add_up(b);
}

float csn_nibbles_error(const float x[CSN_GROUP], float s) {
    float inv = 1.0f / s;
    float e[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float d = x[i] - code_of(x[i] * inv) * s;
        e[i] = d * d;
    }
    return add_up(e);
}

/* Codes for a scale, and their squared error. */
static float measure(const float x[CSN_GROUP], float s, float code[CSN_GROUP]) {
    float e[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float q = code_of(x[i] / s);
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

/* Replaces h and code where a scale has a smaller error than `least`. */
static void search(const float x[CSN_GROUP], float m, float least, uint16_t *h,
                   float code[CSN_GROUP]) {
    float best = 0; /* xq^2 / qq */
    float scale = 0;
    for (int i = 0; i < N_TARGETS; i++) {
        float xq;
        float qq;
        fit(x, -targets[i] / m, &xq, &qq);
        float gain = xq * (xq / qq); /* qq >= 25: the largest weight has a code of 5 and more */
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
        float e = measure(x, s, trial);
        if (e < least * CSN_LESS) {
            least = e;
            *h = trial_h;
            memcpy(code, trial, sizeof(trial));
        }
        fit(x, 1.0f / s, &xq, &qq);
        scale = qq > 0 ? xq / qq : 0;
    }
}

uint16_t csn_nibbles_encode(const float *x, uint64_t n, csn_encoder encoder, uint8_t out[16]) {
    float padded[CSN_GROUP] = {0};
    float code[CSN_GROUP];
    uint16_t h;
    memcpy(padded, x, (size_t)n * sizeof(float));
    float m = largest(padded);
    float s = csn_scale_rule((m < 0 ? -m : m) / 7.0f, &h);
    float e = measure(padded, s, code);
    /* Below the smallest scale there is nothing to choose; beyond the largest the tensor is lost.
     */
    if (encoder == CSN_ENCODER_SEARCH && e > 0 && (h & 0x7c00u) != 0x7c00u && h != 0x0400u) {
        search(padded, m, e, &h, code);
    }
    for (unsigned k = 0; k < 16; k++) {
        unsigned low = (unsigned)(code[2 * k] + 8.0f);
        unsigned high = (unsigned)(code[2 * k + 1] + 8.0f);
        out[k] = (uint8_t)(low | high << 4);
    }
    return h;
}
