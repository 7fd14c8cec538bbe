/* SPDX-License-Identifier: Apache-2.0 */
#include "skills.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "open.h"
#include "term.h"

enum { MAX_PARTS = 64 };

const cli_option cli_blend_options[] = {
    {.name = "blend",
     .kind = CLI_TEXT,
     .value = "PARTS",
     .help = "Run the weighted sum of several skills: \"sql=0.7,poem=0.3\" (weights are divided by "
             "their sum), or auto: the two that are nearest to the prompt"},
    {0},
};

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return !cli_interrupted();
}

int cli_route(const cli_args *args, caisson_model *model, const char *text, size_t n,
              size_t max_tokens, caisson_route *ret) {
    caisson_error err;
    caisson_ids ids = {0};
    if (caisson_model_tokenize(model, text, n, 0, &ids, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    caisson_route_options o = {.struct_size = sizeof(o),
                               .n_threads = (uint32_t)cli_int(args, "threads", 0),
                               .on_progress = on_progress};
    size_t n_ids = max_tokens != 0 && max_tokens < ids.n ? max_tokens : ids.n;
    int rc = CLI_OK;
    if (n_ids == 0) {
        rc = cli_fail_text(args, "the prompt is empty");
    } else if (caisson_route_prompt(model, ids.id, n_ids, &o, ret, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    }
    caisson_ids_free(&ids);
    return rc;
}

/* NUL-terminated; malloc'd. */
static char *copy_id(const caisson_skill_score *s) {
    char *id = malloc(s->skill_n + 1);
    if (id != NULL) {
        memcpy(id, s->skill, s->skill_n);
        id[s->skill_n] = '\0';
    }
    return id;
}

static void tell(const caisson_skill_score *s, double weight) {
    cli_put_printable(stderr, s->skill, s->skill_n);
    fprintf(stderr, " (E = %.4f", s->error);
    if (weight > 0) {
        fprintf(stderr, ", weight %.4f", weight);
    }
    fputc(')', stderr);
}

int cli_run_winner(const cli_args *args, caisson_session *session, const caisson_route *r) {
    caisson_error err;
    char *id = copy_id(&r->scores[0]);
    if (id == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    fputs("skill: ", stderr);
    tell(&r->scores[0], 0);
    fputs(r->is_novel ? ", although the prompt is like none of its skills\n" : "\n", stderr);
    caisson_status s = caisson_session_set_skill(session, id, &err);
    free(id);
    return s == CAISSON_OK ? CLI_OK : cli_fail(args, &err);
}

/* --blend auto: the two of smallest E, with weights softmax(-E / 0.4) (facts 10.4). */
static int run_nearest(const cli_args *args, caisson_session *session, const caisson_route *r) {
    static const double temperature = 0.4;
    size_t first = 0;
    size_t second = SIZE_MAX;
    for (size_t i = 1; i < r->n; i++) {
        if (r->scores[i].error < r->scores[first].error) {
            second = first;
            first = i;
        } else if (second == SIZE_MAX || r->scores[i].error < r->scores[second].error) {
            second = i;
        }
    }
    double w = second == SIZE_MAX
                   ? 0.0
                   : exp((r->scores[first].error - r->scores[second].error) / temperature);
    size_t n = (float)w > 0.0f ? 2 : 1;
    caisson_error err;
    char *ids[2] = {copy_id(&r->scores[first]), n > 1 ? copy_id(&r->scores[second]) : NULL};
    int rc =
        ids[0] == NULL || (n > 1 && ids[1] == NULL) ? cli_fail_text(args, "out of memory") : CLI_OK;
    if (rc == CLI_OK) {
        const caisson_blend_part parts[2] = {{ids[0], 1.0f}, {ids[1], (float)w}};
        fputs("blend: ", stderr);
        tell(&r->scores[first], 1.0 / (1.0 + w));
        if (n > 1) {
            fputs(" + ", stderr);
            tell(&r->scores[second], w / (1.0 + w));
        }
        fputc('\n', stderr);
        if (caisson_session_set_blend(session, parts, n, &err) != CAISSON_OK) {
            rc = cli_fail(args, &err);
        }
    }
    free(ids[0]);
    free(ids[1]);
    return rc;
}

static int apply_route(const cli_args *args, caisson_model *model, caisson_session *session,
                       const char *text, size_t n, bool blend) {
    enum { BLEND_TOKENS = 128 }; /* of the prompt that decide a blend (facts 10.4) */
    caisson_route r = {0};
    int rc = cli_route(args, model, text, n, blend ? BLEND_TOKENS : 0, &r);
    if (rc == CLI_OK && r.n == 0) {
        fputs("no skill of the file describes its prompts: the base runs\n", stderr);
    } else if (rc == CLI_OK) {
        rc = blend ? run_nearest(args, session, &r) : cli_run_winner(args, session, &r);
    }
    caisson_route_free(&r);
    return rc;
}

/* "id=w,id=w" (":" in place of "=" as the format's reference writes it); `text` is cut up. */
static int parse_blend(const cli_args *args, char *text, caisson_blend_part *parts, size_t *ret_n) {
    size_t n = 0;
    for (char *at = text, *next; at != NULL; at = next) {
        next = strchr(at, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *sign = at + strcspn(at, "=:");
        char *end = sign;
        double w = *sign != '\0' ? strtod(sign + 1, &end) : 0;
        if (n == MAX_PARTS || sign == at || end == sign + 1 || *end != '\0' ||
            !(w > 0 && w < 1e30)) {
            return cli_usage_error(args->command,
                                   "--blend is \"id=weight,id=weight\" with weights above 0, at "
                                   "most %d parts, or auto; not \"%s\"",
                                   MAX_PARTS, at);
        }
        *sign = '\0';
        parts[n++] = (caisson_blend_part){at, (float)w};
    }
    *ret_n = n;
    return CLI_OK;
}

static int apply_blend(const cli_args *args, caisson_session *session, const char *blend) {
    caisson_blend_part parts[MAX_PARTS];
    caisson_error err;
    size_t n = 0;
    char *copy = strdup(blend);
    if (copy == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    int rc = parse_blend(args, copy, parts, &n);
    if (rc == CLI_OK && caisson_session_set_blend(session, parts, n, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    }
    free(copy);
    return rc;
}

int cli_apply_skills(const cli_args *args, caisson_model *model, caisson_session *session,
                     const char *text, size_t n) {
    const char *skill = cli_text(args, "skill", "none");
    const char *blend = cli_text(args, "blend", NULL);
    if ((blend != NULL) + cli_has(args, "skill") + cli_has(args, "route-dynamic") > 1) {
        return cli_usage_error(args->command, "give one of --skill, --blend and --route-dynamic");
    }
    if (blend != NULL && strcmp(blend, "auto") != 0) {
        return apply_blend(args, session, blend);
    }
    if (blend != NULL || strcmp(skill, "auto") == 0) {
        return apply_route(args, model, session, text, n, blend != NULL);
    }
    return CLI_OK; /* the session was made with it */
}

/* ---- skills that change within an answer ---- */

#define REAL(name_, help_, default_)                                                               \
    {                                                                                              \
        .name = (name_), .kind = CLI_REAL, .value = "X", .min = 0, .max = 1000, .help = (help_),   \
        .by_default = (default_)                                                                   \
    }
const cli_option cli_dynamic_options[] = {
    {.name = "route-dynamic",
     .kind = CLI_FLAG,
     .help = "Begin with the base and change skill within the answer, as its hidden state goes"},
    {.name = "trace",
     .kind = CLI_FLAG,
     .help = "With --route-dynamic: tell for each token which skill goes on, and the smallest E"},
    REAL("route-e-on", "A skill whose E is below this may begin", "0.62"),
    REAL("route-e-off", "One whose E is above this ends", "0.74"),
    REAL("route-margin", "Another must be better by this to take over", "0.03"),
    {.name = "route-period",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 1000000,
     .help = "Tokens of the answer between two looks",
     .by_default = "8"},
    {0},
};
#undef REAL

static void keep_step(void *ctx, const caisson_dynamic_step *step) {
    cli_trace *t = ctx;
    if (t->n == t->cap) {
        size_t cap = t->cap == 0 ? 256 : t->cap * 2;
        caisson_dynamic_step *more = realloc(t->steps, cap * sizeof(*more));
        if (more == NULL) {
            t->failed = true;
            return;
        }
        t->steps = more;
        t->cap = cap;
    }
    t->steps[t->n++] = *step;
}

int cli_apply_dynamic(const cli_args *args, caisson_session *session, cli_trace *trace) {
    bool dynamic = cli_has(args, "route-dynamic");
    if (!dynamic) {
        return cli_has(args, "trace")
                   ? cli_usage_error(args->command, "--trace goes with --route-dynamic")
                   : CLI_OK;
    }
    caisson_dynamic_options o = {.struct_size = sizeof(o),
                                 .e_on = cli_real(args, "route-e-on", 0),
                                 .e_off = cli_real(args, "route-e-off", 0),
                                 .margin = cli_real(args, "route-margin", 0),
                                 .period = (uint32_t)cli_int(args, "route-period", 0),
                                 .on_step = cli_has(args, "trace") ? keep_step : NULL,
                                 .ctx = trace};
    caisson_error err;
    return caisson_session_set_dynamic(session, &o, &err) == CAISSON_OK ? CLI_OK
                                                                        : cli_fail(args, &err);
}

void cli_trace_print(const cli_trace *trace, const caisson_model *model, FILE *out) {
    fputs("token  skill  E  text\n", out);
    for (size_t i = 0; i < trace->n; i++) {
        const caisson_dynamic_step *s = &trace->steps[i];
        const char *text = "";
        size_t n = 0;
        (void)caisson_model_token(model, s->id, &text, &n);
        fprintf(out, "%5u  ", s->i_token);
        cli_put_printable(out, s->skill_n > 0 ? s->skill : "-", s->skill_n > 0 ? s->skill_n : 1);
        if (s->error < 0) {
            fputs("  -  ", out);
        } else {
            fprintf(out, "  %.4f%s  ", s->error, s->is_switch ? " switch" : s->is_look ? "*" : "");
        }
        cli_put_printable(out, text, n);
        fputc('\n', out);
    }
    if (trace->failed) {
        fputs("(out of memory: tokens are missing)\n", out);
    }
}

void cli_trace_put(const cli_trace *trace, csn_jw *w) {
    csn_jw_array(w);
    for (size_t i = 0; i < trace->n; i++) {
        const caisson_dynamic_step *s = &trace->steps[i];
        csn_jw_object(w);
        csn_jw_key(w, CSN_STR("id"));
        csn_jw_i64(w, s->id);
        csn_jw_key(w, CSN_STR("skill"));
        if (s->skill_n > 0) {
            csn_jw_str(w, csn_str_make(s->skill, s->skill_n));
        } else {
            csn_jw_null(w);
        }
        csn_jw_key(w, CSN_STR("error"));
        if (s->error < 0) {
            csn_jw_null(w);
        } else {
            csn_jw_f64(w, s->error);
        }
        csn_jw_put_bool(w, "is_look", s->is_look);
        csn_jw_put_bool(w, "is_switch", s->is_switch);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

void cli_trace_free(cli_trace *trace) {
    free(trace->steps);
    *trace = (cli_trace){0};
}
