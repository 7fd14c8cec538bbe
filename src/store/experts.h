/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts that do not stay in memory: read when they are wanted, past the page cache where
 * the system allows it, kept in a cache of fixed size. Knows no formats: an expert is one or more
 * pieces of files. What is read depends on the budget and on luck, what is handed out never does.
 */
#ifndef CSN_STORE_EXPERTS_H
#define CSN_STORE_EXPERTS_H

#include "base/io.h"

enum { CSN_EXPERT_MAX_PIECES = 3 };

typedef struct csn_expert_piece {
    uint32_t i_file;
    uint64_t offset, nbytes;
} csn_expert_piece;

/* Where the experts lie. Arrays are the caller's and outlive the store. */
typedef struct csn_expert_map {
    csn_file *const *files; /* [n_files] */
    uint32_t n_files;
    uint32_t n_layers;              /* layers that have experts, numbered from 0 without gaps */
    const uint32_t *n_experts;      /* [n_layers] */
    const uint32_t *layer_ids;      /* [n_layers] their numbers in the model, for messages */
    uint32_t n_pieces;              /* of every expert: 1 (WARP's record) or 3 */
    const csn_expert_piece *pieces; /* [experts of all layers][n_pieces] */
    /* Checks an expert that was read, before anybody sees it; any thread. */
    caisson_status (*check)(void *ctx, uint32_t i_layer, uint32_t expert,
                            const uint8_t *const *pieces, caisson_error *err);
    void *ctx;
} csn_expert_map;

typedef enum csn_expert_io {
    CSN_EXPERT_IO_AUTO,     /* uring, else threads; each direct, else buffered */
    CSN_EXPERT_IO_URING,    /* CAISSON_E_UNSUPPORTED where the kernel refuses */
    CSN_EXPERT_IO_THREADS,  /* direct reads by a pool of readers */
    CSN_EXPERT_IO_BUFFERED, /* through the page cache, dropped behind us */
} csn_expert_io;

typedef struct csn_expert_options {
    uint64_t cache_bytes; /* of all slots; at least csn_expert_min_cache */
    csn_expert_io io;
} csn_expert_options;

typedef struct csn_expert_stats { /* of one layer, or of all */
    uint64_t hits, misses;        /* experts asked for that were there, were not */
    uint64_t reads, bytes;        /* demanded */
    uint64_t ahead, ahead_bytes;  /* read on a guess */
    uint64_t ahead_used, ahead_used_bytes;
    uint64_t stall_ns; /* the caller waited */
    uint64_t read_ns;  /* at least one read was under way */
} csn_expert_stats;

typedef struct csn_experts csn_experts;

/* Bytes of cache without which a layer that uses `top_k` experts of one token cannot run. */
uint64_t csn_expert_min_cache(const csn_expert_map *map, uint32_t top_k);

caisson_status csn_experts_new(const csn_expert_map *map, const csn_expert_options *options,
                               csn_experts **ret, caisson_error *err);
void csn_experts_free(csn_experts *e); /* NULL is fine; waits for reads under way */

/* One caller at a time. A list of experts of one layer, rising ids, is asked for; each is then
 * taken once; `done` ends it, also after an error. Reads of what is missing begin at once, as many
 * as slots allow; no expert is read twice for one list, however long. */
void csn_experts_want(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n);
/* The next of the list, in its order; pieces[] is good until the call after the next (two experts
 * are in use at most), or `done`. Errors name layer and expert; the store works on afterwards. */
caisson_status csn_experts_take(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                caisson_error *err);
/* For lists that fit into the cache whole (csn_experts_fits): any that is there, the ones in memory
 * first; all stay good until `done`. */
bool csn_experts_fits(const csn_experts *e, uint32_t i_layer, uint32_t n);
caisson_status csn_experts_take_any(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                    caisson_error *err);
void csn_experts_done(csn_experts *e);

/* Guesses of what the next lists want, best first: read when no demanded read waits, into slots
 * that nobody will miss. */
void csn_experts_ahead(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n);
/* Reads that are queued or under way end; a `take` that waits returns CAISSON_E_CANCELLED. Any
 * thread, also in a signal handler. */
void csn_experts_cancel(csn_experts *e);

void csn_experts_stats(const csn_experts *e, uint32_t i_layer, csn_expert_stats *ret);
void csn_experts_stats_all(const csn_experts *e, csn_expert_stats *ret);
/* "io_uring, direct", "4 readers, buffered: ..." */
const char *csn_experts_io_text(const csn_experts *e);
/* What is in memory and how often it was used, for usage.waste; and back. */
typedef struct csn_expert_use {
    uint32_t i_layer, expert, hits, last;
} csn_expert_use;
uint32_t csn_experts_usage(const csn_experts *e, csn_expert_use *ret, uint32_t max,
                           uint64_t *ret_clock);
/* Reads the first of them that fit; before the first `want`. */
caisson_status csn_experts_preload(csn_experts *e, const csn_expert_use *use, uint32_t n,
                                   caisson_error *err);

#endif
