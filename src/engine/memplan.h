/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a model and one session of it need, told from arch, directory and the places of
 * the experts alone: no weight is read.
 *
 * The least (floor) depends on the model, n_ctx and the types of the KV cache, and on nothing else:
 * buffers are counted for 32 threads, the wider of the compute modes and prompts that are cut into
 * 64 tokens. What a budget has beyond it goes to layers of a streamed trunk, then to the cache of
 * experts, a part of it to longer cuts, and what is left to copies for a task mask.
 */
#ifndef CSN_ENGINE_MEMPLAN_H
#define CSN_ENGINE_MEMPLAN_H

#include "kernels/vec.h"
#include "store/stream.h"

enum { CSN_MEMPLAN_CUTS = 4, CSN_MEMPLAN_MIN_UBATCH = 64 }; /* 64, 128, 256, 512 tokens */

typedef struct csn_memplan {
    uint32_t n_ctx;
    uint64_t weights_bytes; /* what stays in memory: neither experts nor layers of the trunk that
                               are streamed, nor skills */
    uint64_t skill_bytes;   /* of the skills that are counted */
    uint64_t kv_bytes;
    uint64_t buffer_bytes[CSN_MEMPLAN_CUTS];
    uint64_t min_cache_bytes, all_cache_bytes; /* of experts; 0: none are streamed */
    uint64_t min_trunk_bytes, all_trunk_bytes; /* of layers; 0: they are among the weights */
    uint64_t floor_bytes, resident_bytes;      /* the least; from here on nothing is read again */
    uint64_t table_bytes; /* of an embedding that is read row by row; 0: it is among the weights */
    uint64_t mask_bytes;  /* copies of what a task mask leaves (model/packed.h), of the largest in
                             the file; without them it runs too, slower */
    uint64_t bytes_per_token; /* of streamed experts that one token uses */
} csn_memplan;

/* Tensors of skills are read when one is chosen, and stay (CMF 9). */
typedef struct csn_memplan_skills {
    csn_str id;  /* counted; "": none, "*": all of the file, which a session may change between */
    bool blends; /* and the sums of a blend of them, f32 */
} csn_memplan_skills;

/* n_ctx 0: as a session would choose. The store's stream, if it has experts, is set, and its trunk,
 * if that is streamed, started or not; the store is dry meanwhile. Errors are those of
 * csn_plan_make; CAISSON_E_MISSING for a skill that the file does not have. */
caisson_status csn_memplan_make(csn_store *store, uint32_t n_ctx, csn_kv_type type_k,
                                csn_kv_type type_v, const csn_memplan_skills *skills,
                                csn_memplan *ret, caisson_error *err);

/* What a model takes that may have `limit` bytes of memory at most: all that it can use, but a
 * quarter of the limit is left to others; the floor at least. */
uint64_t csn_memplan_choose(const csn_memplan *p, uint64_t limit);

/* What the model takes of a budget. */
uint64_t csn_memplan_takes(const csn_memplan *p, uint64_t budget);

/* Whether that is within the limit: where it is not, the machine would
 * page, or end the process. CAISSON_E_LIMIT: want and got are the limit and what it takes. */
caisson_status csn_memplan_fits(const csn_memplan *p, uint64_t budget, uint64_t limit,
                                caisson_error *err);

typedef struct csn_memplan_share {
    uint64_t cache_bytes; /* of experts */
    uint64_t trunk_bytes; /* of layers: served first, for every token reads them all */
    uint64_t mask_bytes;  /* of copies for a task mask: what nothing else has a use for */
    uint32_t n_ubatch;    /* longest cut of a prompt */
} csn_memplan_share;
/* CAISSON_E_LIMIT below the floor: want and got are floor and budget. */
caisson_status csn_memplan_split(const csn_memplan *p, uint64_t budget, csn_memplan_share *ret,
                                 caisson_error *err);

#endif
