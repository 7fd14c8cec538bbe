/* SPDX-License-Identifier: Apache-2.0 */
/* hash64 of CMF (specification section 8). Empty input hashes to 0, which the format also uses for
 * "absent". It does not see the order of whole 8-byte words; that is the format's choice.
 */
#ifndef CSN_BASE_HASH64_H
#define CSN_BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t csn_hash64(const void *bytes, size_t n);
/* "%016x" and a NUL. */
void csn_hash64_hex(uint64_t h, char out[20]);

/* Piecewise form: feed any cuts, same result as one call. */
typedef struct csn_hash64_state {
    uint64_t acc;
    uint64_t n_bytes;
    uint8_t tail[8];
} csn_hash64_state;
void csn_hash64_init(csn_hash64_state *s);
void csn_hash64_add(csn_hash64_state *s, const void *bytes, size_t n);
uint64_t csn_hash64_end(const csn_hash64_state *s);

/* Parallel form: the XOR of the pieces, cut at multiples of 8 bytes, goes into csn_hash64_join with
 * the total length. Where a piece lay does not matter: hash64 does not know. A join of long input
 * takes some 7 us however long it is, next to nothing when `known` (zeroed at first; may be NULL)
 * has seen the length before: one thread at a time. */
typedef struct csn_hash64_salts {
    uint64_t n_words[64], salts[64];
} csn_hash64_salts;
uint64_t csn_hash64_piece(const void *bytes, size_t n);
uint64_t csn_hash64_join(uint64_t pieces, uint64_t n_bytes, csn_hash64_salts *known);

#endif
