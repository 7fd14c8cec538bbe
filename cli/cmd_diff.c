/* SPDX-License-Identifier: Apache-2.0 */
/* diff: what two models differ in. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum {
    DIFFERENT = 1,
    TROUBLE = 2, /* as diff(1) and cmp(1): whatever kept the files from being compared */
    N_SHOWN = 20
};

/* A value in one line, cut where it gets long. */
static void put_value(const csn_jval *v) {
    enum { MOST = 60 };
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 28);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_value(&w, v);
    if (csn_jw_end(&w) == CAISSON_OK) {
        cli_put(csn_str_make(out.ptr, out.len < MOST ? out.len : MOST));
        fputs(out.len > MOST ? "..." : "", stdout);
    }
    csn_buf_free(&out);
}

static void print_header(const csn_jval *list) {
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        fputs("header   ", stdout);
        cli_put(csn_jval_text_of(it.value, "key"));
        fputs(": ", stdout);
        put_value(csn_jval_get(it.value, "a"));
        fputs(" -> ", stdout);
        put_value(csn_jval_get(it.value, "b"));
        putchar('\n');
    }
}

static void print_sections(const csn_jval *list) {
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        fputs("section  ", stdout);
        cli_put(csn_jval_text_of(it.value, "name"));
        printf(": %" PRIu64 " bytes -> %" PRIu64 " bytes\n",
               csn_jval_number_of(it.value, "bytes_a"), csn_jval_number_of(it.value, "bytes_b"));
    }
}

static void print_side(const csn_jval *side) {
    cli_put(csn_jval_text_of(side, "dtype"));
    putchar(' ');
    for (csn_jiter it = csn_jval_iter(csn_jval_get(side, "shape")); csn_jiter_next(&it);) {
        uint64_t n = 0;
        (void)csn_jval_u64(it.value, &n);
        printf("%s%" PRIu64, it.index > 0 ? "x" : "", n);
    }
}

static void print_changed(const csn_jval *t) {
    fputs("changed  ", stdout);
    cli_put(csn_jval_text_of(t, "name"));
    fputs(": ", stdout);
    print_side(csn_jval_get(t, "a"));
    fputs(" -> ", stdout);
    print_side(csn_jval_get(t, "b"));
    const csn_jval *v = csn_jval_get(t, "values");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        printf("; %" PRIu64 " values differ, at most by %.3g (relative %.3g), error %.3g",
               csn_jval_number_of(v, "differ"), csn_jval_real_of(v, "max_abs"),
               csn_jval_real_of(v, "max_rel"), csn_jval_real_of(v, "relative_error"));
    }
    putchar('\n');
}

static void print_only(const csn_jval *list, const char *label) {
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        csn_str name = {0};
        if (it.index == N_SHOWN) {
            printf("%s  ... and %zu more (--json lists all)\n", label,
                   csn_jval_len(list) - N_SHOWN);
            return;
        }
        (void)csn_jval_str(it.value, &name);
        printf("%s  ", label);
        cli_put(name);
        putchar('\n');
    }
}

static void print_human(const csn_jval *root) {
    const csn_jval *t = csn_jval_get(root, "tensors");
    const csn_jval *changed = csn_jval_get(t, "changed");
    char same[32], shared[32];
    print_header(csn_jval_get(root, "header"));
    print_sections(csn_jval_get(root, "sections"));
    print_only(csn_jval_get(t, "only_a"), "only A ");
    print_only(csn_jval_get(t, "only_b"), "only B ");
    for (csn_jiter it = csn_jval_iter(changed); csn_jiter_next(&it);) {
        if (it.index == N_SHOWN) {
            printf("changed  ... and %zu more (--json lists all)\n",
                   csn_jval_len(changed) - N_SHOWN);
            break;
        }
        print_changed(it.value);
    }
    printf("tensors  %" PRIu64
           " the same (%s), %zu changed, %zu only in A, %zu only in B; B shares "
           "%s with A\n",
           csn_jval_number_of(t, "same"),
           cli_bytes_text(csn_jval_number_of(t, "same_bytes"), same, sizeof(same)),
           csn_jval_len(changed), csn_jval_len(csn_jval_get(t, "only_a")),
           csn_jval_len(csn_jval_get(t, "only_b")),
           cli_bytes_text(csn_jval_number_of(t, "shared_bytes"), shared, sizeof(shared)));
}

