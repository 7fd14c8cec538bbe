/* SPDX-License-Identifier: Apache-2.0 */
/* What the int8 kernels for AVX2 share: lanes are groups (kernels.h). Only static inline functions,
 * so that no AVX2 copy of anything reaches the baseline. */
#ifndef CSN_KERNELS_X86_I8_AVX2_H
#define CSN_KERNELS_X86_I8_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/inline.h"
#include "kernels/types.h"

/* acc += vpmaddubsw(w, x) in i16. As intrinsics GCC 12 regroups the additions of a tile and spills
 * its sums: half the speed. */
#define CSN_MULTIPLY_ADD(acc, w, x)                                                                \
    do {                                                                                           \
        __m256i product_;                                                                          \
        __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"                                       \
                : "+x"(acc), "=&x"(product_)                                                       \
                : "x"(w), "x"(x));                                                                 \
    } while (0)

CSN_INLINE __m256i csn_load256(const void *p) {
    return _mm256_loadu_si256(p);
}

CSN_INLINE __m128i csn_load128(const void *p) {
    return _mm_loadu_si128(p);
}

/* Unaligned loads through memcpy: the codes have no alignment of their own. */
CSN_INLINE uint16_t csn_load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

CSN_INLINE int32_t csn_load32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Asks for the line `ahead` bytes past p, which may lie past the end of everything. */
CSN_INLINE void csn_prefetch(const void *p, uintptr_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T0);
}

CSN_INLINE float csn_scale16(const uint8_t *p) {
    return _cvtsh_ss(csn_load16(p));
}

/* In each half: a0+a1, b0+b1 ... of neighbours, interleaved (which order does not matter as long as
 * the next step adds the rest). */
CSN_INLINE __m256i csn_fold32(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

CSN_INLINE __m256i csn_fold64(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* The eight sums of eight vectors of i32, lane k = sum of v[k]. */
CSN_INLINE __m256i csn_sums8(const __m256i v[8]) {
    __m256i a = csn_fold64(csn_fold32(v[0], v[1]), csn_fold32(v[2], v[3]));
    __m256i b = csn_fold64(csn_fold32(v[4], v[5]), csn_fold32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* Sums of eight halves: of v[0..3] low, then high. Each i16 lane of v is four products of a 4-bit
 * code, at most 4 * 15 * 127 in size, and four of them still fit. */
CSN_INLINE __m256i csn_sums_of_halves(const __m256i v[4]) {
    __m256i a =
        _mm256_add_epi16(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i b =
        _mm256_add_epi16(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    __m256i s = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm256_madd_epi16(s, _mm256_set1_epi16(1));
}

/* Products of 32 codes in i32: lane k of 8 holds columns 4k to 4k+3. |w| times x with the sign of w
 * is exact in vpmaddubsw: w may be -128, x not (2 * 128 * 127 = 32512). */
CSN_INLINE __m256i csn_dot_i8(__m256i w, __m256i x) {
    __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}

/* The halving tree of kernels.h. */
CSN_INLINE float csn_tree_avx2(__m256 v) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

/* The same over whole vectors: v[k] is lane k of eight sums. */
CSN_INLINE __m256 csn_tree_of_lanes(const __m256 v[8]) {
    return _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(v[0], v[4]), _mm256_add_ps(v[2], v[6])),
                         _mm256_add_ps(_mm256_add_ps(v[1], v[5]), _mm256_add_ps(v[3], v[7])));
}

/* Columns of 8 vectors of 8 dwords become rows: v[j] lane r = old v[r] lane j. */
CSN_INLINE void csn_transpose8(__m256i v[8]) {
    __m256i t[8];
    CSN_UNROLL
    for (int i = 0; i < 4; i++) { /* pairs of rows */
        t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    __m256i u[8];
    CSN_UNROLL
    for (int i = 0; i < 2; i++) { /* fours of rows */
        u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    CSN_UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

/* Lanes of eight rows become vectors over rows: v[k] lane r = old v[r] lane k. */
CSN_INLINE void csn_lanes_of_rows(__m256 v[8]) {
    __m256i t[8];
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        t[i] = _mm256_castps_si256(v[i]);
    }
    csn_transpose8(t);
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm256_castsi256_ps(t[i]);
    }
}

/* Stores the first `n` of eight results. */
CSN_INLINE void csn_store_rows(float *y, __m256 v, uint64_t n) {
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    _Alignas(32) float part[8];
    _mm256_store_ps(part, v);
    memcpy(y, part, n * sizeof(float));
}

#endif
