/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables that several commands share. */
#include "cli.h"

static const char *compute_choice(unsigned i) {
    static const char *const words[] = {"f32", "int8", NULL};
    return words[i];
}

static const char *kv_choice(unsigned i) {
    static const char *const words[] = {"f16", "f32", "q8_0", NULL};
    return words[i];
}

const char *cli_quant_choice(unsigned i) {
    return caisson_quant_name(i);
}

const cli_option cli_common_options[] = {
    {.name = "help", .short_name = "h", .kind = CLI_FLAG, .help = "Show this text and stop"},
    {0},
};

const cli_option cli_json_options[] = {
    {.name = "json",
     .kind = CLI_FLAG,
     .help = "Write JSON to standard output; progress and warnings stay on standard error"},
    {0},
};

const cli_option cli_file_options[] = {
    {.name = "no-mmap",
     .kind = CLI_FLAG,
     .help = "Read the weights into memory instead of mapping the file"},
    {0},
};

const cli_option cli_verify_options[] = {
    {.name = "verify",
     .kind = CLI_FLAG,
     .help = "Check each tensor against its hashes when it is first used"},
    {0},
};

const cli_option cli_signature_options[] = {
    {.name = "require-signature",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "Only go on if FILE.sig is a signature of the whole file made with KEY: a public key "
             "of 64 hex digits, or the file that holds it"},
    {0},
};

const cli_option cli_text_options[] = {
    {.name = "convert",
     .kind = CLI_FLAG,
     .help = "Given a GGUF file or a Hugging Face directory: convert it to a .cmf beside it "
             "(q8_row) and go on with that"},
    {0},
};

const cli_option cli_thread_options[] = {
    {.name = "threads",
     .short_name = "t",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 1024,
     .help = "Threads",
     .by_default = "all CPUs"},
    {0},
};

const cli_option cli_kv_options[] = {
    {.name = "cache-type-k",
     .short_name = "ctk",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = kv_choice,
     .help = "How keys are kept",
     .by_default = "f16"},
    {.name = "cache-type-v",
     .short_name = "ctv",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = kv_choice,
     .help = "How values are kept",
     .by_default = "f16"},
    {0},
};

const cli_option cli_model_options[] = {
    CLI_CTX_OPTION("what the command needs, or 4096"),
    {.name = "ubatch-size",
     .short_name = "ub",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 65536,
     .help = "Prompt tokens computed at once; 1 = token by token (same result)",
     .by_default = "512"},
    {.name = "compute",
     .kind = CLI_CHOICE,
     .value = "MODE",
     .choices = compute_choice,
     .help = "f32: the reference; int8: integer products, faster",
     .by_default = "int8 for run, chat, bench; f32 for eval, ppl"},
    {.name = "skill",
     .kind = CLI_TEXT,
     .value = "ID",
     .help = "Run with this skill of the file in place of the base's tensors (caisson skill list "
             "FILE); run also knows auto, the one that is nearest to the prompt",
     .by_default = "none"},
    {.name = "task",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "Run under this task mask of the file; none = dense (caisson masks list MODEL)",
     .by_default = "the file's default task"},
    {0},
};

const cli_option cli_sampling_options[] = {
    {.name = "temp",
     .kind = CLI_REAL,
     .value = "T",
     .min = 0,
     .max = 1000,
     .help = "Temperature; 0 = always the likeliest token",
     .by_default = "0.8"},
    {.name = "top-k",
     .kind = CLI_INT,
     .value = "K",
     .min = 0,
     .max = 2147483647,
     .help = "Draw from the K likeliest tokens; 0 = off",
     .by_default = "40"},
    {.name = "top-p",
     .kind = CLI_REAL,
     .value = "P",
     .min = 0,
     .max = 1,
     .help = "Draw from the likeliest tokens that make up P; 1 = off",
     .by_default = "0.95"},
    {.name = "min-p",
     .kind = CLI_REAL,
     .value = "P",
     .min = 0,
     .max = 1,
     .help = "Leave out tokens less likely than P times the likeliest; 0 = off",
     .by_default = "0.05"},
    {.name = "typical",
     .kind = CLI_REAL,
     .value = "P",
     .min = 0,
     .max = 1,
     .help = "Locally typical sampling; 1 = off",
     .by_default = "1"},
    {.name = "repeat-penalty",
     .kind = CLI_REAL,
     .value = "X",
     .min = 0.000001,
     .max = 1000,
     .help = "Divide the logits of recent tokens by X; 1 = off",
     .by_default = "1"},
    {.name = "repeat-last-n",
     .kind = CLI_INT,
     .value = "N",
     .min = -1,
     .max = 16777216,
     .help = "How far the penalties look back; 0 = off, -1 = the whole context",
     .by_default = "64"},
    {.name = "presence-penalty",
     .kind = CLI_REAL,
     .value = "X",
     .min = -1000,
     .max = 1000,
     .help = "Subtract X from the logits of recent tokens; 0 = off",
     .by_default = "0"},
    {.name = "frequency-penalty",
     .kind = CLI_REAL,
     .value = "X",
     .min = -1000,
     .max = 1000,
     .help = "Subtract X for each time a recent token came; 0 = off",
     .by_default = "0"},
    {.name = "seed",
     .short_name = "s",
     .kind = CLI_INT,
     .value = "N",
     .min = -1,
     .max = 9007199254740992,
     .help = "Seed of the draw: same seed, same answer; -1 = one from the clock",
     .by_default = "from the clock, shown at the end"},
    {0},
};
