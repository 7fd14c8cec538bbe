/* SPDX-License-Identifier: Apache-2.0 */
/* render: what the chat template makes of messages. */
#include <stdlib.h>

#include "commands.h"
#include "open.h"
#include "term.h"

enum { MAX_INPUT = 64 << 20 };

static int print_ids(const cli_args *args, const caisson_model *model, const caisson_chat *chat) {
    caisson_error err;
    caisson_ids ids = {0};
    if (caisson_model_encode_chat(model, chat, &ids, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    for (size_t i = 0; i < ids.n; i++) {
        printf("%s%d", i > 0 ? "," : "", ids.id[i]);
    }
    fputc('\n', stdout);
    caisson_ids_free(&ids);
    return CLI_OK;
}

static int render(const cli_args *args, const caisson_model *model, const char *json, size_t n) {
    caisson_chat chat = {.struct_size = sizeof(chat), .json = json, .json_n = n};
    if (cli_has(args, "ids")) {
        return print_ids(args, model, &chat);
    }
    caisson_error err;
    caisson_text text = {0};
    if (caisson_model_render(model, &chat, &text, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    int rc = cli_put_text(args, &text);
    caisson_text_free(&text);
    return rc;
}

static int run(const cli_args *args) {
    char *json;
    size_t n;
    int rc = cli_read_text(args, args->positional[1], MAX_INPUT, &json, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0], CLI_PART_TEXT, &model);
    if (rc == CLI_OK) {
        rc = render(args, model, json, n);
        caisson_model_close(model);
    }
    free(json);
    return rc;
}

static const cli_option options[] = {
    {.name = "ids",
     .kind = CLI_FLAG,
     .help = "Print the token ids of the rendering instead of its text"},
    {0},
};

const cli_command cli_cmd_render = {
    .name = "render",
    .summary = "Print what the chat template makes of a list of messages",
    .positionals = "MODEL FILE.json",
    .min_args = 2,
    .max_args = 2,
    .groups = {options, cli_text_options, cli_json_options, cli_common_options},
    .details =
        "FILE.json (- is standard input) holds a list of messages, or an object whose members "
        "are the template's variables: messages, tools, add_generation_prompt (default "
        "true), now (seconds since 1970, or \"YYYY-MM-DD HH:MM:SS\"), and whatever else the "
        "template knows. The text is written without a newline behind it.",
    .examples = "echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | caisson render model.cmf -",
    .run = run,
    .ends_at_once = true,
};
