/* SPDX-License-Identifier: Apache-2.0 */
/* Intrinsics for AVX-512 worked out in plain C, for tests that include a kernel file where the CPU
 * may lack what it needs: SIMDe's (libsimde-dev), and those that SIMDe 0.7.4 has not.
 * HAVE_SIMDE is defined where there are any. */
#ifndef CSN_TESTS_SIMDE_AVX512_H
#define CSN_TESTS_SIMDE_AVX512_H

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#define HAVE_SIMDE
#endif
#endif

#ifdef HAVE_SIMDE
#include <immintrin.h> /* before SIMDe gives its names to its own functions */
#include <math.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

/* SIMDe's own wants a literal: a counter of a loop that is unrolled is none for clang at -O0. */
#undef _mm512_srli_epi16
#define _mm512_srli_epi16(a, n) simde_mm512_srl_epi16(a, simde_mm_cvtsi32_si128((int)(n)))

static inline simde__m256i emulated_loadu_epi8(__mmask32 k, const void *p) {
    simde__m256i v = simde_mm256_setzero_si256();
    for (int i = 0; i < 32; i++) {
        if (k >> i & 1) {
            memcpy((char *)&v + i, (const char *)p + i, 1);
        }
    }
    return v;
}

static inline simde__m256i emulated_loadu_epi16(__mmask16 k, const void *p) {
    simde__m256i v = simde_mm256_setzero_si256();
    for (int i = 0; i < 16; i++) {
        if (k >> i & 1) {
            memcpy((char *)&v + 2 * i, (const char *)p + 2 * i, 2);
        }
    }
    return v;
}

static inline simde__m512i emulated_loadu512(uint64_t k, const void *p, uint64_t size) {
    simde__m512i v = simde_mm512_setzero_si512();
    for (uint64_t i = 0; i < 64 / size; i++) {
        if (k >> i & 1) {
            memcpy((char *)&v + size * i, (const char *)p + size * i, size);
        }
    }
    return v;
}

static inline simde__m512i emulated_mask_loadu512(simde__m512i v, uint64_t k, const void *p) {
    for (int i = 0; i < 8; i++) {
        if (k >> i & 1) {
            memcpy((char *)&v + 8 * i, (const char *)p + 8 * i, 8);
        }
    }
    return v;
}

/* Quarters of a, a, b, b, two bits of `which` each. */
static inline simde__m512i emulated_shuffle_i64x2(simde__m512i a, simde__m512i b, unsigned which) {
    simde__m512i v;
    for (unsigned i = 0; i < 4; i++) {
        const char *from = (const char *)(i < 2 ? &a : &b) + 16 * (which >> 2 * i & 3);
        memcpy((char *)&v + 16 * i, from, 16);
    }
    return v;
}

static inline simde__m512i emulated_srai_epi32(simde__m512i a, unsigned n) {
    int32_t v[16];
    memcpy(v, &a, sizeof(v));
    for (int i = 0; i < 16; i++) {
        v[i] >>= n;
    }
    memcpy(&a, v, sizeof(v));
    return a;
}

static inline simde__m256 emulated_extractf32x8(simde__m512 a, int i) {
    simde__m256 v;
    memcpy(&v, (const char *)&a + 32 * i, sizeof(v));
    return v;
}

static inline void emulated_storeu_ps(void *p, __mmask16 k, simde__m512 v) {
    for (int i = 0; i < 16; i++) {
        if (k >> i & 1) {
            memcpy((char *)p + 4 * i, (const char *)&v + 4 * i, 4);
        }
    }
}

static inline simde__m512 emulated_cvtph_ps(simde__m256i h) {
    simde__m256 half[2] = {simde_mm256_cvtph_ps(simde_mm256_castsi256_si128(h)),
                           simde_mm256_cvtph_ps(simde_mm256_extracti128_si256(h, 1))};
    simde__m512 v;
    memcpy(&v, half, sizeof(v));
    return v;
}

static inline simde__m512 emulated_cvtepi32_ps(simde__m512i a) {
    int32_t in[16];
    float out[16];
    simde__m512 v;
    memcpy(in, &a, sizeof(in));
    for (int i = 0; i < 16; i++) {
        out[i] = (float)in[i];
    }
    memcpy(&v, out, sizeof(v));
    return v;
}

/* SIMDe's rounds twice. */
static inline simde__m512 emulated_fmadd_ps(simde__m512 a, simde__m512 b, simde__m512 c) {
    float v[3][16];
    memcpy(v[0], &a, sizeof(v[0]));
    memcpy(v[1], &b, sizeof(v[1]));
    memcpy(v[2], &c, sizeof(v[2]));
    for (int i = 0; i < 16; i++) {
        v[0][i] = fmaf(v[0][i], v[1][i], v[2][i]);
    }
    memcpy(&a, v[0], sizeof(v[0]));
    return a;
}

static inline float emulated_cvtsh_ss(uint16_t h) {
    return simde_mm_cvtss_f32(simde_mm_cvtph_ps(simde_mm_set1_epi16((int16_t)h)));
}

#define _mm256_maskz_loadu_epi8(k, p) emulated_loadu_epi8(k, p)
#define _mm256_maskz_loadu_epi16(k, p) emulated_loadu_epi16(k, p)
#define _mm512_maskz_loadu_epi8(k, p) emulated_loadu512(k, p, 1)
#define _mm512_maskz_loadu_ps(k, p) simde_mm512_castsi512_ps(emulated_loadu512(k, p, 4))
#define _mm512_mask_loadu_epi64(v, k, p) emulated_mask_loadu512(v, k, p)
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2(a, b, which) emulated_shuffle_i64x2(a, b, which)
#undef _mm512_srai_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_madd_epi16 /* SIMDe gives the name to the masked form */
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define _mm512_srai_epi32(a, n) emulated_srai_epi32(a, n)
#define _mm512_extractf32x8_ps(a, i) emulated_extractf32x8(a, i)
#define _mm512_mask_storeu_ps(p, k, v) emulated_storeu_ps(p, k, v)
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps(a, b, c) emulated_fmadd_ps(a, b, c)
#define _mm512_cvtph_ps(h) emulated_cvtph_ps(h)
#define _mm512_cvtepi32_ps(a) emulated_cvtepi32_ps(a)
#define _cvtsh_ss(h) emulated_cvtsh_ss(h)
#endif

#endif
