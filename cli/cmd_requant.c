/* SPDX-License-Identifier: Apache-2.0 */
/* requant: other tensor types for a .cmf file, in its place. */
#include "commands.h"
#include "conversion.h"

static int run(const cli_args *args) {
    if (!cli_says_types(args)) {
        return CLI_USAGE;
    }
    return cli_conversion_run(args, &(cli_convert_job){.summary = stdout, .in_place = true});
}

static const cli_option options[] = {
    CLI_QUANT_OPTION("as it is"),
    {0},
};

const cli_command cli_cmd_requant = {
    .name = "requant",
    .summary = "Give tensors of a .cmf file other types, in its place",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_conversion_options, cli_thread_options, cli_json_options,
               cli_common_options},
    .details =
        "The new payloads of the tensors that change are written behind the end of the file, then "
        "the file is pointed at them: killed at any instant it is the old model or the new one, "
        "and a program that has it open keeps the model that it opened. Nothing is written over, "
        "even where the new payload would fit into the place of the old one, so the file grows; "
        "caisson compact then reclaims the old payloads. Of a sharded model one shard after the "
        "other "
        "changes; the same command goes on where a killed one stopped.",
    .examples = "caisson requant model.cmf --tensor 'lm_head.*=q8_row'\n"
                "caisson requant model.cmf --quant q4_tiled && caisson compact model.cmf",
    .run = run,
};
