/* SPDX-License-Identifier: Apache-2.0 */
/* A task mask from a calibration: what adds least to the residual stream is switched off, in each
 * layer the same share of it. */
#ifndef CSN_ENGINE_PRUNE_H
#define CSN_ENGINE_PRUNE_H

#include "engine/calibrate.h"

enum {
    CSN_PRUNE_RUN = 256
}; /* neurons that stand and fall together unless scattered: whole groups
      of 32 columns, and rows that follow each other in memory */

typedef struct csn_prune_options {
    float sparsity;      /* share of the neurons of a dense layer, of the experts of a mixture, that
                            is switched off: [0, 1) */
    float head_sparsity; /* share of the query heads; [0, 1) */
    bool scattered;      /* neurons one by one */
} csn_prune_options;

/* Score of a neuron or head: mean square of what it feeds to down_proj or o_proj, times the square
 * of the columns it meets there (with one column, the mean square of what it adds to the residual
 * stream); of an expert: how often it was chosen. Of equals the one in front stays. At least one
 * run, head or, in a mixture, as many experts as a token chooses stay.
 * Fills ffn, heads, gates, experts, n_ffn_rows and sparsity (of neurons and experts together) of
 * *ret; its arrays go to `arena`. CAISSON_E_ARG: a share outside of [0, 1). */
caisson_status csn_prune(const csn_model *m, const csn_calibration *c,
                         const csn_prune_options *options, csn_arena *arena, csn_cmf_mask *ret,
                         caisson_error *err);

#endif
