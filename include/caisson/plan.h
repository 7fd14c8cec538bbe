/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a model needs, and how fast the disk lets it run with less than all of it: told
 * without reading its weights.
 */
#ifndef CAISSON_PLAN_H
#define CAISSON_PLAN_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_plan_options {
    size_t struct_size;    /* sizeof(caisson_plan_options) */
    uint64_t budget_bytes; /* 0 = what this machine can spare */
    uint32_t n_ctx;        /* as in caisson_session_options */
    caisson_kv_type type_k, type_v;
    bool no_probe;     /* do not read from the disk: disk_bytes_per_s is 0 */
    bool stream_trunk; /* as in caisson_open_options */
    const char *skill; /* as budget_skill and budget_blends there */
    bool blends;
} caisson_plan_options;

typedef struct caisson_memory_plan {
    uint32_t n_ctx;
    /* What stays in memory whatever the budget: weights that are not streamed, skills that were
     * asked for, the KV cache, the least of buffers; the least cache of experts; and the two
     * largest neighbours among layers and head, when these are streamed (else 0). floor_bytes is
     * their sum. */
    uint64_t weights_bytes, skill_bytes, kv_bytes, buffer_bytes, min_cache_bytes, min_trunk_bytes;
    uint64_t floor_bytes;    /* the smallest budget; depends on model, n_ctx and KV types alone */
    uint64_t resident_bytes; /* a budget with which nothing is read twice */
    uint64_t table_bytes;    /* of an embedding that is read row by row, and therefore not among the
                                above; a .cmf that runs without a budget and without stream_trunk
                                keeps them in memory as well. 0: it is among the weights */
    uint64_t limit_bytes;    /* of this process: machine, control groups, own limits */
    const char *limit_by;    /* which of them; static */
    uint64_t budget_bytes;   /* as asked for, or chosen: at most 3/4 of the limit, or the floor */
    bool fits;               /* what is taken of it (resident_bytes at most) is within the limit;
                                else caisson_model_open refuses it */
    uint64_t cache_bytes;    /* of it for routed experts */
    uint64_t trunk_bytes;    /* of it for layers and head, when these are streamed */
    uint64_t mask_bytes;     /* of it for copies of what a task mask leaves of the weights, which a
                                session makes where they fit, for speed */
    uint64_t bytes_per_token;      /* of routed experts that one token uses */
    uint64_t read_bytes_per_token; /* of those not in the cache, when all are used alike; models
                                      prefer some, so that less is read */
    uint64_t read_trunk_bytes_per_token; /* of layers that do not stay in memory */
    double disk_bytes_per_s;             /* measured for a moment; 0 = not */
    double tokens_per_s; /* that the disk allows then; 0 = nothing is read, or not known */
} caisson_memory_plan;

/* Opens `path` (.cmf or .waste), reads header and directory. Errors: those of caisson_model_open;
 * CAISSON_E_LIMIT for a budget below the floor (want and got tell both). */
CAISSON_API caisson_status caisson_plan(const char *path, const caisson_plan_options *options,
                                        caisson_memory_plan *ret, caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
