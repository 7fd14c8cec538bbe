/* SPDX-License-Identifier: Apache-2.0 */
/* masks: the task masks of a file: listed, shown layer by layer, made, measured, removed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "score.h"
#include "term.h"

enum { MAX_INPUT = 1 << 28 };

static void print_line(const csn_jval *mask, csn_str default_task) {
    const csn_jval *quality = csn_jval_get(mask, "quality");
    csn_str name = csn_jval_text_of(mask, "name");
    putchar(csn_str_eq(name, default_task) ? '*' : ' ');
    putchar(' ');
    cli_put(name);
    printf("  %" PRIu64 "  ", csn_jval_number_of(mask, "task_id"));
    cli_put(csn_jval_text_of(mask, "priority"));
    printf("  sparsity %.1f %%  quality ", csn_jval_real_of(mask, "sparsity") * 100);
    double value = 0;
    if (csn_jval_f64(csn_jval_get(quality, "value"), &value)) {
        cli_put(csn_jval_text_of(quality, "metric"));
        printf(" %.4g", value);
    } else {
        fputs("not measured", stdout);
    }
    csn_str description = csn_jval_text_of(mask, "description");
    if (description.len > 0) {
        fputs("  ", stdout);
        cli_put(description);
    }
    putchar('\n');
}

static void print_layers(const csn_jval *mask) {
    puts("layer  on   heads  neurons (one a visit)  experts");
    for (csn_jiter it = csn_jval_iter(csn_jval_get(mask, "layers")); csn_jiter_next(&it);) {
        bool on = false;
        uint64_t experts;
        (void)csn_jval_bool(csn_jval_get(it.value, "on"), &on);
        printf("%5" PRIu64 "  %-3s  %5" PRIu64 " ", csn_jval_number_of(it.value, "layer"),
               on ? "yes" : "no", csn_jval_number_of(it.value, "heads"));
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

static int list(const cli_args *args, const csn_jval *all) {
    if (cli_has(args, "json")) {
        return cli_put_jval(args, all);
    }
    const csn_jval *masks = csn_jval_get(all, "masks");
    if (csn_jval_len(masks) == 0) {
        puts("no masks");
        return CLI_OK;
    }
    for (csn_jiter it = csn_jval_iter(masks); csn_jiter_next(&it);) {
        print_line(it.value, csn_jval_text_of(all, "default_task"));
    }
    return CLI_OK;
}

static int show(const cli_args *args, const csn_jval *all, const char *name) {
    for (csn_jiter it = csn_jval_iter(csn_jval_get(all, "masks")); csn_jiter_next(&it);) {
        if (!csn_str_is(csn_jval_text_of(it.value, "name"), name)) {
            continue;
        }
        if (cli_has(args, "json")) {
            return cli_put_jval(args, it.value);
        }
        print_line(it.value, csn_jval_text_of(all, "default_task"));
        print_layers(it.value);
        return CLI_OK;
    }
    return cli_fail_text(args, "the file has no mask \"%s\": caisson masks list shows which it has",
                         name);
}

static int list_or_show(const cli_args *args, const csn_jval *root, const char *name) {
    const csn_jval *all = csn_jval_get(root, "masks");
    return name == NULL ? list(args, all) : show(args, all, name);
}

static int describe(const cli_args *args, const char *path, const char *name) {
    return cli_describe(args, path, list_or_show, name);
}

/* The file of --text. */
static int read_text(const cli_args *args, char **ret, size_t *ret_n) {
    const char *path = cli_text(args, "text", NULL);
    if (path == NULL) {
        return cli_usage_error(args->command, "--text FILE is missing: the text to work with");
    }
    return cli_read_text(args, path, MAX_INPUT, ret, ret_n);
}

