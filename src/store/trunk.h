/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are no routed experts, read layer by layer when memory is short (--stream-trunk).
 *
 * A part is what one layer multiplies with: its matrices, vectors excepted; the last part is the
 * head. Layers run in one order, so keeping the ones that were used last would keep nothing: the
 * first parts stay in memory as far as it reaches, the others pass through two slots, one for parts
 * of an even number and one for odd ones, so that a part is read while its neighbour computes. A
 * part always comes to the same address: the plan's weights point there, and are good between
 * csn_trunk_use and the next one.
 */
#ifndef CSN_STORE_TRUNK_H
#define CSN_STORE_TRUNK_H

#include "base/progress.h"
#include "store/experts.h"
#include "store/store.h"

typedef struct csn_trunk_stats {
    uint32_t n_parts, n_kept; /* layers and the head; of them, those that stay in memory */
    uint64_t reads, bytes;    /* parts read, their bytes */
    uint64_t stall_ns;        /* the caller waited */
} csn_trunk_stats;

/* Places and sizes alone: nothing is opened, read or allocated for weights. `verify`: what is read
 * is compared, each time, with the hashes of its container: those of a .cmf, or the digests that
 * lie beside a WARP trunk, whose files are compared here. */
caisson_status csn_trunk_new(csn_store *store, bool verify, csn_trunk **ret, caisson_error *err);
void csn_trunk_free(csn_trunk *t); /* NULL is fine; waits for reads under way */
/* True for a tensor that is of a part. */
bool csn_trunk_has(const csn_trunk *t, uint32_t i_tensor);
uint64_t csn_trunk_min_bytes(const csn_trunk *t); /* of the two slots */
uint64_t csn_trunk_all_bytes(const csn_trunk *t); /* with which all parts stay */
/* What is read again for every token when the parts have so much memory. */
uint64_t csn_trunk_reread_bytes(const csn_trunk *t, uint64_t bytes);

/* Allocates what of `bytes` is of use, and starts the readers. `io`: buffered, or direct where that
 * is possible. bytes >= csn_trunk_min_bytes. */
caisson_status csn_trunk_start(csn_trunk *t, uint64_t bytes, csn_expert_io io, caisson_error *err);
void csn_trunk_set_stall(csn_trunk *t, uint32_t ms); /* a silent disk has failed then; 30 s */
/* Where a tensor's bytes will be; NULL: it is of no part. */
const uint8_t *csn_trunk_address(const csn_trunk *t, uint32_t i_tensor);

/* Sessions of one model take turns, a forward pass each. */
void csn_trunk_claim(csn_trunk *t);
void csn_trunk_release(csn_trunk *t);
/* Part i is in memory until the next call; part `next` is read meanwhile. Errors name the tensor,
 * and with it the layer: _IO, also for a disk that does not answer; _HASH with `verify`;
 * _CANCELLED. The next call tries again. */
caisson_status csn_trunk_use(csn_trunk *t, uint32_t i, uint32_t next, const csn_progress *progress,
                             caisson_error *err);
/* Part i is in memory and stays. */
bool csn_trunk_is_there(csn_trunk *t, uint32_t i);
void csn_trunk_get_stats(csn_trunk *t, csn_trunk_stats *ret);
const char *csn_trunk_io_text(const csn_trunk *t); /* "direct", "buffered: ..." */

#endif
