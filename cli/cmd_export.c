/* SPDX-License-Identifier: Apache-2.0 */
/* export: a model as Hugging Face knows it. */
#include <string.h>

#include "commands.h"
#include "open.h"
#include "rewrite.h"
#include "term.h"

typedef struct job {
    const cli_args *args;
    cli_progress progress;
} job;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    cli_progress_show(&((job *)ctx)->progress, stage, done, total);
    return !cli_interrupted();
}

static void on_log(void *ctx, caisson_log_level level, const char *line) {
    job *j = ctx;
    cli_progress_end(&j->progress);
    if (level == CAISSON_LOG_WARN) {
        cli_warn(j->args, "%s", line);
    }
}

static int run(const cli_args *args) {
    const char *target = cli_text(args, "output", NULL);
    job j = {.args = args};
    caisson_error err;
    caisson_export_options o = {.struct_size = sizeof(o),
                                .dtype = cli_text(args, "dtype", NULL),
                                .skill = cli_text(args, "skill", NULL),
                                .overwrite = cli_has(args, "force"),
                                .n_threads = (uint32_t)cli_int(args, "threads", 0),
                                .on_progress = on_progress,
                                .on_log = on_log,
                                .ctx = &j};
    if (target == NULL) {
        return cli_usage_error(args->command, "say where the model goes: --output DIR");
    }
    if (cli_has(args, "shard-max-size")) {
        int rc = cli_size(args, "shard-max-size", &o.shard_max_bytes);
        if (rc != CLI_OK) {
            return rc;
        }
    }
    cli_progress_init(&j.progress, "B", cli_has(args, "json"));
    caisson_status status = caisson_export(args->positional[0], target, &o, &err);
    cli_progress_end(&j.progress);
    return status == CAISSON_OK ? cli_tell_done(args, "wrote", "output", target, "")
                                : cli_fail(args, &err);
}

static const char *dtype_choice(unsigned i) {
    static const char *const names[] = {"f32", "f16", "bf16"};
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : NULL;
}

static const cli_option options[] = {
    {.name = "dtype",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = dtype_choice,
     .help = "Type of the weights; f32 holds every value exactly",
     .by_default = "f32"},
    {.name = "skill",
     .kind = CLI_TEXT,
     .value = "ID",
     .help = "The tensors of this skill in place of the backbone's"},
    {0},
};

const cli_command cli_cmd_export = {
    .name = "export",
    .summary = "Write a model as a Hugging Face directory (safetensors)",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_rewrite_options, options, cli_thread_options, cli_shard_options,
               cli_json_options, cli_common_options},
    .details =
        "Makes the directory and writes model.safetensors (with --shard-max-size several, and "
        "their index; the size is that of the tensors), config.json, tokenizer.json and "
        "tokenizer_config.json. Tensors keep their names, which are Hugging Face's; every payload "
        "is checked against its hash when it is read. Where the model has what config.json has no "
        "words for, that file is left out, and what it was is said. Masks are not exported. A "
        "model that --force replaces stays until all of the new one is written.",
    .examples = "caisson export model.cmf -o hf --dtype bf16\n"
                "caisson export model.cmf -o hf --shard-max-size 5G",
    .run = run,
};
