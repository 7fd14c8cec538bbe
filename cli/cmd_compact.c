/* SPDX-License-Identifier: Apache-2.0 */
/* compact: a file without the bytes that growing left dead. */
#include "commands.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    return cli_rewrite(args, args->positional[0], cli_text(args, "output", NULL), 0);
}

const cli_command cli_cmd_compact = {
    .name = "compact",
    .summary = "Reclaim the dead bytes of a .cmf file",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_rewrite_options, cli_json_options, cli_common_options},
    .details =
        "Commands that change a file write behind its end and leave what they replaced dead. "
        "compact writes the file anew, payloads byte for byte and checked against their hashes, "
        "and puts it in the place of the old one, which stays until the new one is on the disk; "
        "it needs free space for a second file. A shard stays the shard that it was. With "
        "--output the old file stays, and a sharded model becomes one file.\n"
        "A signature beside the file does not fit the new one. A sparse index is left out.\n"
        "JSON: {\"output\":F, \"bytes_before\":N, \"bytes_after\":N, \"files_before\":N, "
        "\"files_after\":N}.",
    .examples = "caisson compact model.cmf\ncaisson compact model.cmf -o small.cmf",
    .run = run,
};
