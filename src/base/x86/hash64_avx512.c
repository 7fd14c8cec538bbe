/* SPDX-License-Identifier: Apache-2.0 */
/* hash64's fold with AVX-512, which has the 64-bit product. On Zen 4 the operations of a word, the
 * last XOR shared by two, keep all vector ports busy: 71 GB/s on one thread, 31 with AVX2
 * (bench/hash.c). The words of a fold may be taken in any order. */
#include <immintrin.h>

#include "base/hash64_fold.h"

/* Eight words at p up to the last step of fmix64. */
static inline __m512i start(const uint8_t *p) {
    const __m512i c1 = _mm512_set1_epi64((long long)CSN_HASH64_C1);
    const __m512i c2 = _mm512_set1_epi64((long long)CSN_HASH64_C2);
    __m512i x = _mm512_loadu_si512(p);
    x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 33)), c1);
    return _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 33)), c2);
}

uint64_t csn_hash64_fold_avx512(const uint8_t *p, size_t n_words) {
    __m512i v = _mm512_setzero_si512();
    for (; n_words >= 16; n_words -= 16, p += 128) {
        v = _mm512_ternarylogic_epi64(v, start(p), start(p + 64), 0x96); /* XOR of the three */
    }
    uint64_t w[8];
    memcpy(w, &v, sizeof(w));
    uint64_t acc = w[0] ^ w[1] ^ w[2] ^ w[3] ^ w[4] ^ w[5] ^ w[6] ^ w[7];
    for (; n_words > 0; n_words--, p += 8) {
        acc ^= csn_hash64_start(csn_hash64_load(p));
    }
    return acc ^ acc >> 33;
}
