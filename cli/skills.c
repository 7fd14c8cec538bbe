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
    if (blend != NULL && cli_has(args, "skill")) {
        return cli_usage_error(args->command, "give --skill or --blend, not both");
    }
    if (blend != NULL && strcmp(blend, "auto") != 0) {
        return apply_blend(args, session, blend);
    }
    if (blend != NULL || strcmp(skill, "auto") == 0) {
        return apply_route(args, model, session, text, n, blend != NULL);
    }
    return CLI_OK; /* the session was made with it */
}
