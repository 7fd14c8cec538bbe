/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loop of hash64, one function an instruction set; hash64.c chooses.
 *
 * A fold is the XOR over n_words 8-byte little-endian words of fmix64(word) without the salts of
 * their places: those depend on the number of words alone and are added once (hash64.c). `p` needs
 * no alignment. All give the same bits; tests compare each with `ref`.
 */
#ifndef CSN_BASE_HASH64_FOLD_H
#define CSN_BASE_HASH64_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CSN_HASH64_C1 UINT64_C(0xFF51AFD7ED558CCD)
#define CSN_HASH64_C2 UINT64_C(0xC4CEB9FE1A85EC53)

static inline uint64_t csn_hash64_load(const uint8_t *p) {
    uint64_t w;
    memcpy(&w, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

/* fmix64 without its last step. That step, x ^ x >> 33, is linear over XOR, so a fold takes it once
 * for all words. */
static inline uint64_t csn_hash64_start(uint64_t x) {
    x ^= x >> 33;
    x *= CSN_HASH64_C1;
    x ^= x >> 33;
    x *= CSN_HASH64_C2;
    return x;
}

uint64_t csn_hash64_fold_ref(const uint8_t *p, size_t n_words);
#if defined(__x86_64__)
uint64_t csn_hash64_fold_avx2(const uint8_t *p, size_t n_words);
uint64_t csn_hash64_fold_avx512(const uint8_t *p, size_t n_words);
#endif

#endif
