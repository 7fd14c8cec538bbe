/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of vq.h for AVX-512 with VBMI share: the indices of a block of 64 rows, byte by
 * byte. Only intrinsics that SIMDe has: tests/kernels/test_vq_vbmi.c runs these files on any CPU.
 */
#ifndef CSN_KERNELS_X86_VQ_VBMI_H
#define CSN_KERNELS_X86_VQ_VBMI_H

#include <immintrin.h>

#include "kernels/inline.h"
#include "kernels/ref/ref.h"

enum { CSN_VQ_PLANES = 3 }; /* bytes of a row's indices, at most */

/* Where byte `plane` of each row lies among the first 128 bytes of a block, and then among what was
 * found there followed by the third 64. */
struct csn_places {
    uint8_t first[CSN_VQ_PLANES][CSN_VQ_BLOCK], second[CSN_VQ_PLANES][CSN_VQ_BLOCK];
};

/* Rows in order, or so that unpacking the bytes of a row's four planes twice leaves them in order:
 * those of a 128-bit lane go to four vectors. */
static void csn_find_places(uint64_t bytes, bool for_unpacking, struct csn_places *p) {
    for (uint64_t k = 0; k < bytes; k++) {
        for (uint64_t i = 0; i < CSN_VQ_BLOCK; i++) {
            const uint64_t row = for_unpacking ? i / 4 % 4 * 16 + i / 16 * 4 + i % 4 : i;
            const uint64_t at = bytes * row + k;
            p->first[k][i] = (uint8_t)(at % 128);
            p->second[k][i] = (uint8_t)(at < 128 ? i : 64 + at - 128);
        }
    }
}

/* Byte k of the indices of every row of a block. */
CSN_INLINE __m512i csn_plane(const uint8_t *p, uint64_t bytes, uint64_t k,
                             const struct csn_places *places) {
    const __m512i v = _mm512_permutex2var_epi8(
        _mm512_loadu_si512(p), _mm512_loadu_si512(places->first[k]), _mm512_loadu_si512(p + 64));
    return bytes == 2 ? v
                      : _mm512_permutex2var_epi8(v, _mm512_loadu_si512(places->second[k]),
                                                 _mm512_loadu_si512(p + 128));
}

/* Asks for the line `ahead` bytes past p, which may lie past the end of everything. */
#define csn_ask(p, ahead, hint) _mm_prefetch((const char *)((uintptr_t)(p) + (ahead)), hint)

#endif
