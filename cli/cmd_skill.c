/* SPDX-License-Identifier: Apache-2.0 */
/* skill: which skills a file has, which one a prompt goes to, and what that one would say; the
 * actions that change a file are in skill_edit.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "skills.h"
#include "term.h"

enum { MAX_JSON = 256 << 20, MAX_TOP = 1000 };

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

static void put(csn_str s) {
    cli_put_printable(stdout, s.ptr, s.len);
}

static void print_skill(const csn_jval *skill) {
    put(text_of(skill, "id"));
    csn_str name = text_of(skill, "name");
    if (name.len > 0) {
        fputs("  ", stdout);
        put(name);
    }
    printf("  %" PRIu64 " tensors, %.1f MB, layers", number_of(skill, "tensors"),
           (double)number_of(skill, "bytes") * 1e-6);
    const csn_jval *layers = csn_jval_get(skill, "layers");
    for (csn_jiter it = csn_jval_iter(layers); csn_jiter_next(&it);) {
        uint64_t i = 0;
        (void)csn_jval_u64(it.value, &i);
        printf("%s%" PRIu64, it.index == 0 ? " " : ",", i);
    }
    const csn_jval *selection = csn_jval_get(skill, "selection");
    if (csn_jval_kind(selection) == CSN_JSON_OBJECT) {
        printf("%s, routed by rank %" PRIu64 " behind layer %" PRIu64,
               csn_jval_len(layers) == 0 ? " not told" : "", number_of(selection, "rank"),
               number_of(selection, "phi_layer"));
    }
    csn_str task = text_of(skill, "input_mask_task");
    if (task.len > 0) {
        fputs(", mask ", stdout);
        put(task);
    }
    const csn_jval *quality = csn_jval_get(skill, "quality");
    double base = 0;
    double own = 0;
    if (csn_jval_f64(csn_jval_get(quality, "backbone"), &base) &&
        csn_jval_f64(csn_jval_get(quality, "overlaid"), &own)) {
        fputs(", ", stdout);
        put(text_of(quality, "metric"));
        printf(" %.4g (base %.4g)", own, base);
    } else {
        fputs(", quality not measured", stdout);
    }
    putchar('\n');
}

static int print_skills(const cli_args *args, const csn_jval *skills) {
    caisson_error err;
    if (cli_has(args, "json")) {
        csn_buf out = CSN_BUF_INIT(MAX_JSON);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_value(&w, skills);
        return cli_put_json(args, &w, &out, &err);
    }
    if (csn_jval_len(skills) == 0) {
        puts("no skills");
    }
    for (csn_jiter it = csn_jval_iter(skills); csn_jiter_next(&it);) {
        print_skill(it.value);
    }
    return CLI_OK;
}

static int list(const cli_args *args, const char *path) {
    caisson_file *file;
    int rc = cli_open_file(args, path, &file);
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
        rc = print_skills(args, csn_jval_get(csn_json_root(doc), "skills"));
    }
    csn_json_free(doc);
    caisson_text_free(&text);
    caisson_file_close(file);
    return rc;
}

static void key_f64(csn_jw *w, csn_str key, double v) {
    csn_jw_key(w, key);
    csn_jw_f64(w, v);
}

/* Members of an open object. */
static void put_route(csn_jw *w, const caisson_route *r) {
    csn_jw_key(w, CSN_STR("skills"));
    csn_jw_array(w);
    for (size_t i = 0; i < r->n; i++) {
        csn_jw_object(w);
        csn_jw_key(w, CSN_STR("id"));
        csn_jw_str(w, csn_str_make(r->scores[i].skill, r->scores[i].skill_n));
        key_f64(w, CSN_STR("error"), r->scores[i].error);
        key_f64(w, CSN_STR("raw"), r->scores[i].raw);
        if (r->is_calibrated) {
            key_f64(w, CSN_STR("p"), r->scores[i].p);
        }
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    csn_jw_key(w, CSN_STR("winner"));
    if (r->n > 0) {
        csn_jw_str(w, csn_str_make(r->scores[0].skill, r->scores[0].skill_n));
        csn_jw_key(w, CSN_STR("is_novel"));
        csn_jw_bool(w, r->is_novel);
    } else {
        csn_jw_null(w);
    }
    if (r->is_calibrated && r->n > 0) {
        key_f64(w, CSN_STR("margin"), r->margin);
        key_f64(w, CSN_STR("novelty"), r->novelty);
    }
}

static void print_route(const caisson_route *r) {
    if (r->n == 0) {
        puts("no skill of the file describes its prompts");
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        const caisson_skill_score *s = &r->scores[i];
        put(csn_str_make(s->skill, s->skill_n));
        printf("  E = %.4f  raw %.4g", s->error, s->raw);
        if (r->is_calibrated) {
            printf("  p %.3f", s->p);
        }
        putchar('\n');
    }
    fputs("winner: ", stdout);
    put(csn_str_make(r->scores[0].skill, r->scores[0].skill_n));
    if (r->is_calibrated) {
        printf("  confidence %.3f  margin %.3f  novelty %.3f", r->scores[0].p, r->margin,
               r->novelty);
    }
    puts(r->is_novel ? "  (the prompt is like none of them)" : "");
}

static int route(const cli_args *args, caisson_model *model, const char *text, size_t n) {
    caisson_route r = {0};
    int rc = cli_route(args, model, text, n, 0, &r);
    if (rc == CLI_OK && cli_has(args, "json")) {
        caisson_error err;
        csn_buf out = CSN_BUF_INIT(MAX_JSON);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_object(&w);
        put_route(&w, &r);
        csn_jw_object_end(&w);
        rc = cli_put_json(args, &w, &out, &err);
    } else if (rc == CLI_OK) {
        print_route(&r);
    }
    caisson_route_free(&r);
    return rc;
}

/* ---- explain: the first token of the answer ---- */

typedef struct candidate {
    int32_t id;
    double p;
} candidate;

static int compare(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : (x->id > y->id) - (x->id < y->id);
}

/* softmax(logits / temperature), the likeliest first; malloc'd. */
static candidate *distribution(const float *logits, uint32_t n, float temperature) {
    candidate *c = malloc(n * sizeof(*c));
    double t = temperature > 0.0f ? (double)temperature : 1.0;
    double max = (double)logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < n; i++) {
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    for (uint32_t i = 0; c != NULL && i < n; i++) {
        c[i] = (candidate){(int32_t)i, exp(((double)logits[i] - max) / t)};
        sum += c[i].p;
    }
    for (uint32_t i = 0; c != NULL && i < n; i++) {
        c[i].p /= sum;
    }
    if (c != NULL) {
        qsort(c, n, sizeof(*c), compare);
    }
    return c;
}

static int print_first(const cli_args *args, const caisson_model *model, const caisson_route *r,
                       const candidate *c, size_t n) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    bool json = cli_has(args, "json");
    csn_jw_object(&w);
    put_route(&w, r);
    csn_jw_key(&w, CSN_STR("top"));
    csn_jw_array(&w);
    int rc = CLI_OK;
    for (size_t i = 0; i < n && rc == CLI_OK; i++) {
        caisson_text text = {0};
        if (caisson_model_detokenize(model, &c[i].id, 1, false, &text, &err) != CAISSON_OK) {
            rc = cli_fail(args, &err);
            break;
        }
        csn_jw_object(&w);
        csn_jw_key(&w, CSN_STR("id"));
        csn_jw_u64(&w, (uint64_t)c[i].id);
        csn_jw_key(&w, CSN_STR("text"));
        csn_jw_str(&w, csn_str_make(text.ptr, text.n));
        key_f64(&w, CSN_STR("p"), c[i].p);
        csn_jw_object_end(&w);
        if (!json) {
            printf("%7.3f%%  ", c[i].p * 100);
            cli_put_printable(stdout, text.ptr, text.n);
            putchar('\n');
        }
        caisson_text_free(&text);
    }
    csn_jw_array_end(&w);
    key_f64(&w, CSN_STR("confidence"), c[0].p);
    csn_jw_object_end(&w);
    if (rc == CLI_OK && json) {
        return cli_put_json(args, &w, &out, &err);
    }
    if (rc == CLI_OK) {
        printf("confidence %.3f\n", c[0].p);
    }
    csn_buf_free(&out);
    return rc;
}

