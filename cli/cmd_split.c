/* SPDX-License-Identifier: Apache-2.0 */
/* split: a model in shards of a given size. */
#include "commands.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    uint64_t max_bytes;
    if (!cli_has(args, "output") || !cli_has(args, "shard-max-size")) {
        return cli_usage_error(args->command, "say where the shards go and how large they may be: "
                                              "--output OUT.cmf --shard-max-size N");
    }
    int rc = cli_size(args, "shard-max-size", &max_bytes);
    return rc != CLI_OK
               ? rc
               : cli_rewrite(args, args->positional[0], cli_text(args, "output", NULL), max_bytes);
}

const cli_command cli_cmd_split = {
    .name = "split",
    .summary = "Cut a .cmf file into shards",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_rewrite_options, cli_shard_options, cli_json_options, cli_common_options},
    .details =
        "With -o OUT.cmf the shards are OUT-00001-of-0000N.cmf and so on; any of their names opens "
        "the model, and each can be verified and signed alone. FILE may be sharded itself, and "
        "stays.\n"
        "JSON: as caisson compact prints it.",
    .examples = "caisson split model.cmf -o parts/model.cmf --shard-max-size 2G\n"
                "caisson run parts/model-00001-of-00004.cmf \"Hello\"",
    .run = run,
};
