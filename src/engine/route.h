/* SPDX-License-Identifier: Apache-2.0 */
/* Which skill a prompt belongs to (CMF 9, facts 10.3): reconstruction of a hidden state, phi, by
 * the affine subspace of each skill; the smallest error wins. */
#ifndef CSN_ENGINE_ROUTE_H
#define CSN_ENGINE_ROUTE_H

#include "engine/session.h"

/* The backbone in f32 arithmetic, without a mask, watched: phi does not depend on how a model is
 * then run. */
typedef struct csn_phi csn_phi;
/* For prompts of up to n_ctx tokens. */
caisson_status csn_phi_new(csn_model *model, uint32_t n_ctx, unsigned n_threads, csn_phi **ret,
                           caisson_error *err);
void csn_phi_free(csn_phi *p); /* NULL is fine */
/* Runs a prompt (encoded without BOS). */
caisson_status csn_phi_run(csn_phi *p, const int32_t *ids, uint32_t n, const csn_progress *progress,
                           caisson_error *err);
/* The mean over the prompt's positions of the residual stream behind visit i_visit of a layer:
 * [hidden], good until the next run. */
const float *csn_phi_get(const csn_phi *p, uint32_t i_visit);

/* E: the squared distance of phi from the subspace, *ret_raw, over |phi|^2. With is_unit phi is
 * first scaled to length 1. Sums in f64, in order. */
double csn_selection_error(const csn_cmf_selection *s, const float *phi, uint32_t hidden,
                           double *ret_raw);

typedef struct csn_route_score {
    const csn_cmf_skill *skill;
    double raw;   /* the squared distance: who wins */
    double error; /* E = raw / |phi|^2 */
    double p;     /* softmax of -raw / header.routing.temperature; 0 without it */
} csn_route_score;

typedef struct csn_route {
    csn_route_score *scores; /* [n] every skill with a selection, the smallest raw first */
    uint32_t n;
    /* The prompt is like none of them: E above CSN_ROUTE_TAU, or where header.routing is there,
     * novelty above its novelty_theta. */
    bool is_novel, is_calibrated;
    double margin, novelty; /* of a calibrated file */
} csn_route;

#define CSN_ROUTE_TAU 0.30

/* Sorts scores of which skill, raw and error are there (n > 0). */
void csn_route_sort(csn_route *r);
/* Sets p, margin, novelty and is_novel of sorted scores (facts 10.4). */
void csn_route_judge(csn_route *r, double temperature, double novelty_theta);

/* Scores the prompt that p ran; n = 0 where no skill has a selection. */
caisson_status csn_route_make(csn_model *model, const csn_phi *p, csn_route *ret,
                              caisson_error *err);
void csn_route_done(csn_route *r); /* of a zeroed one too */

#endif
