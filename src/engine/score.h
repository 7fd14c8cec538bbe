/* SPDX-License-Identifier: Apache-2.0 */
/* How well a session predicts a text, and how far its distributions are from another's. */
#ifndef CSN_ENGINE_SCORE_H
#define CSN_ENGINE_SCORE_H

#include "engine/session.h"

typedef struct csn_score {
    double nll;      /* nats, over the scored tokens; exp(nll / n) is the perplexity */
    double kl;       /* nats, sum of KL(base || session) over the same positions */
    double kl_max;   /* of one position */
    uint64_t n;      /* scored tokens */
    uint64_t n_same; /* positions where both like the same token best */
} csn_score;

/* Cuts the ids into windows of the session's context that do not overlap, each behind `bos` (< 0:
 * none), and scores every token of a window that has one before it. `base`: a session over a model
 * of the same vocabulary, with a context that is not shorter; NULL: nothing is compared. Sums in
 * f64, in order: they do not depend on threads or batches. Both sessions forget what they held. */
caisson_status csn_score_text(csn_session *s, csn_session *base, const int32_t *ids, size_t n,
                              int32_t bos, const csn_progress *progress, csn_score *ret,
                              caisson_error *err);

#endif