static int compare(const cli_args *args, caisson_file *a, caisson_file *b) {
    caisson_error err;
    caisson_text text = {0};
    cli_progress progress;
    bool is_equal = false;
    csn_json *doc = NULL;
    caisson_diff_options o = {.struct_size = sizeof(o),
                              .no_values = cli_has(args, "no-values"),
                              .on_progress = cli_on_progress,
                              .ctx = &progress};
    cli_progress_init(&progress, "", false);
    caisson_status status = caisson_file_diff(a, b, &o, &is_equal, &text, &err);
    cli_progress_end(&progress);
    if (status == CAISSON_OK && cli_has(args, "json")) {
        fwrite(text.ptr, 1, text.n, stdout);
        putchar('\n');
    } else if (status == CAISSON_OK) {
        status = csn_json_parse(csn_str_make(text.ptr, text.n), 0, &doc, &err);
        if (status == CAISSON_OK) {
            print_human(csn_json_root(doc));
        }
    }
    csn_json_free(doc);
    caisson_text_free(&text);
    if (status != CAISSON_OK) {
        int rc = cli_fail(args, &err);
        return rc == CLI_INTERRUPTED ? rc : TROUBLE;
    }
    return is_equal ? CLI_OK : DIFFERENT;
}

static int run(const cli_args *args) {
    caisson_file *a, *b;
    if (cli_open_file(args, args->positional[0], &a) != CLI_OK) {
        return TROUBLE;
    }
    if (cli_open_file(args, args->positional[1], &b) != CLI_OK) {
        caisson_file_close(a);
        return TROUBLE;
    }
    int rc = compare(args, a, b);
    caisson_file_close(a);
    caisson_file_close(b);
    return rc;
}

static const cli_option options[] = {
    {.name = "no-values",
     .kind = CLI_FLAG,
     .help = "Compare tensors by hash alone: reads no payload"},
    {0},
};

const cli_command cli_cmd_diff = {
    .name = "diff",
    .summary = "Compare two models: headers, sections, tensors, values",
    .positionals = "A B",
    .min_args = 2,
    .max_args = 2,
    .groups = {options, cli_file_options, cli_json_options, cli_common_options},
    .details =
        "Tensors are compared by name, type, shape, hash and digest; where those differ and both "
        "can be decoded, their values are: how many differ, by how much at most, by how much at "
        "most relative to the larger of the two, and the norm of the difference over that of A. "
        "Where the bytes lie is no difference: order, shards, dead bytes. Exit code, as of "
        "diff(1): 0 the models are equal, 1 they differ, 2 trouble.\n"
        "JSON: {\"header\":[{\"key\":K, \"a\":V, \"b\":V}], \"sections\":[{\"name\":S, "
        "\"bytes_a\":N, \"bytes_b\":N}], \"tensors\":{\"same\":N, \"same_bytes\":N, "
        "\"shared_bytes\":N, \"only_a\":[names], \"only_b\":[names], \"changed\":[{\"name\":T, "
        "\"a\":{\"dtype\":D, \"shape\":[...], \"bytes\":N}, \"b\":{...}, \"values\":{\"differ\":N, "
        "\"max_abs\":X, \"max_rel\":X, \"relative_error\":X, \"not_finite\":N}}]}, "
        "\"equal\":false}.",
    .examples = "caisson diff model.cmf other.cmf\ncaisson diff q8.cmf q4.cmf --json",
    .run = run,
};
