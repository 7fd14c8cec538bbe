/* SPDX-License-Identifier: Apache-2.0 */
/* The command table and its options: everything that help, completions, man pages and the parser
 * know comes from the structs below. A command is one file cmd_<name>.c and one row in commands.c.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>

#include "caisson.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,        /* something failed, or a file is not valid */
    CLI_USAGE = 2,         /* the command line makes no sense */
    CLI_INTERRUPTED = 130, /* Ctrl-C */
};

typedef enum cli_kind {
    CLI_FLAG,   /* no value */
    CLI_INT,    /* a whole number within [min, max] */
    CLI_REAL,   /* a finite number within [min, max] */
    CLI_TEXT,   /* anything */
    CLI_PATH,   /* a file or directory (completion) */
    CLI_CHOICE, /* one word of choices() */
    CLI_LIST    /* text, may be given several times */
} cli_kind;

typedef struct cli_option {
    const char *name;       /* "threads": given as --threads; NULL ends a table */
    const char *short_name; /* "t", "ub": given as -t, -ub; NULL = none */
    cli_kind kind;
    const char *value;                  /* what help calls the value: "N" */
    const char *help;                   /* one sentence, no full stop */
    const char *by_default;             /* shown in help; NULL = nothing to show */
    double min, max;                    /* CLI_INT, CLI_REAL */
    const char *(*choices)(unsigned i); /* CLI_CHOICE: the i-th word, NULL behind the last */
} cli_option;

typedef struct cli_value {
    bool given;
    int64_t integer;
    double real;
    const char *text;  /* the last one given */
    const char **list; /* CLI_LIST: [n_list] */
    size_t n_list;
} cli_value;

#define CLI_SIGNING_KEY "caisson-signing.key" /* the secret key, unless another is named */

enum { CLI_MAX_GROUPS = 16, CLI_MAX_OPTIONS = 80 };

struct cli_args;

typedef struct cli_command {
    const char *name;
    const char *summary;                      /* one line, no full stop */
    const char *positionals;                  /* as shown behind the name: "MODEL [PROMPT]" */
    unsigned min_args, max_args;              /* of positionals */
    const cli_option *groups[CLI_MAX_GROUPS]; /* option tables, NULL-terminated */
    const char *details;  /* paragraphs for --help and the man page; NULL = none */
    const char *examples; /* command lines, one a line; NULL = none */
    int (*run)(const struct cli_args *args);
    bool ends_at_once; /* the first Ctrl-C ends it: nothing has to be put away */
} cli_command;

typedef struct cli_args {
    const cli_command *command;
    const cli_option *options[CLI_MAX_OPTIONS]; /* those of all groups, in order */
    cli_value values[CLI_MAX_OPTIONS];          /* beside them */
    size_t n_options;
    const char **positional; /* [n_positional] */
    size_t n_positional;
    bool wants_help;
} cli_args;

extern const cli_command *const cli_commands[]; /* NULL-terminated, in the order of the help text */
const cli_command *cli_find_command(const char *name); /* NULL if there is none */

/* Parses argv[0..argc) (what stands behind the command's name). 0, or CLI_USAGE with a message on
 * standard error. cli_args_done frees what it made, also after a failure. */
int cli_parse(const cli_command *command, int argc, char **argv, cli_args *ret);
void cli_args_done(cli_args *args);

/* A typing error: the name that is nearest to the word, if it is near enough to be meant. */
typedef struct cli_guess {
    const char *word; /* [n] */
    size_t n;
    const char *name; /* NULL: none was near */
    unsigned distance;
} cli_guess;
void cli_guess_try(cli_guess *g, const char *name);

/* Options of the command, by name; one that its tables lack counts as not given. */
const cli_value *cli_get(const cli_args *args, const char *name);
bool cli_knows(const cli_args *args, const char *name); /* the command's tables have it */
bool cli_has(const cli_args *args, const char *name);   /* given on the command line */
int64_t cli_int(const cli_args *args, const char *name, int64_t otherwise);
double cli_real(const cli_args *args, const char *name, double otherwise);
const char *cli_text(const cli_args *args, const char *name, const char *otherwise);
/* --ctx as the library takes it. */
uint32_t cli_ctx(const cli_args *args, uint32_t otherwise);

/* Prints "caisson CMD: message" and how to get help; returns CLI_USAGE. */
int cli_usage_error(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Text from the tables; out is a stream. */
void cli_print_help(const cli_command *command, FILE *out);
void cli_print_overview(FILE *out);
void cli_print_man(const cli_command *command, FILE *out); /* NULL: the page of caisson itself */
bool cli_print_completion(const char *shell, FILE *out);   /* false: no such shell */

/* Option tables that several commands share. */
extern const cli_option cli_common_options[];    /* --help */
extern const cli_option cli_json_options[];      /* --json */
extern const cli_option cli_verify_options[];    /* --verify */
extern const cli_option cli_signature_options[]; /* --require-signature */
extern const cli_option cli_thread_options[];    /* --threads */
extern const cli_option cli_kv_options[];        /* --cache-type-k/-v */
extern const cli_option cli_model_options[];     /* -c -ub --compute --skill --task */
extern const cli_option cli_file_options[];      /* --no-mmap */
extern const cli_option cli_text_options[];      /* --convert */
extern const cli_option cli_sampling_options[];  /* --temp ... --seed */
/* Of a command that runs a model. */
#define CLI_MODEL_GROUPS                                                                           \
    cli_thread_options, cli_model_options, cli_kv_options, cli_file_options, cli_text_options
/* Rows that commands have with another text: where the target goes and --force, and --ctx. */
#define CLI_TARGET_OPTIONS(value_, help_)                                                          \
    {.name = "output", .short_name = "o", .kind = CLI_PATH, .value = (value_), .help = (help_)}, { \
        .name = "force", .short_name = "f", .kind = CLI_FLAG, .help = "Replace an existing target" \
    }
#define CLI_CTX_OPTION(default_)                                                                   \
    {                                                                                              \
        .name = "ctx", .short_name = "c", .kind = CLI_INT, .value = "N", .max = 1048576,           \
        .by_default = (default_),                                                                  \
        .help = "Tokens that fit into the context; 0 = as many as the model was made for"          \
    }
const char *cli_quant_choice(unsigned i); /* the types that convert writes */

#endif
