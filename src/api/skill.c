/* SPDX-License-Identifier: Apache-2.0 */
/* Skills of a session (which one runs, or what blend) and the choice among them. */
#include "caisson/skill.h"

#include <math.h>

#include "api_internal.h"
#include "base/alloc.h"
#include "engine/route.h"

enum { MAX_PARTS = 1024 };

/* The list of tokens follows the engine, which forgets them when another skill comes. */
static caisson_status after_switch(caisson_session *s, caisson_status status, caisson_error *err) {
    s->seen.n = csn_session_n_past(s->session);
    if (status == CAISSON_OK) {
        csn_dynamic_free(s->dynamic);
        s->dynamic = NULL;
    } else {
        csn_error_file(err, s->model->path);
    }
    return status;
}

caisson_status caisson_session_set_skill(caisson_session *s, const char *id, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL, err, "session must not be NULL");
    caisson_status status = csn_session_set_skill(s->session, csn_str_from(id), err);
    return after_switch(s, status, err);
}

caisson_status caisson_session_set_blend(caisson_session *s, const caisson_blend_part *parts,
                                         size_t n, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && parts != NULL && n > 0 && n <= MAX_PARTS, err,
                 "a session and 1 to 1024 parts are needed");
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        CSN_API_NEED(parts[i].skill != NULL && parts[i].skill[0] != '\0', err,
                     "a part of a blend needs the id of a skill");
        CSN_API_NEED(isfinite(parts[i].weight) && parts[i].weight > 0.0f, err,
                     "a weight of a blend must be above 0");
        sum += parts[i].weight;
    }
    CSN_API_NEED(isfinite(sum), err, "the weights of a blend must have a finite sum");
    if (n == 1) {
        return caisson_session_set_skill(s, parts[0].skill, err);
    }
    csn_plan_part *p;
    CSN_TRY(CSN_NEW(n, &p, err));
    for (size_t i = 0; i < n; i++) {
        p[i] = (csn_plan_part){csn_str_from(parts[i].skill), parts[i].weight / sum};
    }
    caisson_status status = csn_session_set_blend(s->session, p, (uint32_t)n, err);
    csn_free(p);
    return after_switch(s, status, err);
}

float caisson_model_temperature(const caisson_model *model) {
    return model->files.cmf != NULL ? model->files.cmf->calibration_temperature : 0.0f;
}

static caisson_status take_route(const csn_route *r, caisson_route *ret, caisson_error *err) {
    caisson_route out = {.n = r->n,
                         .is_novel = r->is_novel,
                         .is_calibrated = r->is_calibrated,
                         .margin = r->margin,
                         .novelty = r->novelty};
    CSN_TRY(CSN_NEW(r->n, &out.scores, err));
    for (uint32_t i = 0; i < r->n; i++) {
        const csn_route_score *s = &r->scores[i];
        out.scores[i] =
            (caisson_skill_score){s->skill->id.ptr, s->skill->id.len, s->raw, s->error, s->p};
    }
    *ret = out;
    return CAISSON_OK;
}

caisson_status caisson_route_prompt(caisson_model *model, const int32_t *ids, size_t n,
                                    const caisson_route_options *options, caisson_route *ret,
                                    caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(model != NULL && ids != NULL && ret != NULL && n > 0 && n <= UINT32_MAX, err,
                 "model, ret and at least one token are needed");
    caisson_route_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    if (model->model == NULL) {
        return csn_api_cannot_run(model, err);
    }
    csn_phi *phi;
    csn_route route = {0};
    csn_progress progress = {o.on_progress, o.ctx};
    CSN_TRY(csn_phi_new(model->model, (uint32_t)n, o.n_threads, &phi, err));
    caisson_status status = csn_phi_run(phi, ids, (uint32_t)n, &progress, err);
    if (status == CAISSON_OK) {
        status = csn_route_make(model->model, phi, &route, err);
    }
    csn_phi_free(phi);
    if (status == CAISSON_OK) {
        status = take_route(&route, ret, err);
    }
    csn_route_done(&route);
    if (status != CAISSON_OK) {
        csn_error_file(err, model->path);
    }
    return status;
}

void caisson_route_free(caisson_route *r) {
    if (r != NULL) {
        csn_free(r->scores);
        *r = (caisson_route){0};
    }
}

static double or_default(double given, double otherwise) {
    return given == 0 ? otherwise : given;
}

caisson_status caisson_session_set_dynamic(caisson_session *s,
                                           const caisson_dynamic_options *options,
                                           caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL, err, "session must not be NULL");
    caisson_dynamic_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    csn_dynamic_options d = csn_dynamic_defaults();
    d.e_on = or_default(o.e_on, d.e_on);
    d.e_off = or_default(o.e_off, d.e_off);
    d.margin = or_default(o.margin, d.margin);
    d.period = o.period != 0 ? o.period : d.period;
    CSN_API_NEED(d.e_on > 0 && d.e_off >= d.e_on && d.margin >= 0, err,
                 "e_on must be above 0, e_off not below e_on, margin not negative");
    csn_dynamic *dynamic;
    caisson_status status = csn_dynamic_new(s->model->model, s->session, &d, &dynamic, err);
    CSN_TRY(after_switch(s, status, err));
    s->dynamic = dynamic;
    s->dynamic_options = o;
    return CAISSON_OK;
}

caisson_status csn_api_dynamic_begin(caisson_session *s, caisson_error *err) {
    if (s->dynamic != NULL) {
        s->seen.n = 0;
        return csn_dynamic_begin(s->dynamic, err);
    }
    return CAISSON_OK;
}

caisson_status csn_api_dynamic_token(caisson_session *s, const csn_progress *progress,
                                     caisson_error *err) {
    csn_dynamic_step d;
    CSN_TRY(csn_dynamic_token(s->dynamic, s->seen.id, progress, &d, err));
    caisson_dynamic_step step = {
        .i_token = d.i_token,
        .id = s->seen.id[csn_session_n_past(s->session) - 1],
        .skill = d.skill != NULL ? d.skill->id.ptr : "",
        .skill_n = d.skill != NULL ? d.skill->id.len : 0,
        .error = d.error,
        .is_look = d.is_look,
        .is_switch = d.is_switch,
    };
    if (s->dynamic_options.on_step != NULL) {
        s->dynamic_options.on_step(s->dynamic_options.ctx, &step);
    }
    return CAISSON_OK;
}
