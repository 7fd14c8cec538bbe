/* SPDX-License-Identifier: Apache-2.0 */
/* Models of random weights: of any family that we run, in sizes from a few megabytes to those of
 * the real ones, whose experts matter to the logits. For tests, and for measuring speed. */
#ifndef CSN_CONVERT_SYNTH_H
#define CSN_CONVERT_SYNTH_H

#include "base/io.h"
#include "base/progress.h"
#include "quant/dtype.h"

typedef struct csn_synth_options {
    csn_str family, size; /* names of csn_synth_name */
    uint64_t seed;
    uint32_t n_layers;            /* 0 = as the size has */
    csn_str quant;                /* WARP: vq3r, vq2r, vq4p; CMF: a dtype; empty = the default */
    unsigned n_threads;           /* 0 = all */
    bool overwrite;               /* else CAISSON_E_EXISTS */
    const csn_progress *progress; /* bytes written */
} csn_synth_options;

/* The i-th family and size there is; false behind the last. */
bool csn_synth_name(unsigned i, const char **ret_family, const char **ret_size);
/* Writes a WARP directory where `target` ends in ".waste", else a .cmf file. The same options give
 * the same bytes. CAISSON_E_ARG: no such family, size or quant; _UNSUPPORTED: WARP cannot say it.
 */
caisson_status csn_synth(csn_fs *fs, const char *target, const csn_synth_options *options,
                         caisson_error *err);

#endif
