/* SPDX-License-Identifier: Apache-2.0 */
/* Task masks of a .cmf file (CMF 5): making and measuring them. A mask switches neurons, heads,
 * layers or experts off; a session runs under it with caisson_session_options.task.
 *
 * Each of these calls grows the file behind its end (docs/cmf.md, "Growing"): who has it open keeps
 * the model that he opened, and a kill leaves the old or the new one. A signature beside the file
 * is no longer its own afterwards. Of a model in shards `path` may be any: the first one grows. */
#ifndef CAISSON_MASKS_H
#define CAISSON_MASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "caisson/error.h"
#include "caisson/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_mask_options {
    size_t struct_size; /* sizeof(caisson_mask_options) */
    const char *text;   /* what the task's texts look like: plain text, text_n bytes */
    size_t text_n;
    /* Share of the neurons of each dense layer, and of the experts of each mixture, that goes off;
     * and of the query heads. Each at least 0 and below 1. */
    float sparsity, head_sparsity;
    /* Neurons one by one: better at the same sparsity, and slower. Else in aligned runs of 256. */
    bool scattered;
    const char *description; /* NULL = none */
    bool replace;            /* a mask of this name is replaced, not refused */
    bool make_default;       /* the file's default_task becomes this mask */
    uint32_t n_threads;      /* 0 = all CPUs that the process may use */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_mask_options;

/* Adds a mask to the file: runs the text through the model, without any mask, and switches off what
 * adds least to the residual stream (score of a neuron: mean square of its activation times the
 * square of its column of down_proj; Sun et al. 2023). Its quality is not measured. *ret_sparsity:
 * the share that is off in fact. Errors: CAISSON_E_EXISTS, _ARG, _BUSY (another writer),
 * _UNSUPPORTED (no tokenizer), those of opening and running, _CANCELLED, _NOMEM, _IO. */
CAISSON_API caisson_status caisson_mask_make(const char *path, const char *name,
                                             const caisson_mask_options *options,
                                             float *ret_sparsity, caisson_error *err);

/* What a mask costs, measured by the caller on held-out data. */
typedef struct caisson_mask_quality {
    size_t struct_size;    /* sizeof(caisson_mask_quality) */
    const char *metric;    /* "ppl", ... */
    double value;          /* under the mask */
    double baseline_dense; /* without */
    uint64_t n_samples;    /* tokens that were scored */
    const void *dataset;   /* the data's dataset_n bytes: their SHA-256 is kept */
    size_t dataset_n;
} caisson_mask_quality;

/* Writes the quality into the mask's meta, in place of one that is there. Errors:
 * CAISSON_E_MISSING, _ARG, _BUSY, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_mask_set_quality(const char *path, const char *name,
                                                    const caisson_mask_quality *quality,
                                                    caisson_error *err);
/* Takes the mask out of the file; its bytes stay until `compact`. Errors: CAISSON_E_MISSING,
 * _ARG (a skill of the file runs under it), _BUSY, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_mask_remove(const char *path, const char *name,
                                               caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
