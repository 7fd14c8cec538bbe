/* SPDX-License-Identifier: Apache-2.0 */
/* Opening models and sessions as the command line says, and what is told when that fails.
 */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "base/json.h"
#include "cli.h"

/* Prints "caisson CMD: error" and, where there is one, what to do next. Returns CLI_FAILED, or
 * CLI_INTERRUPTED for CAISSON_E_CANCELLED after Ctrl-C. */
int cli_fail(const cli_args *args, const caisson_error *err);
int cli_fail_text(const cli_args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same line for something that does not stop the command. */
void cli_warn(const cli_args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --require-signature as a public key: *ret_given tells whether there is one. CLI_OK, or the exit
 * code with the message printed. */
int cli_required_key(const cli_args *args, caisson_public_key *ret, bool *ret_given);

typedef enum cli_part {
    CLI_PART_ALL,
    CLI_PART_RAW,    /* everything but the chat template */
    CLI_PART_TEXT,   /* tokenizer and chat template */
    CLI_PART_TOKENS, /* the tokenizer */
    CLI_PART_WEIGHTS
} cli_part;

/* Opens the model (mappings guarded). A GGUF file or a Hugging Face directory: prints the exact
 * convert line, or with --convert converts and opens the result. CLI_OK, or the exit code with the
 * message printed. `part`: what the command needs. */
int cli_open_model(const cli_args *args, const char *path, cli_part part, caisson_model **ret);

/* A session with -t -c -ub --compute --cache-type-k/-v; compute and n_ctx are the command's
 * defaults (n_ctx 0: the library's). */
int cli_new_session(const cli_args *args, caisson_model *model, caisson_compute compute,
                    uint32_t n_ctx, caisson_session **ret);
/* Options alone, for commands that make several sessions. */
caisson_session_options cli_session_options(const cli_args *args, caisson_compute compute,
                                            uint32_t n_ctx);

caisson_kv_type cli_kv_type(const char *word); /* of --cache-type-k/-v */

/* Opens a file to be looked at, with the same hint. */
int cli_open_file(const cli_args *args, const char *path, caisson_file **ret);

/* --temp and the others as a struct; without --seed the clock gives one. */
caisson_sampling cli_sampling(const cli_args *args);

/* CLI_OK if nothing or a regular file is at `path`: writing replaces what is there, and a device or
 * a directory must not go. Else the exit code with the message printed. */
int cli_check_target(const cli_args *args, const char *path);
bool cli_is_waste(const char *path); /* the name of a WARP directory: OUT.waste */

/* The whole of a file, or of standard input for "-" (max bytes at most): malloc'd, NUL-terminated.
 * CLI_OK or the exit code with the message printed. */
int cli_read_text(const cli_args *args, const char *path, size_t max, char **ret, size_t *ret_n);

/* Ends the writer over `out`, prints one line, frees the buffer. CLI_OK or the exit code. */
int cli_put_json(const cli_args *args, csn_jw *w, csn_buf *out, caisson_error *err);
/* One value, as it is. */
int cli_put_jval(const cli_args *args, const csn_jval *value);
/* What caisson_file_describe tells of a file, in JSON, to fn with `name`; fn's exit code, or that
 * of a failure with the message printed. */
int cli_describe(const cli_args *args, const char *path,
                 int (*fn)(const cli_args *args, const csn_jval *root, const char *name),
                 const char *name);
/* "DONE NAME" and what is behind it, for people; {"KEY":"NAME"} with --json. */
int cli_tell_done(const cli_args *args, const char *done, const char *key, const char *name,
                  const char *behind);
/* Standard output: the text as it is, or with --json as {"text": ...}. CLI_OK or the exit code. */
int cli_put_text(const cli_args *args, const caisson_text *text);

/* Comma-separated ids (spaces allowed), or those on standard input for "-", which may be longer
 * than a command line; none is an empty list. CLI_OK or the exit code with the message printed;
 * malloc'd. */
int cli_read_ids(const cli_args *args, const char *text, int32_t **ret, size_t *ret_n);

#endif
