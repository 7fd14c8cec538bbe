/* SPDX-License-Identifier: Apache-2.0 */
/* What convert and quantize share: options, the run with its progress bar, the summary. */
#ifndef CLI_CONVERSION_H
#define CLI_CONVERSION_H

#include "cli.h"

extern const cli_option cli_target_options[];     /* --output --force */
extern const cli_option cli_conversion_options[]; /* --tensor --bits --bits-over --outliers
                                                      --encoder --threads */

/* The row of --quant, which each command has with another default. */
#define CLI_QUANT_OPTION(default_)                                                                 \
    {                                                                                              \
        .name = "quant", .short_name = "q", .kind = CLI_CHOICE, .value = "TYPE",                   \
        .choices = cli_quant_choice, .help = "Type of the weight matrices",                        \
        .by_default = (default_)                                                                   \
    }

/* Whether --quant or --tensor is given; if not, that is a usage error, which is told. */
bool cli_says_types(const cli_args *args);

typedef struct cli_text_file { /* a text that was read; ptr NULL = none */
    const char *ptr;
    size_t n;
} cli_text_file;

typedef struct cli_convert_job {
    const char *quant;                /* NULL = q8_row; of a .cmf: as it is */
    const caisson_tensor_rule *rules; /* [n_rules] */
    size_t n_rules;
    uint64_t shard_max_bytes; /* 0 = one file */
    const char *expert_quant; /* OUT.waste; NULL = vq3r */
    uint32_t trunk_bits;      /* OUT.waste; 0 = 4 */
    bool overwrite;
    bool reference_encoder;
    double mean_bits;        /* vbit, vbit_ro; 0 = the default */
    const char *bits_over;   /* vbit, vbit_ro; NULL = tensor */
    double outliers;         /* q1s, q1t; 0 = the default, negative = none */
    cli_text_file calibrate; /* the model reads it before; the source is a .cmf */
    cli_text_file eval;      /* both models are scored on it; the source is a .cmf */
    bool in_place;           /* no target: the source grows */
    bool json;               /* the summary as JSON */
    FILE *summary;           /* where it goes */
} cli_convert_job;

/* The text that an option names, if it is given; the caller frees *ret. */
int cli_read_option_text(const cli_args *args, const char *option, char **ret,
                         cli_text_file *ret_view);
int cli_convert(const cli_args *args, const char *source, const char *target,
                const cli_convert_job *job);
/* The same with what the command line says: the first positional becomes --output. `texts`: those
 * that the command has read, and `summary`. */
int cli_conversion_run(const cli_args *args, const cli_convert_job *texts);

#endif
