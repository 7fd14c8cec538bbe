/* SPDX-License-Identifier: Apache-2.0 */
/* info: the library's description of a file, as JSON or for reading. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum { MAX_TEXT = 256 << 20 };

static void put_str(csn_str s) {
    cli_put_printable(stdout, s.ptr, s.len);
}

/* A value in one line: strings bare, everything else as JSON. */
static void put_value(const csn_jval *v) {
    csn_str s;
    if (csn_jval_str(v, &s)) {
        put_str(s);
        return;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_TEXT);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_value(&w, v);
    if (csn_jw_end(&w) == CAISSON_OK) {
        put_str(csn_buf_view(&out));
    }
    csn_buf_free(&out);
}

/* What only a .waste directory has. */
static void print_waste(const csn_jval *root) {
    char size[32];
    const csn_jval *files = csn_jval_get(csn_jval_get(root, "container"), "files");
    for (csn_jiter it = csn_jval_iter(files); csn_jiter_next(&it);) {
        fputs("  ", stdout);
        put_str(csn_jval_text_of(it.value, "name"));
        printf("  %s\n", cli_bytes_text(csn_jval_number_of(it.value, "bytes"), size, sizeof(size)));
    }
    const csn_jval *experts = csn_jval_get(root, "experts");
    if (experts != NULL) {
        const csn_jval *parameters = csn_jval_get(root, "parameters");
        printf("parameters  %" PRIu64 ", of which one token uses %" PRIu64 "\n",
               csn_jval_number_of(parameters, "total"), csn_jval_number_of(parameters, "active"));
        printf("experts     %" PRIu64 " in each of %" PRIu64 " layers, %" PRIu64
               " a token, %s each\n",
               csn_jval_number_of(experts, "per_layer"), csn_jval_number_of(experts, "layers"),
               csn_jval_number_of(experts, "per_token"),
               cli_bytes_text(csn_jval_number_of(experts, "record_bytes"), size, sizeof(size)));
    }
}

static void print_container(const csn_jval *root) {
    const csn_jval *c = csn_jval_get(root, "container");
    char size[32];
    fputs("container   ", stdout);
    put_value(csn_jval_get(c, "format"));
    printf(", version %" PRIu64 ", ", csn_jval_number_of(c, "version"));
    fputs(cli_bytes_text(csn_jval_number_of(c, "bytes"), size, sizeof(size)), stdout);
    const csn_jval *shards = csn_jval_get(c, "shards");
    if (csn_jval_len(shards) > 0) {
        printf(" in %zu shards; of the first:", csn_jval_len(shards));
    }
    putchar('\n');
    for (csn_jiter it = csn_jval_iter(csn_jval_get(c, "sections")); csn_jiter_next(&it);) {
        csn_str name = csn_jval_text_of(it.value, "name");
        printf("  %-10.*s at %-12" PRIu64 " %s\n", CSN_STR_ARGS(name),
               csn_jval_number_of(it.value, "offset"),
               cli_bytes_text(csn_jval_number_of(it.value, "bytes"), size, sizeof(size)));
    }
    print_waste(root);
    const csn_jval *features = csn_jval_get(root, "features");
    fputs(features != NULL ? "features    " : "", stdout);
    for (csn_jiter it = csn_jval_iter(features); csn_jiter_next(&it);) {
        fputs(it.index > 0 ? ", " : "", stdout);
        put_value(it.value);
    }
    fputs(features != NULL ? "\nquant_type  " : "quant_type  ", stdout);
    put_value(csn_jval_get(root, "quant_type"));
    fputc('\n', stdout);
}

/* Arrays of some length are told by their length: a list of 80 layer types says nothing here. */
static void print_members(const csn_jval *object) {
    for (csn_jiter it = csn_jval_iter(object); csn_jiter_next(&it);) {
        fputs("  ", stdout);
        put_str(it.key);
        fputs(": ", stdout);
        if (csn_jval_kind(it.value) == CSN_JSON_ARRAY && csn_jval_len(it.value) > 8) {
            printf("[%zu values]", csn_jval_len(it.value));
        } else {
            put_value(it.value);
        }
        fputc('\n', stdout);
    }
}

static void print_tensors(const csn_jval *root) {
    const csn_jval *t = csn_jval_get(root, "tensors");
    char size[32];
    printf("tensors     %" PRIu64 ", %" PRIu64 " values, %s\n", csn_jval_number_of(t, "n"),
           csn_jval_number_of(t, "values"),
           cli_bytes_text(csn_jval_number_of(t, "bytes"), size, sizeof(size)));
    for (csn_jiter it = csn_jval_iter(csn_jval_get(t, "by_dtype")); csn_jiter_next(&it);) {
        csn_str dtype = csn_jval_text_of(it.value, "dtype");
        printf("  %-10.*s %6" PRIu64 " tensors  %s\n", CSN_STR_ARGS(dtype),
               csn_jval_number_of(it.value, "n"),
               cli_bytes_text(csn_jval_number_of(it.value, "bytes"), size, sizeof(size)));
    }
}

static void print_chat(const csn_jval *root) {
    char size[32];
    const csn_jval *chat = csn_jval_get(root, "chat");
    uint64_t n = csn_jval_number_of(csn_jval_get(root, "tokenizer"), "bytes");
    printf("tokenizer   %s\n", n == 0 ? "none in the file" : cli_bytes_text(n, size, sizeof(size)));
    n = csn_jval_number_of(chat, "template_bytes");
    printf("template    %s\n",
           n == 0 ? "none in the file (ChatML is used)" : cli_bytes_text(n, size, sizeof(size)));
    fputs("end tokens  ", stdout);
    put_value(csn_jval_get(chat, "eos_token_ids"));
    fputs("\nprovenance  ", stdout);
    put_value(csn_jval_get(root, "provenance"));
    fputc('\n', stdout);
}

