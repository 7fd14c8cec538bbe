/* SPDX-License-Identifier: Apache-2.0 */
/* header: the JSON header of a file. */
#include "base/json.h"
#include "commands.h"
#include "open.h"

enum { MAX_JSON = 1 << 30 };

/* One member a line. */
static int print_pretty(const cli_args *args, csn_str text) {
    caisson_error err;
    csn_json *doc;
    if (csn_json_parse(text, 0, &doc, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    w.pretty = true;
    csn_jw_value(&w, csn_json_root(doc));
    int rc = cli_put_json(args, &w, &out, &err);
    csn_json_free(doc);
    return rc;
}

static int run(const cli_args *args) {
    caisson_file *file;
    int rc = cli_open_file(args, args->positional[0], &file);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_error err;
    caisson_text text = {0};
    if (caisson_file_section(file, "header", &text, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else if (cli_has(args, "json")) {
        fwrite(text.ptr, 1, text.n, stdout);
        putchar('\n');
    } else {
        rc = print_pretty(args, csn_str_make(text.ptr, text.n));
    }
    caisson_text_free(&text);
    caisson_file_close(file);
    return rc;
}

const cli_command cli_cmd_header = {
    .name = "header",
    .summary = "Print the JSON header of a .cmf file",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_file_options, cli_json_options, cli_common_options},
    .details = "One member a line; with --json the bytes as they lie in the file. Of a sharded "
               "model, the header of the first shard. caisson info says what it means.",
    .examples = "caisson header model.cmf\ncaisson header model.cmf --json | jq .provenance",
    .run = run,
};
