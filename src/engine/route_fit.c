/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/route_fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { MAX_SCORES = 1 << 22, GRID = 149 }; /* of temperatures, up to 1e6 */

static const float target_fpr = 0.05f;

typedef struct sample { /* one hidden state that is kept */
    csn_route route;    /* its distances from all skills of its layer */
    const csn_cmf_skill *truth;
} sample;

typedef struct fit {
    const csn_cmf_skill *skills; /* [n] */
    uint32_t n, hidden;
    sample *samples;         /* [n_samples] */
    csn_route_score *scores; /* of all of them */
    uint32_t n_samples;
} fit;

/* Scores of one state against the skills whose states are of the same layer. */
static uint32_t score(const fit *f, const csn_cmf_selection *of, const float *phi,
                      csn_route_score *ret) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const csn_cmf_selection *s = f->skills[i].selection;
        if (s->phi_layer == of->phi_layer) {
            csn_route_score *to = &ret[n++];
            to->skill = &f->skills[i];
            to->error = csn_selection_error(s, phi, f->hidden, &to->raw);
        }
    }
    return n;
}

static caisson_status make_samples(fit *f, caisson_error *err) {
    uint64_t n_samples = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        n_samples += f->skills[i].selection->n_holdout;
    }
    if (n_samples > 0 && n_samples > MAX_SCORES / f->n) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header", .tensor = CSN_STR("skills"),
                        .what = "too many held-out states to calibrate the routing with",
                        CSN_VALUES(MAX_SCORES / f->n, n_samples));
    }
    CSN_TRY(CSN_NEW((size_t)n_samples + 1, &f->samples, err));
    CSN_TRY(CSN_NEW((size_t)n_samples * f->n + 1, &f->scores, err));
    for (uint32_t i = 0; i < f->n; i++) {
        const csn_cmf_selection *s = f->skills[i].selection;
        for (uint32_t k = 0; k < s->n_holdout; k++) {
            sample *to = &f->samples[f->n_samples];
            to->truth = &f->skills[i];
            to->route.scores = f->scores + (size_t)f->n_samples * f->n;
            to->route.n = score(f, s, s->holdout + (size_t)k * f->hidden, to->route.scores);
            csn_route_sort(&to->route);
            f->n_samples++;
        }
    }
    return CAISSON_OK;
}

/* The negative log likelihood of the true skills. */
static double unlikeliness(const fit *f, double temperature) {
    double sum = 0;
    for (uint32_t k = 0; k < f->n_samples; k++) {
        sample *s = &f->samples[k];
        csn_route_judge(&s->route, temperature, 1);
        for (uint32_t i = 0; i < s->route.n; i++) {
            if (s->route.scores[i].skill == s->truth) {
                sum -= log(fmax(s->route.scores[i].p, 1e-9));
            }
        }
    }
    return sum;
}

/* Raw errors are squares of hidden states: their size differs by orders from model to model. */
static double find_temperature(const fit *f) {
    double best = 1;
    double least = (double)INFINITY;
    double t = 1e-3;
    for (int i = 0; i < GRID; i++) {
        double now = unlikeliness(f, t);
        if (now < least) {
            least = now;
            best = t;
        }
        t *= 1.15;
    }
    return best;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static caisson_status find_theta(const fit *f, double temperature, double *ret,
                                 caisson_error *err) {
    double *novelty;
    CSN_TRY(CSN_NEW(f->n_samples, &novelty, err));
    for (uint32_t k = 0; k < f->n_samples; k++) {
        csn_route_judge(&f->samples[k].route, temperature, 1);
        novelty[k] = f->samples[k].route.novelty;
    }
    qsort(novelty, f->n_samples, sizeof(*novelty), by_size);
    size_t i = (size_t)((double)(f->n_samples - 1) * (1 - (double)target_fpr) + 0.5);
    double theta = novelty[i] + 1e-4; /* the state itself is not new */
    *ret = theta < 0.999 ? theta : 0.999;
    csn_free(novelty);
    return CAISSON_OK;
}

caisson_status csn_routing_fit(const csn_cmf_skill *skills, uint32_t n, uint32_t hidden,
                               csn_routing *ret, caisson_error *err) {
    fit f = {.skills = skills, .n = n, .hidden = hidden};
    double theta = 0;
    csn_routing r = {0};
    caisson_status s = make_samples(&f, err);
    if (s == CAISSON_OK && f.n_samples > 0) {
        double temperature = find_temperature(&f);
        s = find_theta(&f, temperature, &theta, err);
        r = (csn_routing){(float)temperature, (float)theta, f.n_samples};
    }
    csn_free(f.samples);
    csn_free(f.scores);
    if (s == CAISSON_OK) {
        *ret = r;
    }
    return s;
}

void csn_routing_write(csn_jw *w, const csn_routing *r) {
    csn_jw_object(w);
    csn_jw_put_f32(w, "temperature", r->temperature);
    csn_jw_put_f32(w, "novelty_theta", r->novelty_theta);
    csn_jw_put_u64(w, "samples", r->n_samples);
    csn_jw_put_f32(w, "target_fpr", target_fpr);
    csn_jw_object_end(w);
}
