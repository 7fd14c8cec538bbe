/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts behind a router (route.c). One order of summation for prompts and decode
 * alike: for each token the chosen experts by rising id, then the shared one. */
#include <string.h>

#include "model/blocks/stream.h"
#include "model/math.h"

struct gather {
    const csn_moe_memory *mem;
    float *y;
    uint64_t dim;
};

/* y[rows[i]] += weights[i] * result i, for the columns [r0, r1). */
static void scatter_rows(void *ctx, uint64_t n, uint64_t r0, uint64_t r1) {
    const struct gather *g = ctx;
    for (uint64_t i = 0; i < n; i++) {
        float w = g->mem->weights[i];
        float *y = g->y + g->mem->rows[i] * g->dim;
        const float *e = g->mem->y + i * g->dim;
        for (uint64_t c = r0; c < r1; c++) {
            y[c] += w * e[c];
        }
    }
}

/* mem->y = the expert's results for the n gathered rows x; added, with their weights, to g->y. */
static void run_expert(csn_ops *ops, const csn_vec_act *act, const csn_expert *e,
                       csn_moe_memory *mem, const float *x, uint64_t dim, uint64_t n,
                       struct gather *g) {
    csn_block_gate_up(ops, act, &e->gate, &e->up, NULL, x, dim, n, mem->gate, mem->up);
    csn_linear item = {&e->down, mem->y, dim, NULL};
    csn_ops_linear(ops, &item, 1, mem->gate, e->gate.rows, n, g != NULL ? scatter_rows : NULL, g);
}

static void run_shared(csn_ops *ops, const csn_vec_act *act, const csn_moe *moe,
                       csn_moe_memory *mem, const float *x, uint64_t n, struct gather *g) {
    if (moe->shared_gate != NULL) {
        csn_linear item = {moe->shared_gate, mem->weights, 1, NULL};
        csn_ops_linear_normed(ops, &item, 1, x, g->dim, n, NULL, NULL);
    }
    for (uint64_t t = 0; t < n; t++) {
        mem->rows[t] = (uint32_t)t;
        mem->weights[t] = moe->shared_gate != NULL ? csn_sigmoid(mem->weights[t]) : 1.0f;
    }
    run_expert(ops, act, moe->shared, mem, x, g->dim, n, g);
}

uint32_t csn_moe_rows(csn_moe_memory *mem, uint32_t id, uint32_t top_k, uint64_t n) {
    uint32_t n_rows = 0;
    for (uint64_t t = 0; t < n; t++) {
        uint32_t k = mem->cursor[t];
        const csn_pick *pick = &mem->picks[t * top_k + k];
        if (k < top_k && pick->i_expert == id) {
            mem->cursor[t]++;
            mem->rows[n_rows] = (uint32_t)t;
            mem->weights[n_rows++] = pick->weight;
        }
    }
    return n_rows;
}

void csn_moe_run(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                 uint32_t id, const csn_expert *e, uint32_t top_k, const float *x, float *y,
                 uint64_t n) {
    uint64_t dim = moe->dim;
    struct gather g = {mem, y, dim};
    uint32_t n_rows = csn_moe_rows(mem, id, top_k, n);
    for (uint32_t i = 0; i < n_rows && n > 1; i++) { /* a single row is x itself */
        memcpy(mem->x + i * dim, x + mem->rows[i] * dim, dim * sizeof(float));
    }
    if (n_rows > 0) {
        run_expert(ops, &plan->act, e, mem, n > 1 ? mem->x : x, dim, n_rows, &g);
    }
}

void csn_moe_meanwhile(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                       uint64_t n) {
    if (mem->meanwhile != NULL) {
        run_expert(ops, &plan->act, moe->shared, mem, mem->meanwhile, plan->hidden, n, NULL);
    }
}

/* y [n][dim] = the sum of the chosen experts of x [n][dim]. */
static caisson_status run_routed(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                                 csn_moe_memory *mem, uint32_t top_k, const float *x, float *y,
                                 uint64_t n, caisson_error *err) {
    memset(y, 0, n * moe->dim * sizeof(float));
    memset(mem->cursor, 0, n * sizeof(*mem->cursor));
    if (moe->stream != NULL) {
        return csn_block_streamed(ops, plan, moe, mem, top_k, x, y, n, err);
    }
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        csn_moe_run(ops, plan, moe, mem, e, &moe->experts[e], top_k, x, y, n);
    }
    return CAISSON_OK;
}

/* The same at the experts' own width, between two projections. */
static caisson_status run_latent(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                                 csn_moe_memory *mem, uint32_t top_k, const float *x, float *y,
                                 uint64_t n, caisson_error *err) {
    const csn_latent *latent = moe->latent;
    uint64_t dim = moe->dim;
    csn_linear down = {&latent->down, mem->latent_x, dim, NULL};
    csn_linear up = {&latent->up, y, plan->hidden, NULL};
    csn_ops_linear_normed(ops, &down, 1, x, plan->hidden, n, NULL, NULL);
    CSN_TRY(run_routed(ops, plan, moe, mem, top_k, mem->latent_x, mem->latent_y, n, err));
    if (latent->norm != NULL) {
        csn_block_norm(ops, mem->latent_y, dim, latent->norm, plan->norm_eps, mem->latent_y, dim, n,
                       dim);
    }
    csn_ops_linear(ops, &up, 1, mem->latent_y, dim, n, NULL, NULL);
    return CAISSON_OK;
}

caisson_status csn_block_moe(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                             csn_moe_memory *mem, const csn_active_visit *active, const float *x,
                             float *y, uint64_t n, caisson_error *err) {
    uint32_t top_k = csn_route_n_picks(moe, active);
    csn_block_route(ops, moe, active, x, plan->hidden, n, mem->logits, mem->picks);
    bool is_meanwhile =
        moe->shared != NULL && moe->shared_gate == NULL && csn_block_streams_few(moe, top_k, n);
    mem->meanwhile = is_meanwhile ? x : NULL;
    if (moe->latent != NULL) {
        CSN_TRY(run_latent(ops, plan, moe, mem, top_k, x, y, n, err));
    } else {
        CSN_TRY(run_routed(ops, plan, moe, mem, top_k, x, y, n, err));
    }
    if (is_meanwhile) {
        csn_block_add(ops, y, mem->y, n, plan->hidden);
    } else if (moe->shared != NULL) {
        struct gather g = {mem, y, plan->hidden};
        run_shared(ops, &plan->act, moe, mem, x, n, &g);
    }
    return CAISSON_OK;
}