static int first_token(const cli_args *args, caisson_model *model, caisson_session *session,
                       const caisson_route *r, const char *text, size_t n) {
    caisson_error err;
    caisson_ids ids = {0};
    if (caisson_model_tokenize(model, text, n, CAISSON_TOKENIZE_PROMPT, &ids, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    caisson_status s = caisson_session_eval(session, ids.id, ids.n, NULL, NULL, &err);
    caisson_ids_free(&ids);
    if (s != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    uint32_t n_vocab = caisson_model_n_vocab(model);
    candidate *c =
        distribution(caisson_session_logits(session), n_vocab, caisson_model_temperature(model));
    if (c == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    size_t top = (size_t)cli_int(args, "top", 8);
    int rc = print_first(args, model, r, c, top < n_vocab ? top : n_vocab);
    free(c);
    return rc;
}

static int explain(const cli_args *args, caisson_model *model, const char *text, size_t n) {
    caisson_session *session;
    caisson_route r = {0};
    int rc = cli_new_session(args, model, CAISSON_COMPUTE_F32, 0, &session);
    if (rc != CLI_OK) {
        return rc;
    }
    rc = cli_route(args, model, text, n, 0, &r);
    if (rc == CLI_OK && !cli_has(args, "skill") && !cli_has(args, "blend") && r.n > 0) {
        rc = cli_run_winner(args, session, &r);
    } else if (rc == CLI_OK) {
        rc = cli_apply_skills(args, model, session, text, n);
    }
    if (rc == CLI_OK && !cli_has(args, "json")) {
        print_route(&r);
    }
    if (rc == CLI_OK) {
        rc = first_token(args, model, session, &r, text, n);
    }
    caisson_route_free(&r);
    caisson_session_free(session);
    return rc;
}

static int with_prompt(const cli_args *args, const char *path,
                       int (*act)(const cli_args *args, caisson_model *model, const char *text,
                                  size_t n)) {
    const char *text = cli_text(args, "prompt", NULL);
    caisson_model *model;
    if (text == NULL || text[0] == '\0') {
        return cli_usage_error(args->command, "a prompt is needed: -p TEXT");
    }
    int rc = cli_open_model(args, path, CLI_PART_RAW, &model);
    if (rc == CLI_OK) {
        rc = act(args, model, text, strlen(text));
        caisson_model_close(model);
    }
    return rc;
}

static int do_list(const cli_args *args, const char *path, const char *id) {
    (void)id;
    return list(args, path);
}

static int do_route(const cli_args *args, const char *path, const char *id) {
    (void)id;
    return with_prompt(args, path, route);
}

static int do_explain(const cli_args *args, const char *path, const char *id) {
    (void)id;
    return with_prompt(args, path, explain);
}

static const struct {
    const char *name;
    bool takes_id;
    int (*run)(const cli_args *args, const char *path, const char *id);
} actions[] = {
    {"list", false, do_list},           {"route", false, do_route},
    {"explain", false, do_explain},     {"add", true, cli_skill_add},
    {"remove", true, cli_skill_remove}, {"quality", true, cli_skill_quality},
};

static int run(const cli_args *args) {
    const char *third = args->n_positional > 2 ? args->positional[2] : NULL;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(args->positional[0], actions[i].name) != 0) {
            continue;
        }
        if (third != NULL && (!actions[i].takes_id || cli_has(args, "id"))) {
            return cli_usage_error(args->command, "unexpected argument \"%s\"", third);
        }
        return actions[i].run(args, args->positional[1], cli_text(args, "id", third));
    }
    return cli_usage_error(args->command,
                           "what to do: list, route, explain, add, remove or quality");
}

static const char *tensors_choice(unsigned i) {
    static const char *const words[] = {"all", "ffn", "attn", NULL};
    return words[i];
}

static const cli_option options[] = {
    {.name = "prompt",
     .short_name = "p",
     .kind = CLI_TEXT,
     .value = "TEXT",
     .help = "route, explain: the prompt, as it is (no chat template)"},
    {.name = "top",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = MAX_TOP,
     .help = "explain: so many of the likeliest first tokens",
     .by_default = "8"},
    {.name = "id",
     .kind = CLI_TEXT,
     .value = "ID",
     .help = "add: the new skill's id (A-Z a-z 0-9 _ -)"},
    {.name = "from",
     .kind = CLI_PATH,
     .value = "DONOR",
     .help = "add: a fine-tuned copy of the base: a .cmf, a GGUF file or a Hugging Face directory"},
    {.name = "name", .kind = CLI_TEXT, .value = "TEXT", .help = "add: a name for people"},
    {.name = "description", .kind = CLI_TEXT, .value = "TEXT", .help = "add: what it is for"},
    {.name = "mask",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "add: the task mask that is active with the skill"},
    {.name = "prompts",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "add: prompts of its kind, one a line, so that it can be routed to"},
    {.name = "rank",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 8,
     .help = "add: directions in which its prompts may differ",
     .by_default = "2"},
    {.name = "tensors",
     .kind = CLI_CHOICE,
     .value = "WHICH",
     .choices = tensors_choice,
     .help = "add: which tensors the skill may replace",
     .by_default = "all"},
    {.name = "quant",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = cli_quant_choice,
     .help = "add: type of its matrices",
     .by_default = "each in the base's"},
    {.name = "min-delta",
     .kind = CLI_REAL,
     .value = "X",
     .min = 0,
     .max = 1000,
     .help = "add: leave out tensors with ||donor - base|| / ||base|| below X",
     .by_default = "0: what is not equal"},
    {.name = "text",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "quality: held-out text on which base and skill are measured"},
    {0},
};

const cli_command cli_cmd_skill = {
    .name = "skill",
    .summary = "The skills of a .cmf file: show, route to, add, measure, remove",
    .positionals = "list|route|explain|add|remove|quality FILE [ID]",
    .min_args = 2,
    .max_args = 3,
    .groups = {options, cli_blend_options, cli_model_options, cli_json_options, cli_common_options},
    .details =
        "A skill is a set of tensors in the file of a base model that stand in for the base's. "
        "list shows which a file has. route tells for each skill that describes its prompts how "
        "far the given one is from them (E, from the base's hidden state in f32 arithmetic; the "
        "smallest distance wins). explain also shows the likeliest first tokens of the answer by "
        "the winner, or by what --skill or --blend says. add compares a fine-tuned copy of the "
        "base "
        "with it and appends the tensors that differ; quality measures perplexity with and without "
        "a skill on a held-out text and notes it in the file; remove takes a skill out of the "
        "lists (its bytes stay until the file is compacted). The file grows behind its end: a "
        "program that has it open keeps the model that it opened.",
    .examples = "caisson skill list model.cmf\n"
                "caisson skill add model.cmf --id sql --from sql-finetune/ --prompts sql.txt\n"
                "caisson skill quality model.cmf sql --text held-out.txt\n"
                "caisson skill route model.cmf -p \"SELECT name FROM\" --json\n"
                "caisson run model.cmf --skill auto \"Which customers bought nothing?\"",
    .run = run,
};
