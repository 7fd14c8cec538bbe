/* SPDX-License-Identifier: Apache-2.0 */
/* The codes of q2tp for the kernels that pack rows. */
#ifndef CSN_KERNELS_X86_Q2TP_AVX2_H
#define CSN_KERNELS_X86_Q2TP_AVX2_H

#include "kernels/x86/i8_avx2.h"

/* Codes 8 + (2 c - 3) of one group in the order of the columns. */
CSN_INLINE __m256i q2tp_codes(const uint8_t *plane) {
    const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4,
                                           4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    __m256i b = _mm256_broadcastq_epi64(_mm_loadl_epi64((const void *)plane));
    b = _mm256_shuffle_epi8(b, order);
    /* code c of byte k of four is c << 2 k: the upper halves come down, c or 4 c is looked up */
    __m256i low = _mm256_and_si256(b, _mm256_set1_epi32(0x00000C03));
    __m256i high = _mm256_and_si256(b, _mm256_set1_epi32((int)0xC0300000));
    const __m256i codes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(5, 7, 9, 11, 7, 0, 0, 0, 9, 0, 0, 0, 11, 0, 0, 0));
    return _mm256_shuffle_epi8(codes, _mm256_or_si256(low, _mm256_srli_epi32(high, 4)));
}

#endif
