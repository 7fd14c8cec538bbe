/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from a person (editing and history by libedit) or from a pipe.
 */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "cli.h"

typedef struct cli_reader cli_reader;

/* NULL when out of memory. On a terminal, history comes from and goes to `history_path` (may be
 * NULL: none is kept). */
cli_reader *cli_reader_new(const char *history_path);
void cli_reader_free(cli_reader *r); /* writes the history; NULL is fine */
bool cli_reader_is_tty(const cli_reader *r);

typedef enum cli_line { CLI_LINE_TEXT, CLI_LINE_END, CLI_LINE_INTERRUPT } cli_line;
/* One line without its newline, NUL-terminated, good until the next call. A terminal shows
 * `prompt`. Ctrl-C: CLI_LINE_INTERRUPT. */
cli_line cli_reader_next(cli_reader *r, const char *prompt, const char **ret, size_t *ret_n);

#endif
