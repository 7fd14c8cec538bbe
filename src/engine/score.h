/* SPDX-License-Identifier: Apache-2.0 */
/* How well a session predicts a text: the sum behind perplexity. */
#ifndef CSN_ENGINE_SCORE_H
#define CSN_ENGINE_SCORE_H

#include "engine/session.h"

typedef struct csn_score {
    double nll; /* nats, over the scored tokens; exp(nll / n) is the perplexity */
    uint64_t n; /* of them */
} csn_score;

/* Cuts the ids into windows of the session's context that do not overlap, each behind `bos` (< 0:
 * none), and scores every token of a window that has one before it. Sums in f64, in order. The
 * session forgets what it held. */
caisson_status csn_score_text(csn_session *s, const int32_t *ids, size_t n, int32_t bos,
                              const csn_progress *progress, csn_score *ret, caisson_error *err);

#endif
