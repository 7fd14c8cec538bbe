/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/route.h"

#include <math.h>
#include <stdlib.h>

struct csn_phi {
    csn_session *session;
    csn_tap tap;
    uint32_t hidden, n_visits;
    double *sum; /* [n_visits][hidden] */
    float *mean; /* [n_visits][hidden] */
};

static void add_layer(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n) {
    const csn_phi *p = ctx;
    double *sum = p->sum + (uint64_t)i_visit * p->hidden;
    (void)pos0;
    for (uint64_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < p->hidden; i++) {
            sum[i] += (double)h[t * p->hidden + i];
        }
    }
}

caisson_status csn_phi_new(csn_model *model, uint32_t n_ctx, unsigned n_threads, csn_phi **ret,
                           caisson_error *err) {
    const csn_plan *plan = csn_model_plan(model);
    csn_session_options o = {.n_ctx = n_ctx,
                             .n_threads = n_threads,
                             .compute = CSN_COMPUTE_F32,
                             .type_k = CSN_KV_F32,
                             .type_v = CSN_KV_F32,
                             .task = ""};
    csn_phi *p;
    CSN_TRY(CSN_NEW(1, &p, err));
    p->hidden = plan->hidden;
    p->n_visits = csn_plan_n_visits(plan);
    p->tap = (csn_tap){.layer = add_layer, .ctx = p};
    size_t n = (size_t)p->n_visits * p->hidden; /* far less than the weights that are there */
    caisson_status s = csn_session_new(model, &o, &p->session, err);
    if (s == CAISSON_OK) {
        s = CSN_NEW(n, &p->sum, err);
    }
    if (s == CAISSON_OK) {
        s = CSN_NEW(n, &p->mean, err);
    }
    if (s != CAISSON_OK) {
        csn_phi_free(p);
        return s;
    }
    csn_session_set_tap(p->session, &p->tap);
    *ret = p;
    return CAISSON_OK;
}

void csn_phi_free(csn_phi *p) {
    if (p != NULL) {
        csn_session_free(p->session);
        csn_free(p->sum);
        csn_free(p->mean);
        csn_free(p);
    }
}

caisson_status csn_phi_run(csn_phi *p, const int32_t *ids, uint32_t n, const csn_progress *progress,
                           caisson_error *err) {
    size_t n_sums = (size_t)p->n_visits * p->hidden;
    csn_session_truncate(p->session, 0);
    memset(p->sum, 0, n_sums * sizeof(*p->sum));
    CSN_TRY(csn_session_eval(p->session, ids, n, false, NULL, NULL, progress, err));
    for (size_t i = 0; i < n_sums; i++) {
        p->mean[i] = (float)(p->sum[i] / n);
    }
    return CAISSON_OK;
}

const float *csn_phi_get(const csn_phi *p, uint32_t i_visit) {
    return p->mean + (uint64_t)i_visit * p->hidden;
}

double csn_selection_error(const csn_cmf_selection *s, const float *phi, uint32_t hidden,
                           double *ret_raw) {
    double norm = 0;
    for (uint32_t i = 0; i < hidden; i++) {
        norm += (double)phi[i] * (double)phi[i];
    }
    double scale = s->is_unit ? 1.0 / sqrt(norm > 1e-12 ? norm : 1e-12) : 1.0;
    double raw = 0;
    for (uint32_t i = 0; i < hidden; i++) {
        double r = (double)phi[i] * scale - (double)s->mean[i];
        raw += r * r;
    }
    for (uint32_t k = 0; k < s->rank; k++) {
        const float *b = s->basis + (uint64_t)k * hidden;
        double dot = 0;
        for (uint32_t i = 0; i < hidden; i++) {
            dot += (double)b[i] * ((double)phi[i] * scale - (double)s->mean[i]);
        }
        raw -= dot * dot;
    }
    *ret_raw = raw > 0 ? raw : 0;
    norm *= scale * scale;
    return *ret_raw / (norm > 1e-12 ? norm : 1e-12);
}

static int compare(const void *a, const void *b) {
    const csn_route_score *x = a, *y = b;
    return x->raw != y->raw ? (x->raw > y->raw) - (x->raw < y->raw)
                            : (x->skill > y->skill) - (x->skill < y->skill);
}

void csn_route_sort(csn_route *r) {
    qsort(r->scores, r->n, sizeof(*r->scores), compare);
}

/* How far the first is ahead, how far it is from what its skill was fitted on, and how sure the
 * choice is. */
void csn_route_judge(csn_route *r, double temperature, double novelty_theta) {
    double sum = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        r->scores[i].p = exp((r->scores[0].raw - r->scores[i].raw) / temperature);
        sum += r->scores[i].p;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        r->scores[i].p /= sum;
    }
    const csn_cmf_selection *s = r->scores[0].skill->selection;
    double second = r->n > 1 ? 1.0 / (1.0 + r->scores[1].raw) : 0.0;
    double spread = (double)s->err_std > 1e-4 ? (double)s->err_std : 1e-4;
    double far = 1.0 / (1.0 + exp(-(r->scores[0].raw - (double)s->err_mean) / spread));
    r->is_calibrated = true;
    r->margin = 1.0 / (1.0 + r->scores[0].raw) - second;
    r->novelty = 0.5 * far + 0.25 / (1.0 + 8.0 * r->margin) + 0.25 * (1.0 - r->scores[0].p);
    r->is_novel = r->novelty > novelty_theta;
}

caisson_status csn_route_make(csn_model *model, const csn_phi *p, csn_route *ret,
                              caisson_error *err) {
    const csn_cmf *c = csn_store_cmf(csn_model_store(model));
    csn_route r = {0};
    CSN_TRY(CSN_NEW(c->n_skills, &r.scores, err));
    for (uint32_t i = 0; i < c->n_skills; i++) {
        const csn_cmf_selection *s = c->skills[i].selection;
        if (s != NULL) {
            csn_route_score *score = &r.scores[r.n++];
            score->skill = &c->skills[i];
            score->error =
                csn_selection_error(s, csn_phi_get(p, s->phi_layer), p->hidden, &score->raw);
        }
    }
    if (r.n > 0) {
        csn_route_sort(&r);
        r.is_novel = r.scores[0].error > CSN_ROUTE_TAU;
        if (c->routing_temperature > 0.0f) {
            csn_route_judge(&r, (double)c->routing_temperature, (double)c->routing_novelty_theta);
        }
    }
    *ret = r;
    return CAISSON_OK;
}

void csn_route_done(csn_route *r) {
    csn_free(r->scores);
    *r = (csn_route){0};
}
