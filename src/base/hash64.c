/* SPDX-License-Identifier: Apache-2.0 */
/* hash64 of CMF, specification section 8: XOR over words of fmix64(word) ^ (index * phi), then the
 * byte length, then fmix64 again.
 *
 * Both parts of a word's term are joined by XOR, so the words fold in any order and the salts can
 * be added for all of them at once: they depend on the number of words alone. */
#include "base/hash64.h"

#include "base/cpu.h"
#include "base/hash64_fold.h"

static const uint64_t PHI = UINT64_C(0x9E3779B97F4A7C15);

enum {
    FEW_WORDS = 256,     /* up to here their salts are not worth remembering */
    MANY_WORDS = 1 << 14 /* from here on adding up salts one by one takes longer */
};

static inline uint64_t fmix64(uint64_t x) {
    x = csn_hash64_start(x);
    return x ^ x >> 33;
}

/* Four chains hide the latency of the multiplications. */
uint64_t csn_hash64_fold_ref(const uint8_t *p, size_t n_words) {
    uint64_t acc[4] = {0};
    size_t i = 0;
    for (; i + 4 <= n_words; i += 4, p += 32) {
        acc[0] ^= csn_hash64_start(csn_hash64_load(p));
        acc[1] ^= csn_hash64_start(csn_hash64_load(p + 8));
        acc[2] ^= csn_hash64_start(csn_hash64_load(p + 16));
        acc[3] ^= csn_hash64_start(csn_hash64_load(p + 24));
    }
    for (; i < n_words; i++, p += 8) {
        acc[0] ^= csn_hash64_start(csn_hash64_load(p));
    }
    uint64_t words = acc[0] ^ acc[1] ^ acc[2] ^ acc[3];
    return words ^ words >> 33;
}

static uint64_t fold(const uint8_t *p, size_t n_words) {
#if defined(__x86_64__)
    const uint32_t cpu = n_words >= 32 ? csn_cpu_flags() : 0;
    if ((cpu & CSN_CPU_VNNI512) != 0) {
        return csn_hash64_fold_avx512(p, n_words);
    }
    if ((cpu & CSN_CPU_AVX2) != 0) {
        return csn_hash64_fold_avx2(p, n_words);
    }
#endif
    return csn_hash64_fold_ref(p, n_words);
}

/* The parity of the sum over i < n of floor(a i / m), m > 0, by Euclid's steps on (m, a): the
 * integral part of the slope is summed, the rest of the lattice is counted along the other axis. */
static uint64_t floor_sum_parity(uint64_t n, uint64_t m, uint64_t a) {
    uint64_t b = 0; /* the line is (a i + b) / m */
    uint64_t sum = 0;
    for (;;) {
        sum += (a / m) * (n >> 1) + (b / m) * n; /* n (n - 1) / 2 is odd where n >> 1 is */
        a %= m;
        b %= m;
        unsigned __int128 top = (unsigned __int128)a * n + b;
        if (top < m) {
            return sum & 1;
        }
        n = (uint64_t)(top / m);
        b = (uint64_t)(top % m);
        uint64_t slope = m;
        m = a;
        a = slope;
    }
}

/* XOR of i * PHI over i < n. Bit k of it is the parity of the sum of floor(i * PHI / 2^k), where
 * only PHI modulo 2^(k+1) matters: 64 sums of some log(n) steps each. */
static uint64_t salts(uint64_t n) {
    uint64_t all = 0;
    if (n < MANY_WORDS) {
        uint64_t salt = 0;
        for (uint64_t i = 0; i < n; i++, salt += PHI) {
            all ^= salt;
        }
        return all;
    }
    for (unsigned k = 0; k < 64; k++) {
        uint64_t m = UINT64_C(1) << k;
        all |= floor_sum_parity(n, m, PHI & (m - 1 + m)) << k;
    }
    return all;
}

void csn_hash64_init(csn_hash64_state *s) {
    *s = (csn_hash64_state){0};
}

void csn_hash64_add(csn_hash64_state *s, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    size_t have = (size_t)(s->n_bytes & 7);
    if (have != 0) {
        size_t take = 8 - have < n ? 8 - have : n;
        memcpy(s->tail + have, p, take);
        s->n_bytes += take;
        p += take;
        n -= take;
        if ((s->n_bytes & 7) != 0) {
            return;
        }
        s->acc ^= fold(s->tail, 1);
    }
    s->acc ^= fold(p, n / 8);
    if ((n & 7) != 0) {
        memcpy(s->tail, p + (n & ~(size_t)7), n & 7);
    }
    s->n_bytes += n;
}

uint64_t csn_hash64_end(const csn_hash64_state *s) {
    return csn_hash64_join(s->acc ^ csn_hash64_piece(s->tail, (size_t)(s->n_bytes & 7)), s->n_bytes,
                           NULL);
}

uint64_t csn_hash64(const void *bytes, size_t n) {
    return csn_hash64_join(csn_hash64_piece(bytes, n), n, NULL);
}

uint64_t csn_hash64_piece(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint64_t acc = fold(p, n / 8);
    if ((n & 7) != 0) {
        uint8_t last[8] = {0};
        memcpy(last, p + (n & ~(size_t)7), n & 7);
        acc ^= fold(last, 1);
    }
    return acc;
}

uint64_t csn_hash64_join(uint64_t pieces, uint64_t n_bytes, csn_hash64_salts *known) {
    uint64_t n_words = n_bytes / 8 + ((n_bytes & 7) != 0);
    if (known == NULL || n_words < FEW_WORDS) {
        return fmix64(pieces ^ salts(n_words) ^ n_bytes);
    }
    size_t i = fmix64(n_words) % (sizeof(known->n_words) / sizeof(known->n_words[0]));
    if (known->n_words[i] != n_words) {
        known->n_words[i] = n_words;
        known->salts[i] = salts(n_words);
    }
    return fmix64(pieces ^ known->salts[i] ^ n_bytes);
}

void csn_hash64_hex(uint64_t h, char out[20]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[h >> (60 - 4 * i) & 15];
    }
    out[16] = '\0';
}
