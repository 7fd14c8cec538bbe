/* SPDX-License-Identifier: Apache-2.0 */
/* What a text makes the products of a model read: for every weight the size of each of its input
 * columns. Pruning and the choice of outliers weigh a column by it (Sun et al. 2023, "A Simple and
 * Effective Pruning Approach for Large Language Models"). */
#ifndef CSN_ENGINE_CALIBRATE_H
#define CSN_ENGINE_CALIBRATE_H

#include "engine/session.h"

typedef struct csn_columns {
    csn_str name; /* of the weight's tensor; the model's memory */
    uint64_t cols;
    uint64_t n;          /* vectors that it read: of an expert, how often it was chosen */
    double *sum_squares; /* [cols] */
} csn_columns;

typedef struct csn_calibration {
    csn_columns *weights; /* [n], in the order of their first use */
    uint32_t n, capacity;
    uint32_t next;         /* where the last one was found, plus 1 */
    caisson_status status; /* NOMEM while it was being filled */
} csn_calibration;

/* Runs ids, cut into windows of the session's context that each begin with `bos` (-1 = without).
 * The session forgets what it held. The sums do not depend on threads or batches. `progress` counts
 * tokens. */
caisson_status csn_calibrate(csn_session *s, const int32_t *ids, uint64_t n, int32_t bos,
                             const csn_progress *progress, csn_calibration *ret,
                             caisson_error *err);
void csn_calibration_done(csn_calibration *c); /* of a zeroed one too */

/* NULL: no product used this tensor. */
const csn_columns *csn_calibration_find(const csn_calibration *c, csn_str name);
/* out [cols]: the root of each column's mean square; zeros for a weight that read nothing. */
void csn_columns_rms(const csn_columns *w, float *out);

#endif