/* Everything that a layer's description says, save its number, as comparable text behind `out`. */
static caisson_status add_layer_text(const csn_jval *layer, csn_buf *out, caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    for (csn_jiter it = csn_jval_iter(layer); csn_jiter_next(&it);) {
        if (!csn_str_is(it.key, "layer") && !csn_str_is(it.key, "i")) {
            csn_jw_key(&w, it.key);
            csn_jw_value(&w, it.value);
        }
    }
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

/* The blocks of a layer in their order, each with the reason it was chosen. */
static void print_blocks(const csn_jval *blocks) {
    for (csn_jiter it = csn_jval_iter(blocks); csn_jiter_next(&it);) {
        fputs("    ", stdout);
        put_value(csn_jval_get(it.value, "block"));
        fputs("  (", stdout);
        put_value(csn_jval_get(it.value, "why"));
        fputs(")\n", stdout);
    }
}

static void print_layer(const csn_jval *layer) {
    for (csn_jiter it = csn_jval_iter(layer); csn_jiter_next(&it);) {
        if (csn_str_is(it.key, "layer") || csn_str_is(it.key, "i")) {
            continue;
        }
        fputs("  ", stdout);
        put_str(it.key);
        fputc(':', stdout);
        if (csn_str_is(it.key, "blocks")) {
            fputc('\n', stdout);
            print_blocks(it.value);
        } else {
            fputc(' ', stdout);
            put_value(it.value);
            fputc('\n', stdout);
        }
    }
}

typedef struct layer {
    const csn_jval *value;
    size_t start, end; /* its text in the buffer */
    bool shown;
} layer;

static bool same(const csn_buf *text, const layer *a, const layer *b) {
    return a->end - a->start == b->end - b->start &&
           memcmp(text->ptr + a->start, text->ptr + b->start, a->end - a->start) == 0;
}

/* "layers 0-4, 6-10" of all that are like the first; marks them shown. */
static void print_numbers(layer *layers, size_t n, size_t first, const csn_buf *text) {
    fputs("layers      ", stdout);
    size_t i = first;
    while (i < n) {
        size_t end = i;
        while (end < n && !layers[end].shown && same(text, &layers[first], &layers[end])) {
            layers[end].shown = true;
            end++;
        }
        if (end > i) {
            printf("%s%zu", i > first ? ", " : "", i);
        }
        if (end > i + 1) {
            printf("-%zu", end - 1);
        }
        i = end + 1; /* the one at `end` is of another kind */
    }
    fputc('\n', stdout);
}

/* Layers that use the same blocks are shown once. */
static int print_layers(const cli_args *args, const csn_jval *list) {
    caisson_error err;
    csn_buf text = CSN_BUF_INIT(MAX_TEXT);
    size_t n = csn_jval_len(list);
    layer *layers = calloc(n + 1, sizeof(*layers));
    if (layers == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    caisson_status status = CAISSON_OK;
    for (csn_jiter it = csn_jval_iter(list); status == CAISSON_OK && csn_jiter_next(&it);) {
        layers[it.index] = (layer){.value = it.value, .start = text.len};
        status = add_layer_text(it.value, &text, &err);
        layers[it.index].end = text.len;
    }
    for (size_t i = 0; status == CAISSON_OK && i < n; i++) {
        if (!layers[i].shown) {
            print_numbers(layers, n, i, &text);
            print_layer(layers[i].value);
        }
    }
    free(layers);
    csn_buf_free(&text);
    return status == CAISSON_OK ? CLI_OK : cli_fail(args, &err);
}

static void print_index(const csn_jval *root) {
    size_t n = csn_jval_len(csn_jval_get(root, "sparse_index"));
    if (n > 0) {
        printf("index       %zu entries (deprecated: nothing uses it; --json shows them)\n", n);
    }
}

static int print_human(const cli_args *args, const csn_jval *root) {
    print_container(root);
    fputs("arch\n", stdout);
    print_members(csn_jval_get(root, "arch"));
    print_tensors(root);
    print_chat(root);
    print_index(root);
    bool runs = false;
    (void)csn_jval_bool(csn_jval_get(root, "runs"), &runs);
    if (!runs) {
        fputs("runs        no: ", stdout);
        put_value(csn_jval_get(root, "why_not"));
        fputc('\n', stdout);
        return CLI_OK;
    }
    char size[32];
    printf("runs        yes; one token reads %s of weights\n",
           cli_bytes_text(csn_jval_number_of(root, "weight_bytes_per_token"), size, sizeof(size)));
    return print_layers(args, csn_jval_get(root, "layers"));
}

static int run(const cli_args *args) {
    caisson_file *file;
    int rc = cli_open_file(args, args->positional[0], &file);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_error err;
    caisson_text text = {0};
    csn_json *doc = NULL;
    if (caisson_file_describe(file, &text, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else if (cli_has(args, "json")) {
        fwrite(text.ptr, 1, text.n, stdout);
        fputc('\n', stdout);
    } else if (csn_json_parse(csn_str_make(text.ptr, text.n), 0, &doc, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else {
        rc = print_human(args, csn_json_root(doc));
        csn_json_free(doc);
    }
    caisson_text_free(&text);
    caisson_file_close(file);
    return rc;
}

const cli_command cli_cmd_info = {
    .name = "info",
    .summary = "Show what is in a model and how it would run",
    .positionals = "FILE",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_file_options, cli_json_options, cli_common_options},
    .details =
        "Container, features, arch, tensors by type, tokenizer and chat template, provenance, "
        "and for each layer which blocks run it and why.",
    .examples = "caisson info model.cmf",
    .run = run,
    .ends_at_once = true,
};
