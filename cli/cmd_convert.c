/* SPDX-License-Identifier: Apache-2.0 */
/* convert: somebody else's model becomes a .cmf. */
#include "commands.h"
#include "conversion.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    return cli_conversion_run(args, &(cli_convert_job){.summary = stdout});
}

static const cli_option options[] = {
    {.name = "quant",
     .short_name = "q",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = cli_quant_choice,
     .help = "Type of the weight matrices",
     .by_default = "q8_row"},
    {0},
};

const cli_command cli_cmd_convert = {
    .name = "convert",
    .summary = "Make a .cmf file of a GGUF file or a Hugging Face directory",
    .positionals = "SOURCE -o OUT.cmf",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_target_options, cli_conversion_options, cli_shard_options,
               cli_json_options, cli_common_options},
    .details =
        "SOURCE is a GGUF file (of a split one any part) or a directory with config.json and "
        "safetensors files; its content decides, not its name. Norms and other vectors stay "
        "in f16 (in f32 with --quant f32). OUT.cmf appears whole or not at all; after an "
        "interrupt the same command goes on where it stopped.\n"
        "At the end the error of each tensor against the source's own values is shown, as "
        "the norm of the difference over the norm of the source.",
    .examples = "caisson convert SmolLM2-135M.gguf -o smollm2.cmf\n"
                "caisson convert ./Qwen3-0.6B -o qwen3.cmf --quant q4_tiled --tensor "
                "'lm_head.*=q8_row'",
    .run = run,
};
