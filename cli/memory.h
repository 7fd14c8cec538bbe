/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a model may take, and what was read because it does not fit. */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include "base/json.h"
#include "cli.h"

/* --budget --stream-trunk --io --no-lookahead --verify-records --learn --stats */
extern const cli_option cli_memory_options[];

/* --budget in bytes, 0 if it is not given: a number, K, M or G behind it (powers of 1024). CLI_OK
 * or CLI_USAGE with the message printed. */
int cli_budget(const cli_args *args, uint64_t *ret);
/* Sets those members of the options that cli_memory_options are about, from them and from -c and
 * --cache-type-k/-v. CLI_OK or CLI_USAGE. */
int cli_memory(const cli_args *args, caisson_open_options *o);

/* When the work is done: with --stats what was read, a line a layer, on standard error; with
 * --learn what was used is noted (a warning if it cannot be). */
void cli_end_experts(const cli_args *args, caisson_model *model);
/* Bytes of experts read so far because they were wanted: guesses count if they were right. */
uint64_t cli_expert_bytes(const caisson_model *model);
/* The members "trunk" and "experts" of an open object, each where it is streamed. */
void cli_put_stats(csn_jw *w, const caisson_model *model);

#endif
