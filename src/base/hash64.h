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

/* Parallel form: the XOR of the folds of all pieces, cut at multiples of 8 bytes, goes into
 * csn_hash64_join with the total length. `offset` = where the piece begins, a multiple of 8. */
uint64_t csn_hash64_piece(const void *bytes, size_t n, uint64_t offset);
uint64_t csn_hash64_join(uint64_t pieces, uint64_t n_bytes);

#endif
