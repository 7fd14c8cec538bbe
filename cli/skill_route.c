/* SPDX-License-Identifier: Apache-2.0 */
/* skill route, explain: which skill a prompt goes to, and how its answer would begin. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "open.h"
#include "skills.h"
#include "term.h"

enum { MAX_JSON = 256 << 20 };

/* Members of an open object. */
static void put_route(csn_jw *w, const caisson_route *r) {
    csn_jw_key(w, CSN_STR("skills"));
    csn_jw_array(w);
    for (size_t i = 0; i < r->n; i++) {
        csn_jw_object(w);
        csn_jw_put_str(w, "id", csn_str_make(r->scores[i].skill, r->scores[i].skill_n));
        csn_jw_put_f64(w, "error", r->scores[i].error);
        csn_jw_put_f64(w, "raw", r->scores[i].raw);
        if (r->is_calibrated) {
            csn_jw_put_f64(w, "p", r->scores[i].p);
        }
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    csn_jw_key(w, CSN_STR("winner"));
    if (r->n > 0) {
        csn_jw_str(w, csn_str_make(r->scores[0].skill, r->scores[0].skill_n));
        csn_jw_put_bool(w, "is_novel", r->is_novel);
    } else {
        csn_jw_null(w);
    }
    if (r->is_calibrated && r->n > 0) {
        csn_jw_put_f64(w, "margin", r->margin);
        csn_jw_put_f64(w, "novelty", r->novelty);
    }
}

static void print_route(const caisson_route *r) {
    if (r->n == 0) {
        puts("no skill of the file describes its prompts");
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        const caisson_skill_score *s = &r->scores[i];
        cli_put(csn_str_make(s->skill, s->skill_n));
        printf("  E = %.4f  raw %.4g", s->error, s->raw);
        if (r->is_calibrated) {
            printf("  p %.3f", s->p);
        }
        putchar('\n');
    }
    fputs("winner: ", stdout);
    cli_put(csn_str_make(r->scores[0].skill, r->scores[0].skill_n));
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
        csn_jw_put_u64(&w, "id", (uint64_t)c[i].id);
        csn_jw_put_str(&w, "text", csn_str_make(text.ptr, text.n));
        csn_jw_put_f64(&w, "p", c[i].p);
        csn_jw_object_end(&w);
        if (!json) {
            printf("%7.3f%%  ", c[i].p * 100);
            cli_put_printable(stdout, text.ptr, text.n);
            putchar('\n');
        }
        caisson_text_free(&text);
    }
    csn_jw_array_end(&w);
    csn_jw_put_f64(&w, "confidence", c[0].p);
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

int cli_skill_route(const cli_args *args, const char *path, const char *id) {
    (void)id;
    return with_prompt(args, path, route);
}

int cli_skill_explain(const cli_args *args, const char *path, const char *id) {
    (void)id;
    return with_prompt(args, path, explain);
}
