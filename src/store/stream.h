/* SPDX-License-Identifier: Apache-2.0 */
/* The routed experts of a store's model, streamed (store/experts.h): which they are, where they lie
 * in a WARP bank or a .cmf file, and whose turn it is to ask for them. */
#ifndef CSN_STORE_STREAM_H
#define CSN_STORE_STREAM_H

#include "store/experts.h"
#include "store/store.h"

typedef struct csn_stream_options {
    csn_expert_options experts;
    bool looks_ahead; /* guesses are read (blocks/stream.h) */
    bool verify; /* the checksum of records, hash and digest of tensors, whenever they are read */
} csn_stream_options;

/* *ret NULL: the model has no routed experts. CAISSON_E_LIMIT: too small a cache. With cache_bytes
 * 0 nothing is opened or read: what the stream tells are places and sizes, and it is started later.
 */
caisson_status csn_stream_new(csn_store *store, const csn_stream_options *options, csn_stream **ret,
                              caisson_error *err);
caisson_status csn_stream_start(csn_stream *s, const csn_expert_options *options,
                                caisson_error *err);
void csn_stream_free(csn_stream *s); /* NULL is fine */

csn_store *csn_stream_store(const csn_stream *s);
/* True for a tensor of the directory that is one of an expert's matrices. */
bool csn_stream_has(const csn_stream *s, uint32_t i_tensor);
uint32_t csn_stream_n_layers(const csn_stream *s); /* that have experts */
uint32_t csn_stream_layer_id(const csn_stream *s, uint32_t i_layer);
uint64_t csn_stream_cache_bytes(csn_stream *s); /* now */
/* Between tokens: where the machine pages, which is many times slower than reading experts again, a
 * part of the cache is given back. */
void csn_stream_watch(csn_stream *s);
/* The number of a layer among those that have experts; -1: it has none. */
int64_t csn_stream_layer(const csn_stream *s, uint32_t layer);
bool csn_stream_looks_ahead(const csn_stream *s);
const csn_expert_map *csn_stream_map(const csn_stream *s);
csn_experts *csn_stream_experts(const csn_stream *s); /* NULL: not started */
/* Sessions of one model take turns: from a list's `want` to its `done`. */
void csn_stream_claim(csn_stream *s);
void csn_stream_release(csn_stream *s);

#endif
