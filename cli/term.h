/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: colour, text that must not drive it, progress, Ctrl-C.
 */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"

/* True if `stream` is a terminal that takes colour: TERM is not "dumb", NO_COLOR is not set. */
bool cli_has_colour(FILE *stream);

typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_RED, CLI_YELLOW } cli_style;
/* Switches the style on `stream`; nothing when `on` is false. */
void cli_set_style(FILE *stream, bool on, cli_style style);

/* Writes text in which control characters (all but newline and tab, C1 included) and invalid UTF-8
 * became '?': names from a file, arguments. */
void cli_put_printable(FILE *stream, const char *text, size_t n);
void cli_put(csn_str text); /* the same, to standard output */
/* Model output: as it is, but on a terminal control characters are dropped, so that no model can
 * move the cursor or set the title. n bytes that end at a code point border. */
void cli_put_model_text(FILE *stream, const char *text, size_t n);

/* Flushes; a full disk or a closed pipe is told once and makes this CLI_FAILED (else CLI_OK). */
int cli_finish_stdout(void);

/* ---- Ctrl-C ---- sets a flag; the second one, if nothing else is said, ends the process (130). */
void cli_catch_interrupts(void);
bool cli_interrupted(void);
void cli_forget_interrupt(void); /* chat: the answer was stopped, go on */
/* From now on the nth since the last one that was forgotten ends the process; 0: none does. */
void cli_interrupts_end_at(int nth);

/* ---- progress on standard error ---- a bar on a terminal, a line every few seconds elsewhere. */
typedef struct cli_progress {
    const char *unit; /* "B": bytes are shown as MB; else the unit's word */
    bool is_bar, quiet;
    bool drawn;   /* a bar stands on the last line */
    bool is_told; /* the end of the stage was */
    uint64_t start_ns, last_ns;
    uint64_t first; /* `done` at the start: what was already there is not speed */
    char stage[48];
} cli_progress;
void cli_progress_init(cli_progress *p, const char *unit, bool quiet);
void cli_progress_show(cli_progress *p, const char *stage, uint64_t done, uint64_t total);
/* Not before a second has passed since init: only where the wait is long enough to wonder. */
void cli_progress_show_late(cli_progress *p, const char *stage, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *p); /* clears the bar */
/* The on_progress of the library's options with a cli_progress as its ctx: shows it, and stops at
 * Ctrl-C. */
bool cli_on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total);

/* "12.3 MB", "512 B" into buf; returns buf. */
const char *cli_bytes_text(uint64_t bytes, char *buf, size_t n);

#endif
