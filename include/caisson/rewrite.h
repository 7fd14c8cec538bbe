/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the file of a model anew: without dead bytes, in one file, or in shards. Payloads are
 * copied byte for byte, and checked against their hashes on the way.
 */
#ifndef CAISSON_REWRITE_H
#define CAISSON_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "caisson/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_rewrite_options {
    size_t struct_size; /* sizeof(caisson_rewrite_options) */
    bool overwrite;     /* replace existing targets */
    /* Cut into shards of at most so many bytes, "OUT-00001-of-00003.cmf" for a target "OUT.cmf"; a
     * tensor that is larger has a shard of its own. 0 = one file. */
    uint64_t shard_max_bytes;
    /* Bytes copied; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_rewrite_options;

typedef struct caisson_rewrite_report {
    uint64_t n_bytes_before, n_bytes_after; /* of all files */
    uint32_t n_files_before, n_files_after;
} caisson_rewrite_report;

/* The model of `source`, a .cmf file or any of its shards, into `target`. target NULL: the one file
 * `source` in its place, which nobody may write meanwhile (CAISSON_E_BUSY); a shard stays a shard.
 * What stood there stays until the new file is whole and on the disk. A sparse index is left out.
 * *ret may be NULL. Errors: CAISSON_E_EXISTS, _BUSY, _HASH (a damaged part, by name), _IO, _LIMIT,
 * _CANCELLED, _NOMEM, _ARG, and those of opening. */
CAISSON_API caisson_status caisson_rewrite(const char *source, const char *target,
                                           const caisson_rewrite_options *options,
                                           caisson_rewrite_report *ret, caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
