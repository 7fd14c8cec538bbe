/* SPDX-License-Identifier: Apache-2.0 */
/* Where a tensor's bytes come from: CMF files, mapped, or read into memory (--no-mmap); WARP's
 * trunk, read into memory. Routed experts that are streamed are not among them: store/experts.h.
 */
#ifndef CSN_STORE_STORE_H
#define CSN_STORE_STORE_H

#include "base/progress.h"
#include "format/cmf/cmf.h"
#include "format/warp/warp.h"
#include "store/rows.h"

typedef struct csn_store csn_store;

typedef struct csn_store_options {
    bool no_mmap;        /* read payloads into memory when first asked for */
    bool guard_mappings; /* SIGBUS inside our mappings becomes an error of the guarded call */
    bool verify;         /* hashes and digest of a tensor are checked when it is first asked for */
    bool reads_rows;     /* the embedding is read row by row, where that is possible */
} csn_store_options;

/* Takes ownership of `cmf` on success. */
caisson_status csn_store_new(csn_cmf *cmf, const csn_store_options *options, csn_store **ret,
                             caisson_error *err);
caisson_status csn_store_new_warp(csn_warp *warp, const csn_store_options *options, csn_store **ret,
                                  caisson_error *err);
void csn_store_free(csn_store *s);
const csn_arch *csn_store_arch(const csn_store *s);
const csn_directory *csn_store_dir(const csn_store *s);
/* Masks, skills and whatever else only a .cmf has; of another container an empty one. */
const csn_cmf *csn_store_cmf(const csn_store *s);
csn_warp *csn_store_warp(const csn_store *s); /* NULL: the model is no .waste */
/* The routed experts, when they are streamed (store/stream.h); given once, before a plan is made,
 * and freed with the store. NULL: they are tensors like all others. */
typedef struct csn_stream csn_stream;
void csn_store_set_stream(csn_store *s, csn_stream *stream);
csn_stream *csn_store_stream(const csn_store *s);
/* The layers' weights, when they are read layer by layer (store/trunk.h); in the same way. NULL:
 * they stay in memory. */
typedef struct csn_trunk csn_trunk;
void csn_store_set_trunk(csn_store *s, csn_trunk *trunk);
csn_trunk *csn_store_trunk(const csn_store *s);

/* While it is true nothing is read: matrices have no data, so that a plan that is made then tells
 * sizes alone. */
void csn_store_set_dry(csn_store *s, bool is_dry);
bool csn_store_is_dry(const csn_store *s);

/* While a model is made, which asks for all its tensors from one thread: bytes of payload that were
 * read or checked, of those that a model without skills asks for (stage "load"). Nothing is told of
 * what is mapped and not checked. A call that is told to stop returns CAISSON_E_CANCELLED. NULL:
 * nobody watches. */
void csn_store_set_progress(csn_store *s, const csn_progress *progress);

/* A tensor's matrix, good until csn_store_free; without data where it is of a streamed expert.
 * CAISSON_E_MISSING if absent, CAISSON_E_UNSUPPORTED for a dtype that this build cannot decode;
 * without mmap, IO and NOMEM; with `verify`, HASH. Any thread may call. */
caisson_status csn_store_matrix(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err);
/* The same of a matrix that a layer multiplies with: with what its dtype unpacks; with
 * a trunk, where its bytes are from csn_trunk_use on, and without. */
caisson_status csn_store_weight(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err);
/* What that takes; 0: there is none. */
uint64_t csn_store_unpacked_bytes(const csn_store *s, const csn_tensor *t);
/* The same of the embedding, of which a token needs one row: with `reads_rows` it stays in its
 * file, unless it is also the head and that stays in memory, or its dtype has no such rows
 * (csn_row_parts). With `verify` all of it is read once, a piece at a time. */
caisson_status csn_store_rows(csn_store *s, csn_str name, csn_rows *ret, caisson_error *err);
/* True for a tensor that is read so. */
bool csn_store_has_rows(const csn_store *s, const csn_tensor *t);
/* True for a tensor that does not stay in memory: an expert's, a layer's, the embedding. */
bool csn_store_is_streamed(const csn_store *s, const csn_tensor *t);
/* Such a tensor into memory of the caller's, who frees ret->data with csn_free_aligned. */
caisson_status csn_store_read(csn_store *s, const csn_tensor *t, csn_matrix *ret,
                              caisson_error *err);
/* Bytes of a tensor that somebody else has read, against the stored hash and digest, where there
 * are any. CAISSON_E_HASH. */
caisson_status csn_store_check(const csn_store *s, uint32_t i_tensor, const uint8_t *bytes,
                               caisson_error *err);

/* Runs fn(ctx) so that a page of the mapping that vanished (file cut while mapped) makes this call
 * return CAISSON_E_IO instead of killing the process; without guard_mappings it just runs fn. All
 * threads of the pool that fn uses are covered. A store that lost a page stays lost: later calls
 * fail at once. Tensors already read (no_mmap) are not affected by what happens to the file. */
caisson_status csn_store_guarded(csn_store *s, caisson_status (*fn)(void *ctx, caisson_error *err),
                                 void *ctx, caisson_error *err);

#endif
