/* SPDX-License-Identifier: Apache-2.0 */
/* The digits of q1t tiles (quant/q1t.c) for the kernels for AVX2.
 *
 * A byte of five base-3 digits is 81 * top + 9 * mid + low, mid and low below 9: products with
 * reciprocals give these, and shuffles look up the weight plus 1 of each digit. */
#ifndef CSN_KERNELS_X86_Q1T_AVX2_H
#define CSN_KERNELS_X86_Q1T_AVX2_H

#include "kernels/x86/i8_avx2.h"
#include "quant/q1.h"

/* A number that the compiler does not see through: it would multiply by shifts and additions, which
 * want the ports of the shuffles. */
CSN_INLINE __m256i times(__m256i v, int16_t factor) {
    __m256i f = _mm256_set1_epi16(factor);
    __asm__("" : "+x"(f));
    return _mm256_mullo_epi16(v, f);
}

/* bytes: two groups as words. Weight plus 1 of digits 0 and 2 of each word in its two bytes; of
 * digits 1 and 3; of digit 4 in the lower byte. What stands for the eighth word is no digit and
 * meets zeros of x. */
CSN_INLINE void q1t_digits(__m256i bytes, __m256i d[3]) {
    const __m256i of_low =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i of_high =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    __m256i by_9 = _mm256_mulhi_epu16(bytes, _mm256_set1_epi16(7282)); /* 2^16 / 9, rounded up */
    __m256i top = _mm256_mulhi_epu16(bytes, _mm256_set1_epi16(810));   /* 2^16 / 81 */
    /* low + 256 * mid, low = bytes - 9 * by_9, mid = by_9 - 9 * top */
    __m256i both = _mm256_add_epi16(bytes, times(by_9, 256 - 9));
    both = _mm256_add_epi16(both, times(top, -9 * 256));
    d[0] = _mm256_shuffle_epi8(of_low, both);
    d[1] = _mm256_shuffle_epi8(of_high, both);
    d[2] = _mm256_shuffle_epi8(of_low, top);
}

/* Weights plus 1 of one tile in the order of the columns. The row pointers lie behind the tiles:
 * a load of 16 bytes stays inside the tensor. */
CSN_INLINE __m256i q1t_weights(const uint8_t *tile) {
    /* column 5 j + k is byte 2 j or 2 j + 1 of one of three vectors */
    const __m256i from_02 =
        _mm256_setr_epi8(0, -1, 1, -1, -1, 2, -1, 3, -1, -1, 4, -1, 5, -1, -1, 6, -1, 7, -1, -1, 8,
                         -1, 9, -1, -1, 10, -1, 11, -1, -1, 12, -1);
    const __m256i from_13 =
        _mm256_setr_epi8(-1, 0, -1, 1, -1, -1, 2, -1, 3, -1, -1, 4, -1, 5, -1, -1, 6, -1, 7, -1, -1,
                         8, -1, 9, -1, -1, 10, -1, 11, -1, -1, 12);
    const __m256i from_4 =
        _mm256_setr_epi8(-1, -1, -1, -1, 0, -1, -1, -1, -1, 2, -1, -1, -1, -1, 4, -1, -1, -1, -1, 6,
                         -1, -1, -1, -1, 8, -1, -1, -1, -1, 10, -1, -1);
    const __m256i order =
        _mm256_setr_epi8(2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, -1, -1, /* twice */
                         2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, -1, -1);
    __m256i d[3];
    q1t_digits(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(csn_load128(tile)), order), d);
    return _mm256_or_si256(
        _mm256_or_si256(_mm256_shuffle_epi8(d[0], from_02), _mm256_shuffle_epi8(d[1], from_13)),
        _mm256_shuffle_epi8(d[2], from_4));
}

#endif
