/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dynamic.h"

static const float ema_weight = 0.2f; /* of the newest hidden state (facts 10.4) */

struct csn_dynamic {
    csn_session *session;
    csn_dynamic_options o;
    csn_tap tap;
    uint32_t hidden, n_visits;
    bool *is_wanted;                  /* [n_visits] a candidate looks there */
    bool *is_begun;                   /* [n_visits] phi holds something */
    float *phi;                       /* [n_visits][hidden] */
    const csn_cmf_skill **candidates; /* [n] */
    double *errors;                   /* [n] */
    uint32_t n;
    int64_t active; /* or -1 */
    uint32_t n_tokens;
    double best;
};

csn_dynamic_options csn_dynamic_defaults(void) {
    return (csn_dynamic_options){.e_on = 0.62, .e_off = 0.74, .margin = 0.03, .period = 8};
}

int64_t csn_dynamic_choose(const csn_dynamic_options *o, const double *errors, uint32_t n,
                           int64_t active) {
    int64_t best = -1;
    for (uint32_t i = 0; i < n; i++) {
        best = best < 0 || errors[i] < errors[best] ? i : best;
    }
    if (best < 0) {
        return -1;
    }
    if (active < 0 || errors[active] > o->e_off) {
        return errors[best] < o->e_on ? best : -1;
    }
    return errors[best] + o->margin < errors[active] ? best : active;
}

static void watch(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n) {
    csn_dynamic *d = ctx;
    (void)pos0;
    if (!d->is_wanted[i_visit]) {
        return;
    }
    float *phi = d->phi + (uint64_t)i_visit * d->hidden;
    for (uint64_t t = 0; t < n; t++) {
        const float *x = h + t * d->hidden;
        float w = d->is_begun[i_visit] ? ema_weight : 1.0f;
        for (uint32_t i = 0; i < d->hidden; i++) {
            phi[i] = (1.0f - w) * phi[i] + w * x[i];
        }
        d->is_begun[i_visit] = true;
    }
}

/* "skill.ID.model.layers.N.mlp.*" and nothing else. */
static bool is_ffn_only(const csn_cmf *c, const csn_cmf_skill *s) {
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_str layers = CSN_STR("model.layers.");
        csn_str rest;
        const csn_cmf_skill *own = csn_cmf_skill_of(c, c->dir.tensors[i].name, &rest);
        if (own == NULL || !csn_str_eq(own->id, s->id)) {
            continue;
        }
        size_t dot =
            csn_str_starts(rest, layers) ? csn_str_find(rest, CSN_STR("."), layers.len) : SIZE_MAX;
        if (dot == SIZE_MAX ||
            !csn_str_starts(csn_str_make(rest.ptr + dot, rest.len - dot), CSN_STR(".mlp."))) {
            return false;
        }
    }
    return s->n_tensors > 0;
}

static caisson_status find_candidates(csn_dynamic *d, const csn_cmf *c, caisson_error *err) {
    CSN_TRY(CSN_NEW(c->n_skills, &d->candidates, err));
    CSN_TRY(CSN_NEW(c->n_skills, &d->errors, err));
    for (uint32_t i = 0; i < c->n_skills; i++) {
        const csn_cmf_skill *s = &c->skills[i];
        if (s->selection != NULL && is_ffn_only(c, s)) {
            d->is_wanted[s->selection->phi_layer] = true;
            d->candidates[d->n++] = s;
        }
    }
    if (d->n == 0) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "header", .tensor = CSN_STR("skills"),
                        .what = "no skill of the file has a selection and replaces FFN tensors "
                                "alone: none can be switched to in an answer");
    }
    return CAISSON_OK;
}

static caisson_status use(csn_dynamic *d, int64_t i, caisson_error *err) {
    csn_str id = i < 0 ? CSN_STR("") : d->candidates[i]->id;
    return csn_session_set_skill(d->session, id, err);
}

