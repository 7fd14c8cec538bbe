/* SPDX-License-Identifier: Apache-2.0 */
/* Models of random weights, for tests and for measuring: of the families that run, in sizes from a
 * few megabytes to those of the real ones. What they say is noise, and the same noise every time.
 */
#ifndef CAISSON_SYNTH_H
#define CAISSON_SYNTH_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The i-th pair of a family and a size of it; false behind the last. Static storage. */
CAISSON_API bool caisson_synth_name(uint32_t i, const char **family, const char **size);

typedef struct caisson_synth_options {
    size_t struct_size; /* sizeof(caisson_synth_options) */
    const char *family; /* as caisson_synth_name gives it */
    const char *size;   /* NULL = "small" */
    uint64_t seed;
    uint32_t n_layers;  /* 0 = as the size has */
    const char *quant;  /* OUT.waste: vq3r (NULL), vq2r, vq4p; OUT.cmf: a tensor type */
    uint32_t n_threads; /* 0 = all CPUs that the process may use */
    bool overwrite;     /* replace an existing target */
    /* Bytes written; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_synth_options;

/* Writes a WARP directory, "OUT.waste", or a .cmf; it appears whole or not at all. The same options
 * give the same bytes. Errors: CAISSON_E_EXISTS (target there, no overwrite), _BUSY (somebody else
 * is writing it), _ARG (no such family, size or quant), _UNSUPPORTED (the container cannot hold the
 * family), _IO, _CANCELLED, _NOMEM. */
CAISSON_API caisson_status caisson_synth(const char *target, const caisson_synth_options *options,
                                         caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
