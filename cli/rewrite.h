/* SPDX-License-Identifier: Apache-2.0 */
/* What compact, merge and split share. */
#ifndef CLI_REWRITE_H
#define CLI_REWRITE_H

#include "cli.h"

extern const cli_option cli_rewrite_options[]; /* --output --force */
extern const cli_option cli_shard_options[];   /* --shard-max-size */

/* "100M", "2G", "512KiB" as bytes: K, M, G are powers of 1000, KiB, MiB, GiB of 1024. CLI_OK, or
 * CLI_USAGE with the message printed. */
int cli_size(const cli_args *args, const char *option, uint64_t *ret);

/* Writes the model anew (target NULL: in its place) and tells what came of it, with --json as JSON.
 * The exit code. */
int cli_rewrite(const cli_args *args, const char *source, const char *target,
                uint64_t shard_max_bytes);

#endif
