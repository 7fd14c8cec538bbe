/* SPDX-License-Identifier: Apache-2.0 */
/* The second digest of payloads and sections (docs/cmf.md, "Digests"): XXH3-128, which sees what
 * hash64 does not: swapped words and equal damage to equal words. It proves nothing against someone
 * who wants to deceive; signatures do.
 *
 *   up to 256 KiB   XXH3-128 of the bytes
 *   longer          XXH3-128 of the digests of its pieces of 256 KiB, the last one shorter
 */
#ifndef CSN_BASE_DIGEST_H
#define CSN_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CSN_DIGEST_BYTES = 16, CSN_DIGEST_PIECE = 256 << 10 };

/* One piece: n <= CSN_DIGEST_PIECE. */
void csn_digest_piece(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]);
/* The whole from the digests of its pieces, in order; n_pieces >= 1 (no bytes are one piece). */
void csn_digest_join(const uint8_t *pieces /* [n_pieces][16] */, size_t n_pieces,
                     uint8_t ret[CSN_DIGEST_BYTES]);
/* Both at once. */
void csn_digest(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]);
static inline size_t csn_digest_n_pieces(uint64_t n) {
    return (size_t)(n / CSN_DIGEST_PIECE + (n % CSN_DIGEST_PIECE != 0));
}

#if defined(__x86_64__)
void csn_xxh3_avx2(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]); /* inside */
#endif

#endif
