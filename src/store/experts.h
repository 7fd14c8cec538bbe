/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts that do not stay in memory: read when they are wanted, past the page cache where
 * the system allows it, kept in a cache of fixed size. Knows no formats: an expert is one or more
 * pieces of files. What is read depends on the budget and on luck, what is handed out never does.
 *
 *   csn_experts_want(e, i_layer, ids, n, progress);
 *   for (i = 0; i < n && status == CAISSON_OK; i++) {
 *       status = csn_experts_take(e, &id, pieces, err);
 *       ...
 *   }
 *   csn_experts_done(e);
 *   csn_experts_ahead(e, i_next_layer, guesses, n_guesses);
 */
#ifndef CSN_STORE_EXPERTS_H
#define CSN_STORE_EXPERTS_H

#include "base/io.h"
#include "base/progress.h"

enum { CSN_EXPERT_MAX_PIECES = 3, CSN_EXPERT_GUESSES = 16 /* for one list */ };

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
    /* Checks an expert that was read, before anybody sees it; any thread. NULL: nothing to check.
     */
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
    uint64_t least_bytes; /* csn_experts_shrink leaves so much; 0 = four slots */
    csn_expert_io io;
    uint32_t stall_ms; /* a disk that gives nothing for so long has failed; 0 = 30 s */
} csn_expert_options;

typedef struct csn_expert_stats {          /* of one layer, or of all */
    uint64_t hits, misses;                 /* experts asked for that were there, were not */
    uint64_t reads, bytes;                 /* demanded; whole blocks of the disk */
    uint64_t ahead, ahead_bytes;           /* experts read on a guess, and their bytes */
    uint64_t ahead_used, ahead_used_bytes; /* of these: asked for later (the experts count as hits;
                                              what was left to read of them counts as demanded) */
    /* guesses by their place, the best first, and those that the list then wanted; whether they
     * were read or not */
    uint64_t guessed[CSN_EXPERT_GUESSES], guessed_right[CSN_EXPERT_GUESSES];
    uint64_t stall_ns; /* the caller waited */
    uint64_t read_ns;  /* at least one read was under way; less stall_ns: hidden behind work */
} csn_expert_stats;

typedef struct csn_experts csn_experts;

/* Bytes of cache without which a layer that uses `top_k` experts of one token cannot run; depends
 * on the map alone. CAISSON_E_BOUNDS: a piece is empty or leaves the range of offsets. */
caisson_status csn_expert_min_cache(const csn_expert_map *map, uint32_t top_k, uint64_t *ret,
                                    caisson_error *err);

/* Errors: those of csn_expert_min_cache, CAISSON_E_LIMIT (cache too small, both numbers told), _IO,
 * _NOMEM, _UNSUPPORTED. */
caisson_status csn_experts_new(const csn_expert_map *map, const csn_expert_options *options,
                               csn_experts **ret, caisson_error *err);
void csn_experts_free(csn_experts *e); /* NULL is fine; waits for reads under way */

/* One caller at a time. A list of experts of one layer, rising ids, is asked for; each is then
 * taken once; `done` ends it, also after an error or half-way. Reads of what is missing begin at
 * once, as many as slots allow; no expert is read twice for one list, however long. `progress` (may
 * be NULL; good until `done`) is asked while a `take` waits: CAISSON_E_CANCELLED. */
void csn_experts_want(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n,
                      const csn_progress *progress);
/* The next of the list, in its order; pieces [n_pieces] are good until the call after the next (two
 * experts are in use at most), or `done`. Errors name layer and expert; after `done` the store
 * works on. CAISSON_E_IO: also a disk that does not answer (stall_ms). Otherwise what `check` says.
 */
caisson_status csn_experts_take(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                caisson_error *err);
/* For lists that fit into the cache whole (csn_experts_fits): any that is there, the ones in memory
 * first; all stay good until `done`. A list is taken in one of the two ways. */
bool csn_experts_fits(csn_experts *e, uint32_t n);
caisson_status csn_experts_take_any(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                    caisson_error *err);
/* How many of the list would be handed out by take_any without waiting. */
uint32_t csn_experts_n_ready(csn_experts *e);
void csn_experts_done(csn_experts *e);

/* Guesses of what the next list wants, of that layer, best first: read while no demanded read
 * waits, into slots that nobody will miss, as far as guesses in the same place have been right of
 * late. They are forgotten when the next list or the next guesses come. */
void csn_experts_ahead(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n);
/* False after a token, a list of each layer, for which nothing had to be read: what is in memory is
 * enough, and a guess would read what nobody asks for. */
bool csn_experts_wants_guesses(csn_experts *e);

/* Gives slots back to the system until at most cache_bytes are left, or least_bytes; between lists.
 * What is left is told. */
uint64_t csn_experts_shrink(csn_experts *e, uint64_t cache_bytes);

void csn_experts_stats(csn_experts *e, uint32_t i_layer, csn_expert_stats *ret);
void csn_experts_stats_all(csn_experts *e, csn_expert_stats *ret);
/* "io_uring, direct", "4 readers, buffered: ..."; good as long as the store. */
const char *csn_experts_io_text(const csn_experts *e);

/* What is in memory and how often it was used, for usage.waste; and back. */
typedef struct csn_expert_use {
    uint32_t i_layer, expert, hits, last; /* last: the clock at its last use */
} csn_expert_use;
/* At most max of them, in no order; the clock counts experts asked for. */
uint32_t csn_experts_usage(csn_experts *e, csn_expert_use *ret, uint32_t max, uint64_t *ret_clock);
/* Reads the first of them that fit, before the first `want`; unknown ones and those that cannot be
 * read are passed over: who needs them will hear why. */
caisson_status csn_experts_preload(csn_experts *e, const csn_expert_use *use, uint32_t n,
                                   caisson_error *err);

#endif
