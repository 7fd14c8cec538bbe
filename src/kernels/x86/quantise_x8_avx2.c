/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of int8 mode (ref/quantise_x8_ref.c says what is computed), AVX2. */
#include <math.h>

#include "kernels/x86/i8_avx2.h"

/* Four vectors of 8 values; missing ones are zero. */
CSN_INLINE void load_values(const float *x, uint64_t m, __m256 v[4]) {
    _Alignas(32) float part[32];
    if (m < 32) {
        memset(part, 0, sizeof(part));
        memcpy(part, x, m * sizeof(float));
        x = part;
    }
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        v[k] = _mm256_loadu_ps(x + 8 * k);
    }
}

/* As integers, whose order is that of magnitudes, NaN behind all. */
CSN_INLINE float absmax32(const __m256 v[4]) {
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        m = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(v[k]), no_sign), m);
    }
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4E));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xB1));
    return _mm_cvtss_f32(_mm_castsi128_ps(a));
}

/* Codes in the order of the columns. */
CSN_INLINE __m256i codes32(const __m256 v[4], float scale) {
    const __m256 s = _mm256_set1_ps(scale);
    __m256i i[4];
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        i[k] = _mm256_cvtps_epi32(_mm256_div_ps(v[k], s));
    }
    /* a scale that was rounded in the subnormal range can give codes up to 254 */
    const __m256i least = _mm256_set1_epi16(-127);
    __m256i a = _mm256_max_epi16(_mm256_packs_epi32(i[0], i[1]), least);
    __m256i b = _mm256_max_epi16(_mm256_packs_epi32(i[2], i[3]), least);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Both 16-bit offsets of a group as one word. */
CSN_INLINE int32_t offsets(__m256i q) {
    __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m128i a = _mm_add_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    a = _mm_add_epi16(a, _mm_shuffle_epi32(a, 0x4E));
    a = _mm_add_epi16(a, _mm_shuffle_epi32(a, 0xB1));
    return _mm_cvtsi128_si32(_mm_mullo_epi16(a, _mm_set1_epi16(-8)));
}

CSN_INLINE void store_split(__m256i q, int8_t *even) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m256i s = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(q, order), 0xD8);
    _mm_storeu_si128((void *)even, _mm256_castsi256_si128(s));
    _mm_storeu_si128((void *)(even + 32), _mm256_extracti128_si256(s, 1));
}

/* Half a pair. */
CSN_INLINE void store_pair(csn_x8_pair *pair, uint64_t half, float scale, int32_t minus) {
    _mm_storeu_ps(pair->scale + 4 * half, _mm_set1_ps(scale));
    _mm_storeu_si128((void *)(pair->minus + 4 * half), _mm_set1_epi32(minus));
}

void csn_quantise_x8_any_avx2(const float *x, uint64_t x_stride, const csn_x8 *x8, uint64_t t0,
                              uint64_t t1) {
    for (uint64_t t = t0; t < t1; t++) {
        int8_t *q = x8->q + t * x8->q_stride;
        int8_t *split = x8->split + t * x8->q_stride;
        float *scale = x8->scale + t * x8->g_stride;
        int16_t *offset = x8->offset + t * x8->g_stride * 2;
        int32_t *minus = x8->minus + t * x8->g_stride;
        uint64_t tail = x8->n_groups * 32; /* padding behind the groups, at most 8 of them + 64 */
        memset(q + tail, 0, x8->q_stride - tail);
        memset(split + tail, 0, x8->q_stride - tail);
        for (uint64_t g = 0; g < x8->g_stride; g++) {
            __m256i codes = _mm256_setzero_si256();
            float s = 0.0f;
            if (g < x8->n_groups) {
                __m256 v[4];
                load_values(x + t * x_stride + g * 32,
                            x8->cols - g * 32 < 32 ? x8->cols - g * 32 : 32, v);
                s = absmax32(v) / 127.0f;
                if (s > 0.0f && s < INFINITY) {
                    codes = codes32(v, s);
                }
            }
            scale[g] = s;
            int32_t both = offsets(codes);
            memcpy(offset + 2 * g, &both, sizeof(both));
            minus[g] = (int16_t)both + (both >> 16);
            if (x8->pair != NULL) {
                store_pair(&x8->pair[(t * x8->g_stride + g) / 2], g % 2, s, minus[g]);
            }
            _mm256_storeu_si256((void *)(q + g * 32), codes);
            store_split(codes, split + g / 2 * 64 + g % 2 * 16);
        }
    }
}

/* The first element of the largest magnitude; magnitudes of finite floats are ordered as the
 * integers of their bits are. */
static uint64_t find_largest(const float *x, uint64_t n) {
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    const uint64_t whole = n / 8 * 8;
    __m256i most = _mm256_setzero_si256();
    for (uint64_t i = 0; i < whole; i += 8) {
        most = _mm256_max_epi32(most, _mm256_and_si256(csn_load256(x + i), no_sign));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    const int32_t best = _mm_cvtsi128_si32(m);
    int32_t best_of_rest = best;
    uint64_t at = n;
    for (uint64_t i = whole; i < n; i++) {
        int32_t a = csn_load32(x + i) & 0x7fffffff;
        if (a > best_of_rest) {
            best_of_rest = a;
            at = i;
        }
    }
    for (uint64_t i = 0; at == n && i < whole; i += 8) {
        __m256i a = _mm256_and_si256(csn_load256(x + i), no_sign);
        __m256i same = _mm256_cmpeq_epi32(a, _mm256_set1_epi32(best));
        int lanes = _mm256_movemask_ps(_mm256_castsi256_ps(same));
        if (lanes != 0) {
            at = i + (uint64_t)__builtin_ctz((unsigned)lanes);
        }
    }
    return at < n ? at : 0; /* fewer than 8, all of them 0 */
}

void csn_take_exact_any_avx2(float *x, const csn_x8 *x8, uint64_t t) {
    for (uint64_t k = 0; k < CSN_X8_EXACT; k++) {
        uint64_t i = find_largest(x, x8->cols);
        x8->exact_i[t * CSN_X8_EXACT + k] = (uint32_t)i;
        x8->exact_x[t * CSN_X8_EXACT + k] = x[i];
        x[i] = 0;
    }
}
