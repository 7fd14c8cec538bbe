/* SPDX-License-Identifier: Apache-2.0 */
/* detokenize: token ids to text. */
#include <stdlib.h>

#include "commands.h"
#include "open.h"
#include "term.h"

static int detokenize(const cli_args *args, const caisson_model *model, const int32_t *ids,
                      size_t n) {
    caisson_error err;
    caisson_text text = {0};
    if (caisson_model_detokenize(model, ids, n, cli_has(args, "skip-special"), &text, &err) !=
        CAISSON_OK) {
        return cli_fail(args, &err);
    }
    int rc = cli_put_text(args, &text);
    caisson_text_free(&text);
    return rc;
}

static int run(const cli_args *args) {
    int32_t *ids;
    size_t n;
    int rc = cli_read_ids(args, args->n_positional > 1 ? args->positional[1] : "-", &ids, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0], CLI_PART_TOKENS, &model);
    if (rc == CLI_OK) {
        rc = detokenize(args, model, ids, n);
        caisson_model_close(model);
    }
    free(ids);
    return rc;
}

static const cli_option options[] = {
    {.name = "skip-special", .kind = CLI_FLAG, .help = "Special tokens give no text"},
    {0},
};

const cli_command cli_cmd_detokenize = {
    .name = "detokenize",
    .summary = "Turn token ids into text",
    .positionals = "MODEL [IDS]",
    .min_args = 1,
    .max_args = 2,
    .groups = {options, cli_text_options, cli_json_options, cli_common_options},
    .details =
        "IDS are numbers with commas between; without them, or for -, they are read from standard "
        "input, as caisson tokenize writes them. The text is written as it is, without a newline "
        "behind it; with --json as {\"text\": ...}.",
    .examples = "caisson detokenize model.cmf 1,2,3\n"
                "caisson tokenize model.cmf < page.txt | caisson detokenize model.cmf",
    .run = run,
    .ends_at_once = true,
};
