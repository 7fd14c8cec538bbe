/* SPDX-License-Identifier: Apache-2.0 */
/* convert: somebody else's model becomes a .cmf, or a mixture of experts a WARP directory. */
#include <stdlib.h>

#include "commands.h"
#include "conversion.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    char *calibrate = NULL;
    cli_convert_job job = {.summary = stdout};
    caisson_kind kind;
    caisson_error err;
    if (cli_has(args, "calibrate") &&
        (caisson_detect(args->positional[0], &kind, &err) != CAISSON_OK ||
         kind != CAISSON_KIND_CMF)) {
        return cli_usage_error(args->command,
                               "--calibrate runs the model, which only a .cmf can: convert it with "
                               "--quant f16, then caisson quantize --calibrate TEXT");
    }
    int rc = cli_read_option_text(args, "calibrate", &calibrate, &job.calibrate);
    if (rc == CLI_OK) {
        rc = cli_conversion_run(args, &job);
    }
    free(calibrate);
    return rc;
}

static const char *coding_choice(unsigned i) {
    static const char *const names[] = {"vq3r", "vq2r", "vq4p", NULL};
    return names[i];
}

static const cli_option options[] = {
    CLI_QUANT_OPTION("q8_row; of a .cmf its own types"),
    {.name = "calibrate",
     .kind = CLI_PATH,
     .value = "TEXT",
     .help =
         "Types q1s and q1t of a SOURCE that is a .cmf: run this text through it first, and keep "
         "as f16 the weights that are large times what they meet"},
    {.name = "expert-quant",
     .kind = CLI_CHOICE,
     .value = "CODING",
     .choices = coding_choice,
     .help = "OUT.waste: coding of the experts",
     .by_default = "vq3r"},
    {.name = "trunk-bits",
     .kind = CLI_INT,
     .value = "N",
     .min = 4,
     .max = 8,
     .help = "OUT.waste: bits of the matrices that are no experts, 4 or 8 (embedding and head have "
             "8)",
     .by_default = "4"},
    {0},
};

static const cli_option target_options[] = {
    CLI_TARGET_OPTIONS("OUT.cmf", "The file to write, or OUT.waste for a WARP directory (needed)"),
    {0},
};

const cli_command cli_cmd_convert = {
    .name = "convert",
    .summary = "Make a .cmf file or a WARP directory of a model in another format",
    .positionals = "SOURCE -o OUT.cmf",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, target_options, cli_conversion_options, cli_thread_options,
               cli_shard_options, cli_json_options, cli_common_options},
    .details =
        "SOURCE is a GGUF file (of a split one any part), a directory with config.json and "
        "safetensors files, a .cmf file, or a WARP directory; its content decides, not its name. "
        "Norms and other vectors stay "
        "in f16 (in f32 with --quant f32). OUT.cmf appears whole or not at all; after an "
        "interrupt the same command goes on where it stopped.\n"
        "OUT.waste is a directory for models larger than memory: mixtures of experts with latent "
        "attention (Kimi-Linear, Kimi K3, DeepSeek-V3). Each expert becomes a record of vector "
        "indices with codebooks that a layer shares; a layer's bank is whole or absent.\n"
        "At the end the error of each tensor against the source's own values is shown, as "
        "the norm of the difference over the norm of the source.",
    .examples = "caisson convert SmolLM2-135M.gguf -o smollm2.cmf\n"
                "caisson convert ./Qwen3-0.6B -o qwen3.cmf --quant q4_tiled --tensor "
                "'lm_head.*=q8_row'\n"
                "caisson convert ./Kimi-Linear-48B -o kimi.waste --expert-quant vq4p",
    .run = run,
};
