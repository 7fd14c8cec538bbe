/* SPDX-License-Identifier: Apache-2.0 */
/* What run and skill share: which skills a command line asks for. */
#ifndef CLI_SKILLS_H
#define CLI_SKILLS_H

#include "base/json.h"
#include "cli.h"

extern const cli_option cli_blend_options[];   /* --blend */
extern const cli_option cli_dynamic_options[]; /* --route-dynamic --trace --route-e-on ... */

/* What --trace keeps of an answer: one step a token. */
typedef struct cli_trace {
    caisson_dynamic_step *steps; /* [n] */
    size_t n, cap;
    bool failed; /* out of memory: steps are missing */
} cli_trace;

/* The model's route for a prompt (plain text, no BOS; its first max_tokens, 0 = all). CLI_OK, or
 * the exit code with the message printed; *ret is the caller's. */
int cli_route(const cli_args *args, caisson_model *model, const char *text, size_t n,
              size_t max_tokens, caisson_route *ret);

/* Makes the session run the first of r's skills (n > 0) and tells it on standard error. CLI_OK, or
 * the exit code with the message printed. */
int cli_run_winner(const cli_args *args, caisson_session *session, const caisson_route *r);
/* --route-dynamic: skills may change within the session's answers; *trace, which must outlive them,
 * is filled with --trace. CLI_OK (also without the option), or the exit code with the message
 * printed.
 */
int cli_apply_dynamic(const cli_args *args, caisson_session *session, cli_trace *trace);
void cli_trace_print(const cli_trace *trace, const caisson_model *model, FILE *out);
void cli_trace_put(const cli_trace *trace, csn_jw *w); /* the steps as an array */
void cli_trace_free(cli_trace *trace);
/* Makes the session run what --skill ID|auto|none and --blend "a=0.7,b=0.3" say about this prompt;
 * what auto chose is told on standard error. CLI_OK, or the exit code with the message printed. */
int cli_apply_skills(const cli_args *args, caisson_model *model, caisson_session *session,
                     const char *text, size_t n);

/* The actions of `caisson skill`; id NULL = not given. */
int cli_skill_route(const cli_args *args, const char *path, const char *id);
int cli_skill_explain(const cli_args *args, const char *path, const char *id);
int cli_skill_add(const cli_args *args, const char *path, const char *id);
int cli_skill_remove(const cli_args *args, const char *path, const char *id);
int cli_skill_quality(const cli_args *args, const char *path, const char *id);
int cli_skill_export(const cli_args *args, const char *path, const char *id);
int cli_skill_apply(const cli_args *args, const char *path, const char *skill);

#endif
