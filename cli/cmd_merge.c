/* SPDX-License-Identifier: Apache-2.0 */
/* merge: the shards of a model in one file. */
#include "commands.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    if (!cli_has(args, "output")) {
        return cli_usage_error(args->command, "say where the model goes: --output OUT.cmf");
    }
    return cli_rewrite(args, args->positional[0], cli_text(args, "output", NULL), 0);
}

const cli_command cli_cmd_merge = {
    .name = "merge",
    .summary = "Put the shards of a model into one .cmf file",
    .positionals = "SHARD",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_rewrite_options, cli_json_options, cli_common_options},
    .details =
        "SHARD is any file of the model; all must be there. Payloads are copied byte for byte and "
        "checked against their hashes; the shards stay.\n"
        "JSON: as caisson compact prints it.",
    .examples = "caisson merge model-00001-of-00003.cmf -o model.cmf",
    .run = run,
};
