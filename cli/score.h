/* SPDX-License-Identifier: Apache-2.0 */
/* caisson_score_text with a progress line. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include "cli.h"

uint32_t cli_score_ctx(const caisson_model *model); /* the usual window */

/* CLI_OK, or the exit code with the message printed. */
int cli_score_text(const cli_args *args, caisson_session *session, caisson_session *base,
                   const char *text, size_t n, caisson_score *ret);

/* The text by a session of its own with this task ("" = none, NULL = the file's default) and skill
 * (NULL = none), in f32 arithmetic if the command line does not say otherwise; *ret_masked: it ran
 * under a mask. */
int cli_score_variant(const cli_args *args, caisson_model *model, const char *task,
                      const char *skill, const char *text, size_t n, caisson_score *ret,
                      bool *ret_masked);

/* Scores the model at `path` against the one at `base`, in f32 arithmetic with f32 keys and values;
 * *ret_base: the base by itself. CLI_OK, or the exit code with the message printed. */
int cli_score_files(const cli_args *args, const char *path, const char *base, const char *text,
                    size_t n, caisson_score *ret, caisson_score *ret_base);

#endif
