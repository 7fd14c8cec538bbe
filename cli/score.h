/* SPDX-License-Identifier: Apache-2.0 */
/* How well a model predicts a text, and how far its distributions are from another's. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include "cli.h"

enum { CLI_SCORE_CTX = 512 }; /* the usual window */

typedef struct cli_score {
    double nll;      /* nats, sum over the scored tokens */
    double kl;       /* nats, sum of KL(base || model) over the same positions */
    double kl_max;   /* of one position */
    uint64_t n;      /* scored tokens, at least 1 */
    uint64_t n_same; /* positions where both like the same token best */
} cli_score;

/* The text, tokenised without special tokens, in windows of the session's context that do not
 * overlap and begin with BOS where the tokenizer has one; every token of a window but its first is
 * scored. base: a session over a model of the same vocabulary, or NULL. Shows progress. CLI_OK, or
 * the exit code with the message printed. */
int cli_score_text(const cli_args *args, const caisson_model *model, caisson_session *session,
                   caisson_session *base, const char *text, size_t n, cli_score *ret);

/* Scores the model at `path` against the one at `base`, in f32 arithmetic with f32 keys and values;
 * *ret_base: the base by itself. CLI_OK, or the exit code with the message printed. */
int cli_score_files(const cli_args *args, const char *path, const char *base, const char *text,
                    size_t n, cli_score *ret, cli_score *ret_base);

#endif
