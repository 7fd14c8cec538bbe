/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a model anew: without dead bytes, in one file, in shards, or as a Hugging Face directory.
 * Every payload is checked against its hashes on the way.
 */
#ifndef CAISSON_REWRITE_H
#define CAISSON_REWRITE_H

#include "caisson/model.h"

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

typedef struct caisson_export_options {
    size_t struct_size; /* sizeof(caisson_export_options) */
    const char *dtype;  /* of the weights: "f32" (NULL: exact), "f16", "bf16" */
    const char *skill;  /* its tensors in place of the backbone's; NULL = the backbone alone */
    uint64_t shard_max_bytes; /* of the tensors of a file; 0 = one file */
    bool overwrite;           /* replace a model that is in the directory */
    uint32_t n_threads;       /* 0 = all CPUs that the process may use */
    /* Bytes of the weights written; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    caisson_log_fn on_log; /* what config.json could not be told */
    void *ctx;
} caisson_export_options;

/* The model as a Hugging Face directory, made if it is not there: model.safetensors (or shards and
 * their index), config.json, tokenizer.json, tokenizer_config.json. Every payload is checked
 * against its hash. Errors: CAISSON_E_EXISTS (a model is in it), _HASH, _BOUNDS (a value that f16
 * cannot hold), _UNSUPPORTED (a type that this build cannot decode), _MISSING (no such skill), _IO,
 * _CANCELLED, _NOMEM, _ARG, and those of opening. */
CAISSON_API caisson_status caisson_export(const char *source, const char *directory,
                                          const caisson_export_options *options,
                                          caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
