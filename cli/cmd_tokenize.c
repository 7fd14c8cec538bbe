/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize: standard input to token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum { MAX_INPUT = 1 << 28, MAX_JSON = 1 << 30 };

static csn_str token_text(const caisson_model *model, int32_t id) {
    const char *ptr = "";
    size_t n = 0;
    (void)caisson_model_token(model, id, &ptr, &n);
    return csn_str_make(ptr, n);
}

static int print_json(const cli_args *args, const caisson_model *model, const caisson_ids *ids) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("ids"));
    csn_jw_array(&w);
    for (size_t i = 0; i < ids->n; i++) {
        csn_jw_i64(&w, ids->id[i]);
    }
    csn_jw_array_end(&w);
    csn_jw_key(&w, CSN_STR("tokens"));
    csn_jw_array(&w);
    for (size_t i = 0; i < ids->n; i++) {
        csn_jw_str(&w, token_text(model, ids->id[i]));
    }
    csn_jw_array_end(&w);
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

static int tokenize(const cli_args *args, const caisson_model *model) {
    char *text;
    size_t n;
    int rc = cli_read_text(args, cli_text(args, "file", "-"), MAX_INPUT, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_error err;
    caisson_ids ids = {0};
    unsigned flags = cli_has(args, "special")
                         ? CAISSON_TOKENIZE_ADD_SPECIAL | CAISSON_TOKENIZE_PARSE_SPECIAL
                         : 0;
    if (caisson_model_tokenize(model, text, n, flags, &ids, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else if (cli_has(args, "json")) {
        rc = print_json(args, model, &ids);
    } else {
        for (size_t i = 0; i < ids.n; i++) {
            printf("%s%d", i > 0 ? "," : "", ids.id[i]);
        }
        fputc('\n', stdout);
    }
    caisson_ids_free(&ids);
    free(text);
    return rc;
}

static int run(const cli_args *args) {
    caisson_model *model;
    int rc = cli_open_model(args, args->positional[0], CLI_PART_TOKENS, &model);
    if (rc == CLI_OK) {
        rc = tokenize(args, model);
        caisson_model_close(model);
    }
    return rc;
}

static const cli_option options[] = {
    {.name = "special",
     .kind = CLI_FLAG,
     .help = "Add the special tokens that the tokenizer adds by itself (BOS), and let text that "
             "spells a special token become that token"},
    {.name = "file",
     .short_name = "f",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "Read this file instead of standard input"},
    {0},
};

const cli_command cli_cmd_tokenize = {
    .name = "tokenize",
    .summary = "Turn text from standard input into token ids",
    .positionals = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_text_options, cli_json_options, cli_common_options},
    .details = "Without --special everything is plain text. The input is taken as it is, its last "
               "newline included.\nJSON: {\"ids\":[...], \"tokens\":[...]}",
    .examples = "printf 'Hello world' | caisson tokenize model.cmf --json",
    .run = run,
    .ends_at_once = true,
};