static int make(const cli_args *args, const char *path, const char *name) {
    char *text = NULL;
    size_t n = 0;
    if (strcmp(name, "none") == 0) {
        return cli_fail_text(args, "none is no name for a mask: --task none means no mask");
    }
    int rc = read_text(args, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    cli_progress progress;
    caisson_error err;
    float sparsity;
    caisson_mask_options o = {
        .struct_size = sizeof(o),
        .text = text,
        .text_n = n,
        .sparsity = (float)cli_real(args, "sparsity", 0.5),
        .head_sparsity = (float)cli_real(args, "head-sparsity", 0),
        .scattered = cli_has(args, "scattered"),
        .description = cli_text(args, "description", NULL),
        .replace = cli_has(args, "force"),
        .make_default = cli_has(args, "default"),
        .n_threads = (uint32_t)cli_int(args, "threads", 0),
        .on_progress = cli_on_progress,
        .ctx = &progress,
    };
    cli_progress_init(&progress, "tokens", false);
    caisson_status status = caisson_mask_make(path, name, &o, &sparsity, &err);
    cli_progress_end(&progress);
    free(text);
    if (status != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    if (cli_has(args, "json")) {
        csn_buf out = CSN_BUF_INIT(4096);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_object(&w);
        csn_jw_put_str(&w, "name", csn_str_from(name));
        csn_jw_put_f32(&w, "sparsity", sparsity);
        csn_jw_object_end(&w);
        return cli_put_json(args, &w, &out, &err);
    }
    cli_put(csn_str_from(name));
    printf(": made, %.1f %% of neurons and experts are off", (double)sparsity * 100);
    if (o.head_sparsity > 0) {
        printf(", and up to %.1f %% of each layer's heads", (double)o.head_sparsity * 100);
    }
    puts(". What it costs is not known before caisson masks measure.");
    return CLI_OK;
}

static int print_measured(const cli_args *args, const char *name, const caisson_mask_quality *q) {
    if (!cli_has(args, "json")) {
        cli_put(csn_str_from(name));
        printf(": perplexity %.4f, without the mask %.4f (%" PRIu64 " tokens); written down\n",
               q->value, q->baseline_dense, q->n_samples);
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(4096);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "metric", csn_str_from(q->metric));
    csn_jw_put_f64(&w, "value", q->value);
    csn_jw_put_f64(&w, "baseline_dense", q->baseline_dense);
    csn_jw_put_u64(&w, "n_samples", q->n_samples);
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

static int measure(const cli_args *args, const char *path, const char *name) {
    char *text = NULL;
    size_t n = 0;
    int rc = read_text(args, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_score dense = {0};
    caisson_score masked = {0};
    bool is_masked;
    caisson_error err;
    caisson_model *model = NULL;
    rc = cli_open_model(args, path, CLI_PART_RAW, &model);
    if (rc == CLI_OK) {
        rc = cli_score_variant(args, model, name, NULL, text, n, &masked, &is_masked);
    }
    if (rc == CLI_OK) {
        rc = cli_score_variant(args, model, "", NULL, text, n, &dense, &is_masked);
    }
    caisson_model_close(model);
    if (rc == CLI_OK) {
        caisson_mask_quality q = {.struct_size = sizeof(q),
                                  .metric = "ppl",
                                  .value = exp(masked.nll / (double)masked.n),
                                  .baseline_dense = exp(dense.nll / (double)dense.n),
                                  .n_samples = masked.n,
                                  .dataset = text,
                                  .dataset_n = n};
        rc = caisson_mask_set_quality(path, name, &q, &err) == CAISSON_OK
                 ? print_measured(args, name, &q)
                 : cli_fail(args, &err);
    }
    free(text);
    return rc;
}

static int remove_mask(const cli_args *args, const char *path, const char *name) {
    caisson_error err;
    return caisson_mask_remove(path, name, &err) == CAISSON_OK
               ? cli_tell_done(args, "removed", "removed", name,
                               "; its bytes stay until caisson compact")
               : cli_fail(args, &err);
}

static int run(const cli_args *args) {
    static const struct {
        const char *name;
        int (*run)(const cli_args *args, const char *path, const char *name);
        bool has_name;
    } actions[] = {{"list", describe, false},
                   {"show", describe, true},
                   {"make", make, true},
                   {"measure", measure, true},
                   {"remove", remove_mask, true}};
    const char *const *words = args->positional;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(words[0], actions[i].name) == 0 &&
            args->n_positional == (actions[i].has_name ? 3u : 2u)) {
            return actions[i].run(args, words[1], actions[i].has_name ? words[2] : NULL);
        }
    }
    return cli_usage_error(args->command,
                           "what to do: list FILE, or show, make, measure, remove FILE NAME");
}

static const cli_option options[] = {
    {.name = "text",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "make: what the task's texts look like; measure: other texts of that kind "
             "(- is standard input)"},
    {.name = "sparsity",
     .kind = CLI_REAL,
     .value = "X",
     .min = 0,
     .max = 0.999,
     .help = "make: the share of each layer's neurons (of a mixture's experts) to switch off",
     .by_default = "0.5"},
    {.name = "head-sparsity",
     .kind = CLI_REAL,
     .value = "X",
     .min = 0,
     .max = 0.999,
     .help = "make: the share of each layer's query heads to switch off",
     .by_default = "0"},
    {.name = "scattered",
     .kind = CLI_FLAG,
     .help = "make: choose neurons one by one, not in aligned runs of 256: better at the same "
             "sparsity, and slower"},
    {.name = "description", .kind = CLI_TEXT, .value = "TEXT", .help = "make: a line about it"},
    {.name = "default", .kind = CLI_FLAG, .help = "make: runs without --task use this mask"},
    {.name = "force", .kind = CLI_FLAG, .help = "make: replace a mask of this name"},
    {.name = "ctx",
     .short_name = "c",
     .kind = CLI_INT,
     .value = "N",
     .min = 2,
     .max = 16777216,
     .help = "measure: tokens of a window",
     .by_default = "512"},
    {0},
};

const cli_command cli_cmd_masks = {
    .name = "masks",
    .summary = "Show, make and measure the task masks of a .cmf file",
    .positionals = "list|show|make|measure|remove FILE [NAME]",
    .min_args = 2,
    .max_args = 3,
    .groups = {options, cli_thread_options, cli_file_options, cli_json_options, cli_common_options},
    .details =
        "A task mask switches layers, heads, neurons and experts off; the commands that run a "
        "model take --task NAME (none = dense). The star marks the file's default task. show "
        "prints what is on in each layer. make runs a text through the model and switches off what "
        "adds least to its layers' output; measure compares the perplexity of a held-out text with "
        "and "
        "without the mask and writes both into the file, with the text's SHA-256; a mask that "
        "nobody measured warns when it is used. Both, and remove, grow the file behind its end: "
        "caisson compact drops what is dead.",
    .examples = "caisson masks list model.cmf\n"
                "caisson masks make model.cmf coding --text code.txt --sparsity 0.5\n"
                "caisson masks measure model.cmf coding --text other-code.txt\n"
                "caisson run model.cmf --task coding \"Sort a list in C.\"",
    .run = run,
};
