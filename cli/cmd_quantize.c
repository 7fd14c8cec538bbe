/* SPDX-License-Identifier: Apache-2.0 */
/* quantize: another .cmf of a .cmf, with other types. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "conversion.h"
#include "open.h"
#include "rewrite.h"

static int run(const cli_args *args) {
    char *calibrate = NULL;
    char *eval = NULL;
    cli_convert_job job = {.summary = stdout};
    caisson_kind kind;
    caisson_error err;
    if (caisson_detect(args->positional[0], &kind, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    if (kind != CAISSON_KIND_CMF) {
        return cli_usage_error(args->command, "IN.cmf is no .cmf file: caisson convert makes one");
    }
    if (!cli_says_types(args)) {
        return CLI_USAGE;
    }
    int rc = cli_read_option_text(args, "calibrate", &calibrate, &job.calibrate);
    if (rc == CLI_OK) {
        rc = cli_read_option_text(args, "eval", &eval, &job.eval);
    }
    if (rc == CLI_OK) {
        rc = cli_conversion_run(args, &job);
    }
    free(calibrate);
    free(eval);
    return rc;
}

static const cli_option options[] = {
    CLI_QUANT_OPTION("that of IN.cmf"),
    {.name = "calibrate",
     .kind = CLI_PATH,
     .value = "TEXT",
     .help = "Types q1s and q1t: run this text through IN.cmf first, and keep as f16 the weights "
             "that are large times what they meet"},
    {.name = "eval",
     .kind = CLI_PATH,
     .value = "TEXT",
     .help = "Then score this text with both models in f32 arithmetic: perplexity, and mean KL "
             "divergence of OUT.cmf's distributions from IN.cmf's"},
    {0},
};

const cli_command cli_cmd_quantize = {
    .name = "quantize",
    .summary = "Make a .cmf file of a .cmf file, with other tensor types",
    .positionals = "IN.cmf -o OUT.cmf",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_target_options, cli_conversion_options, cli_thread_options,
               cli_shard_options, cli_json_options, cli_common_options},
    .details =
        "Tensor by tensor, whatever the size of the model. What has the type already is copied "
        "byte for byte, norms and other vectors too; header keys, tokenizer, chat template, masks "
        "and skills are kept, the sparse index, which nobody reads, is not. IN.cmf may be any "
        "shard of a model. OUT.cmf appears whole or not at all; after an interrupt the same "
        "command "
        "goes on where it stopped.\n"
        "Shown are the bits a weight and the error of each tensor against IN.cmf. What was lost "
        "before cannot come back: quantize from the finest file there is.",
    .examples = "caisson quantize model.cmf -o small.cmf --quant vbit --bits 4.5 --eval text.txt\n"
                "caisson quantize model.cmf -o tiny.cmf --quant q1t --calibrate text.txt --tensor "
                "'lm_head.*=q8_row'",
    .run = run,
};
