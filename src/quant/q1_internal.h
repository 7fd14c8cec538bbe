/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoders and checks of q1, q1s and q1t share: which weights stay f16 (outliers.c). */
#ifndef CSN_QUANT_Q1_INTERNAL_H
#define CSN_QUANT_Q1_INTERNAL_H

#include "quant/q1.h"
#include "quant/quant_internal.h"

void csn_q1_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out); /* tiles alone */

/* How many of n weights stay f16: options->keep, or `usual` where it is 0. Rounds half away from
 * zero in f32, as the reference does. */
uint64_t csn_count_outliers(const csn_encode_options *options, float usual, uint64_t n);

/* The weights that stay f16, chosen over the whole tensor by their scores, |weight| times col_rms:
 * those above a threshold, and of each row the first `ties[row]` that equal it. */
typedef struct csn_choice {
    uint32_t threshold; /* bits of a score */
    uint64_t *first;    /* [rows + 1] outliers of the rows before */
    uint64_t *ties;     /* [rows] */
} csn_choice;

/* n_outliers of the job's weights; with_ties: and all that equal the least of them. NOMEM. The
 * caller frees the choice. */
caisson_status csn_choice_make(csn_encode_job *job, uint64_t n_outliers, bool with_ties,
                               csn_pool *pool, csn_choice *ret, caisson_error *err);
void csn_choice_free(csn_choice *choice);

/* Bit k: whether weight k of a group of row `row` is an outlier. Groups of a row come in rising
 * order; *n_ties is 0 before the first. */
uint32_t csn_choice_of_group(const csn_encode_job *job, const csn_choice *choice, uint64_t row,
                             uint64_t g, uint64_t *n_ties);

static inline float csn_magnitude(float x) {
    return csn_f32_from_bits(csn_f32_bits(x) & 0x7fffffffu);
}

/* Squared root mean square of what meets a column: how much an error there matters. */
static inline float csn_column_weight(const csn_encode_options *options, uint64_t col) {
    return options->col_rms == NULL ? 1.0f : options->col_rms[col] * options->col_rms[col];
}

#endif
