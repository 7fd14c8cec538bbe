/* SPDX-License-Identifier: Apache-2.0 */
/* A .cmf model back into a Hugging Face directory: weights in safetensors, config.json, tokenizer.
 */
#ifndef CSN_CONVERT_EXPORT_H
#define CSN_CONVERT_EXPORT_H

#include "base/log.h"
#include "base/progress.h"
#include "store/store.h"

typedef struct csn_export_options {
    const csn_dtype *dtype;   /* of the weights: f32, f16 or bf16 */
    csn_str skill;            /* its tensors in place of the backbone's; empty = the backbone */
    uint64_t shard_max_bytes; /* of the tensors of a file; 0 = one file */
    bool overwrite;
    unsigned n_threads;           /* 0 = all */
    const csn_progress *progress; /* bytes of the weights written */
    const csn_log *log;           /* what could not be told to config.json */
} csn_export_options;

/* Makes `dir` if it is not there. Errors: CAISSON_E_EXISTS (a model is in it), _BOUNDS (a value
 * that the dtype cannot hold), _UNSUPPORTED (a dtype that we cannot decode), _MISSING (no such
 * skill), _BUSY (another export writes there), _HASH, _IO, _CANCELLED, _NOMEM. */
caisson_status csn_export(csn_store *store, csn_fs *fs, const char *dir,
                          const csn_export_options *options, caisson_error *err);

#endif