caisson_status csn_dynamic_new(csn_model *model, csn_session *session,
                               const csn_dynamic_options *options, csn_dynamic **ret,
                               caisson_error *err) {
    const csn_plan *plan = csn_model_plan(model);
    csn_dynamic *d;
    CSN_TRY(CSN_NEW(1, &d, err));
    d->session = session;
    d->o = *options;
    d->hidden = plan->hidden;
    d->n_visits = csn_plan_n_visits(plan);
    d->active = -1;
    d->tap = (csn_tap){.layer = watch, .ctx = d};
    caisson_status s = CSN_NEW(d->n_visits, &d->is_wanted, err);
    if (s == CAISSON_OK) {
        s = CSN_NEW(d->n_visits, &d->is_begun, err);
    }
    if (s == CAISSON_OK) {
        s = CSN_NEW((size_t)d->n_visits * d->hidden, &d->phi, err);
    }
    if (s == CAISSON_OK) {
        s = find_candidates(d, csn_store_cmf(csn_model_store(model)), err);
    }
    for (uint32_t i = 0; s == CAISSON_OK && i < d->n; i++) {
        /* here, so that no answer ends with an error of this kind, and on one nothing changes */
        s = csn_session_find_skill(session, d->candidates[i]->id, err);
    }
    if (s == CAISSON_OK) {
        s = use(d, -1, err);
    }
    if (s != CAISSON_OK) {
        csn_dynamic_free(d);
        return s;
    }
    *ret = d;
    return CAISSON_OK;
}

void csn_dynamic_free(csn_dynamic *d) {
    if (d != NULL) {
        csn_session_set_tap(d->session, NULL);
        csn_free(d->is_wanted);
        csn_free(d->is_begun);
        csn_free(d->phi);
        csn_free(d->candidates);
        csn_free(d->errors);
        csn_free(d);
    }
}

caisson_status csn_dynamic_begin(csn_dynamic *d, caisson_error *err) {
    CSN_TRY(use(d, -1, err));
    csn_session_truncate(d->session, 0);
    csn_session_set_tap(d->session, &d->tap);
    memset(d->is_begun, 0, d->n_visits * sizeof(*d->is_begun));
    d->active = -1;
    d->n_tokens = 0;
    d->best = -1;
    return CAISSON_OK;
}

static int64_t look(csn_dynamic *d) {
    for (uint32_t i = 0; i < d->n; i++) {
        const csn_cmf_selection *s = d->candidates[i]->selection;
        const float *phi = d->phi + (uint64_t)s->phi_layer * d->hidden;
        double raw;
        d->errors[i] = csn_selection_error(s, phi, d->hidden, &raw);
        d->best = i == 0 || d->errors[i] < d->best ? d->errors[i] : d->best;
    }
    return csn_dynamic_choose(&d->o, d->errors, d->n, d->active);
}

/* The timeline once more, by the new skill; what it computes is no news for phi. */
static caisson_status switch_to(csn_dynamic *d, int64_t next, const int32_t *ids,
                                const csn_progress *progress, caisson_error *err) {
    uint32_t n = csn_session_n_past(d->session);
    CSN_TRY(use(d, next, err));
    d->active = next;
    csn_session_set_tap(d->session, NULL);
    caisson_status s = csn_session_eval(d->session, ids, n, false, NULL, NULL, progress, err);
    csn_session_set_tap(d->session, &d->tap);
    return s;
}

caisson_status csn_dynamic_token(csn_dynamic *d, const int32_t *ids, const csn_progress *progress,
                                 csn_dynamic_step *ret, caisson_error *err) {
    csn_dynamic_step step = {.i_token = d->n_tokens++};
    step.is_look = d->n_tokens % d->o.period == 0;
    if (step.is_look) {
        int64_t next = look(d);
        step.is_switch = next != d->active;
        if (step.is_switch) {
            CSN_TRY(switch_to(d, next, ids, progress, err));
        }
    }
    step.error = d->best;
    step.skill = d->active < 0 ? NULL : d->candidates[d->active];
    *ret = step;
    return CAISSON_OK;
}
