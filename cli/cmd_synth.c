/* SPDX-License-Identifier: Apache-2.0 */
/* synth: a model of random weights. */
#include <string.h>

#include "base/clock.h"
#include "commands.h"
#include "open.h"
#include "term.h"

/* The words of one column of the table of families and sizes, each once. */
static const char *choice(unsigned i, bool is_size) {
    const char *words[2];
    for (uint32_t k = 0; caisson_synth_name(k, &words[0], &words[1]); k++) {
        const char *word = words[is_size];
        bool is_new = true;
        for (uint32_t before = 0; before < k && is_new; before++) {
            (void)caisson_synth_name(before, &words[0], &words[1]);
            is_new = strcmp(words[is_size], word) != 0;
        }
        if (is_new && i-- == 0) {
            return word;
        }
    }
    return NULL;
}
static const char *family_choice(unsigned i) {
    return choice(i, false);
}
static const char *size_choice(unsigned i) {
    return choice(i, true);
}

static int run(const cli_args *args) {
    const char *target = cli_text(args, "output", NULL);
    if (target == NULL || !cli_has(args, "family")) {
        return cli_usage_error(args->command, "--family and -o are needed");
    }
    if (cli_check_target(args, target) != CLI_OK) {
        return CLI_FAILED;
    }
    cli_progress progress;
    cli_progress_init(&progress, "B", false);
    caisson_synth_options o = {
        .struct_size = sizeof(o),
        .family = cli_text(args, "family", NULL),
        .size = cli_text(args, "size", NULL),
        .seed = (uint64_t)cli_int(args, "seed", 0),
        .n_layers = (uint32_t)cli_int(args, "layers", 0),
        .quant = cli_text(args, "quant", NULL),
        .n_threads = (uint32_t)cli_int(args, "threads", 0),
        .overwrite = cli_has(args, "force"),
        .on_progress = cli_on_progress,
        .ctx = &progress,
    };
    caisson_error err;
    uint64_t t0 = csn_now_ns();
    caisson_status status = caisson_synth(target, &o, &err);
    cli_progress_end(&progress);
    if (status != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    fputs("wrote ", stdout);
    cli_put_printable(stdout, target, strlen(target));
    printf(" in %.1f s\n", (double)(csn_now_ns() - t0) * 1e-9);
    return CLI_OK;
}

static const cli_option options[] = {
    {.name = "family",
     .kind = CLI_CHOICE,
     .value = "NAME",
     .choices = family_choice,
     .help = "The family of the model (needed)"},
    {.name = "size",
     .kind = CLI_CHOICE,
     .value = "NAME",
     .choices = size_choice,
     .help = "A few megabytes, or the sizes of the real model of that name",
     .by_default = "small"},
    {.name = "seed",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = 1e15,
     .help = "Which one of all"},
    {.name = "layers",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 1024,
     .help = "Another number of layers than the size has"},
    {.name = "quant",
     .short_name = "q",
     .kind = CLI_TEXT,
     .value = "TYPE",
     .help = "OUT.waste: coding of the experts, vq3r, vq2r or vq4p; OUT.cmf: type of the weight "
             "matrices",
     .by_default = "vq3r, q8_row"},
    {0},
};

static const cli_option target_options[] = {
    CLI_TARGET_OPTIONS("OUT", "OUT.waste, a WARP directory, or OUT.cmf (needed)"),
    {0},
};

const cli_command cli_cmd_synth = {
    .name = "synth",
    .summary = "Make a model of random weights, for tests and measurements",
    .positionals = "--family NAME -o OUT",
    .min_args = 0,
    .max_args = 0,
    .groups = {options, cli_thread_options, target_options, cli_common_options},
    .details =
        "The weights are such that every layer keeps the size of what it gets, and the experts "
        "matter to what comes out; a small tokenizer and a chat format are beside them, so that "
        "run and chat work. What the model says is noise, and the same noise for the same seed. "
        "Memory does not grow with layers and experts. OUT appears whole or not at all.",
    .examples = "caisson synth --family kimi_linear -o small.waste\n"
                "caisson synth --family kimi_linear --size kimi-linear --layers 8 -q vq4p -o "
                "eight.waste\n"
                "caisson synth --family qwen3_moe -q q4tp -o experts.cmf",
    .run = run,
};
