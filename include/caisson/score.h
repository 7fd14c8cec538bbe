/* SPDX-License-Identifier: Apache-2.0 */
/* How well a session predicts a text (perplexity), and how far its distributions are from those of
 * another model, arithmetic, mask or skill (KL divergence). */
#ifndef CAISSON_SCORE_H
#define CAISSON_SCORE_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_score {
    double nll;    /* nats, sum over the scored tokens; exp(nll / n) is the perplexity */
    double kl;     /* nats, sum of KL(base || session) over the same positions; 0 without a base */
    double kl_max; /* of one position */
    uint64_t n;    /* scored tokens, at least 1 */
    uint64_t n_same; /* positions where both like the same token best */
} caisson_score;

typedef struct caisson_score_options {
    size_t struct_size; /* sizeof(caisson_score_options) */
    /* Tokens done of total; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_score_options;

/* Tokenises n bytes of plain text (without special tokens), cuts them into windows of the session's
 * context that do not overlap, each behind BOS where the tokenizer has one, and scores every token
 * of a window that has one before it. `base` (NULL = nothing is compared) is a session over a model
 * of the same vocabulary with a context that is not shorter. Both sessions forget what they held.
 * The sums do not depend on threads or batches. Errors: CAISSON_E_ARG (a text without a token to
 * score, a context below two tokens, a base that does not fit), _UNSUPPORTED (no tokenizer),
 * _CANCELLED, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_score_text(caisson_session *session, caisson_session *base,
                                              const char *text, size_t n,
                                              const caisson_score_options *options,
                                              caisson_score *ret, caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
