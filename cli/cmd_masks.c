/* SPDX-License-Identifier: Apache-2.0 */
/* masks: the task masks of a file, listed or shown layer by layer. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum { MAX_JSON = 256 << 20 };

static void put(csn_str s) {
    cli_put_printable(stdout, s.ptr, s.len);
}

static csn_str text_of(const csn_jval *object, const char *key) {
    csn_str s = {"", 0};
    (void)csn_jval_str(csn_jval_get(object, key), &s);
    return s;
}

static uint64_t number_of(const csn_jval *object, const char *key) {
    uint64_t v = 0;
    (void)csn_jval_u64(csn_jval_get(object, key), &v);
    return v;
}

static void print_line(const csn_jval *mask, csn_str default_task) {
    double sparsity = 0;
    (void)csn_jval_f64(csn_jval_get(mask, "sparsity"), &sparsity);
    const csn_jval *quality = csn_jval_get(mask, "quality");
    csn_str name = text_of(mask, "name");
    putchar(csn_str_eq(name, default_task) ? '*' : ' ');
    putchar(' ');
    put(name);
    printf("  %" PRIu64 "  ", number_of(mask, "task_id"));
    put(text_of(mask, "priority"));
    printf("  sparsity %.1f %%  quality ", sparsity * 100);
    double value = 0;
    if (csn_jval_f64(csn_jval_get(quality, "value"), &value)) {
        put(text_of(quality, "metric"));
        printf(" %.4g", value);
    } else {
        fputs("not measured", stdout);
    }
    csn_str description = text_of(mask, "description");
    if (description.len > 0) {
        fputs("  ", stdout);
        put(description);
    }
    putchar('\n');
}

static void print_layers(const csn_jval *mask) {
    puts("layer  on   heads  neurons (one a visit)  experts");
    for (csn_jiter it = csn_jval_iter(csn_jval_get(mask, "layers")); csn_jiter_next(&it);) {
        bool on = false;
        uint64_t experts;
        (void)csn_jval_bool(csn_jval_get(it.value, "on"), &on);
        printf("%5" PRIu64 "  %-3s  %5" PRIu64 " ", number_of(it.value, "layer"), on ? "yes" : "no",
               number_of(it.value, "heads"));
        csn_jiter visit = csn_jval_iter(csn_jval_get(it.value, "neurons"));
        while (csn_jiter_next(&visit)) {
            uint64_t n = 0;
            (void)csn_jval_u64(visit.value, &n);
            printf(" %" PRIu64, n);
        }
        if (csn_jval_u64(csn_jval_get(it.value, "experts"), &experts)) {
            printf("  %" PRIu64, experts);
        }
        putchar('\n');
    }
}

static int print_json(const cli_args *args, const csn_jval *value) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_value(&w, value);
    return cli_put_json(args, &w, &out, &err);
}

static int list(const cli_args *args, const csn_jval *all) {
    if (cli_has(args, "json")) {
        return print_json(args, all);
    }
    const csn_jval *masks = csn_jval_get(all, "masks");
    if (csn_jval_len(masks) == 0) {
        puts("no masks");
        return CLI_OK;
    }
    for (csn_jiter it = csn_jval_iter(masks); csn_jiter_next(&it);) {
        print_line(it.value, text_of(all, "default_task"));
    }
    return CLI_OK;
}

static int show(const cli_args *args, const csn_jval *all, const char *name) {
    for (csn_jiter it = csn_jval_iter(csn_jval_get(all, "masks")); csn_jiter_next(&it);) {
        if (!csn_str_is(text_of(it.value, "name"), name)) {
            continue;
        }
        if (cli_has(args, "json")) {
            return print_json(args, it.value);
        }
        print_line(it.value, text_of(all, "default_task"));
        print_layers(it.value);
        return CLI_OK;
    }
    return cli_fail_text(args, "the file has no mask \"%s\": caisson masks list shows which it has",
                         name);
}

static int act(const cli_args *args, const csn_jval *all) {
    const char *action = args->positional[0];
    if (strcmp(action, "list") == 0 && args->n_positional == 2) {
        return list(args, all);
    }
    if (strcmp(action, "show") == 0 && args->n_positional == 3) {
        return show(args, all, args->positional[2]);
    }
    (void)cli_fail_text(args, "what to do: list FILE, or show FILE NAME");
    return CLI_USAGE;
}

static int run(const cli_args *args) {
    caisson_file *file;
    int rc = cli_open_file(args, args->positional[1], &file);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_error err;
    caisson_text text = {0};
    csn_json *doc = NULL;
    if (caisson_file_describe(file, &text, &err) != CAISSON_OK ||
        csn_json_parse(csn_str_make(text.ptr, text.n), 0, &doc, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else {
        rc = act(args, csn_jval_get(csn_json_root(doc), "masks"));
    }
    csn_json_free(doc);
    caisson_text_free(&text);
    caisson_file_close(file);
    return rc;
}

const cli_command cli_cmd_masks = {
    .name = "masks",
    .summary = "Show the task masks of a .cmf file",
    .positionals = "list|show FILE [NAME]",
    .min_args = 2,
    .max_args = 3,
    .groups = {cli_file_options, cli_json_options, cli_common_options},
    .details =
        "A task mask switches layers, heads, neurons and experts off; the commands that run a "
        "model take --task NAME (none = dense). The star marks the file's default task. show "
        "prints what is on in each layer.",
    .examples = "caisson masks list model.cmf\ncaisson masks show model.cmf coding --json",
    .run = run,
};
