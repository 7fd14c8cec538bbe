/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders' loops over 32 weights, compiled for the instruction set of the file that includes this:
 * scale_search.c for the baseline, x86/encode_avx2.c. The bytes are the same: each sum is a halving
 * tree, and nothing is fused.
 */
#ifndef CSN_QUANT_ENCODE_TEMPLATE_H
#define CSN_QUANT_ENCODE_TEMPLATE_H

#include "quant/quant_internal.h"

typedef struct csn_encode_loops {
    float (*measure)(const float x[CSN_GROUP], csn_codes c, float s, float code[CSN_GROUP]);
    float (*error)(const float x[CSN_GROUP], csn_codes c, float s);
    void (*search)(const float x[CSN_GROUP], csn_codes c, uint16_t *h, float code[CSN_GROUP]);
    float (*largest_of)(const float *x, uint64_t n);
    void (*to_bytes)(const float *x, uint64_t n, float s, int8_t *ret);
} csn_encode_loops;
#if defined(__x86_64__)
extern const csn_encode_loops csn_encode_loops_avx2;
#endif

/* How far from an end of the codes the largest weight is put: 1.2 codes to either side, in steps of
 * 0.3. Found for 4 bits on SmolLM2-135M and on Gaussian noise: 69 candidates in place of these 18
 * take 0.04 % more off the error. */
enum { N_STEPS = 9, N_TARGETS = 2 * N_STEPS, N_REFINE = 2 };

/* x rounded half to even and clamped, |x| < 2^22; beyond, some code: f16 has no scale for such a
 * tensor, and nobody keeps it. On integers, because compilers do not turn float comparisons into
 * vector code: the sum's lowest bits are the rounded value. */
static inline int whole_code_of(float x, csn_codes c) {
    int q = (int)(csn_f32_bits(x + 12582912.0f) - 0x4b400000u);
    q = q < c.lo ? c.lo : q;
    return q > c.hi ? c.hi : q;
}

static inline float code_of(float x, csn_codes c) {
    return (float)whole_code_of(x, c);
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

static float error_of(const float x[CSN_GROUP], csn_codes c, float s) {
    float inv = 1.0f / s;
    float e[CSN_GROUP];
    for (int i = 0; i < CSN_GROUP; i++) {
        float d = x[i] - code_of(x[i] * inv, c) * s;
        e[i] = d * d;
    }
    return add_up(e);
}

static float measure(const float x[CSN_GROUP], csn_codes c, float s,
                     float code[restrict CSN_GROUP]) {
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

static void search(const float x[CSN_GROUP], csn_codes c, uint16_t *h, float code[CSN_GROUP]) {
    float m = largest(x);
    float s0 = csn_half_to_f32(*h);
    float least = measure(x, c, s0, code);
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
        float e = measure(x, c, s, trial);
        if (e < least * CSN_LESS) {
            least = e;
            *h = trial_h;
            memcpy(code, trial, sizeof(trial));
        }
        fit(x, c, 1.0f / s, &xq, &qq);
        scale = qq > 0 ? xq / qq : 0;
    }
}

/* csn_absmax, and its result: which of equal numbers is the largest does not matter. */
static float largest_of(const float *x, uint64_t n) {
    float m[CSN_GROUP] = {0};
    uint64_t i = 0;
    for (; i + CSN_GROUP <= n; i += CSN_GROUP) {
        for (int k = 0; k < CSN_GROUP; k++) {
            float a = x[i + k] < 0 ? -x[i + k] : x[i + k];
            m[k] = a > m[k] ? a : m[k];
        }
    }
    float rest = csn_absmax(x + i, n - i);
    float all = csn_absmax(m, CSN_GROUP);
    return rest > all ? rest : all;
}

/* NaN becomes 0. */
static inline int byte_of(float x) {
    int q = whole_code_of(x, (csn_codes){-128, 127});
    return (csn_f32_bits(x) & 0x7fffffffu) > 0x7f800000u ? 0 : q;
}

static void to_bytes(const float *x, uint64_t n, float s, int8_t *ret) {
    uint64_t i = 0;
    for (; i + CSN_GROUP <= n; i += CSN_GROUP) {
        int q[CSN_GROUP]; /* of a length and in a place that compilers make vectors of */
        for (int k = 0; k < CSN_GROUP; k++) {
            q[k] = byte_of(x[i + k] / s);
        }
        for (int k = 0; k < CSN_GROUP; k++) {
            ret[i + k] = (int8_t)q[k];
        }
    }
    for (; i < n; i++) {
        ret[i] = (int8_t)byte_of(x[i] / s);
    }
}

#define CSN_ENCODE_LOOPS                                                                           \
    { measure, error_of, search, largest_of, to_bytes }

#endif
