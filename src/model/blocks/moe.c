/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts behind a softmax router (CMF 2.2; Qwen3-MoE, Mixtral). One order of
 * summation for prompts and decode alike: for each token the chosen experts by rising id. */
#include <math.h>
#include <string.h>

#include "model/blocks/blocks.h"
#include "model/math.h"

#define NOT_ROUTABLE (-1.0f) /* weights are not negative */

struct route {
    const csn_moe *moe;
    const uint8_t *routable; /* bits, or NULL = all */
    uint32_t top_k;
    float *logits;
    csn_pick *picks;
    uint32_t *cursor;
};

/* The top_k largest of z [n], the lower id first among equals, sorted by id; weights are exp(z -
 * max). z is used up. */
static void choose(float *z, uint32_t n, uint32_t top_k, csn_pick *picks) {
    for (uint32_t k = 0; k < top_k; k++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++) {
            best = z[i] > z[best] ? i : best;
        }
        uint32_t at = k;
        for (; at > 0 && picks[at - 1].i_expert > best; at--) {
            picks[at] = picks[at - 1];
        }
        picks[at] = (csn_pick){best, z[best]};
        z[best] = NOT_ROUTABLE;
    }
}

static void route_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct route *r = ctx;
    const csn_moe *moe = r->moe;
    for (uint64_t t = t0; t < t1; t++) {
        float *z = r->logits + t * moe->n_experts;
        csn_pick *picks = r->picks + t * r->top_k;
        float max = -INFINITY;
        for (uint32_t i = 0; i < moe->n_experts; i++) {
            max = z[i] > max && csn_is_active(r->routable, i) ? z[i] : max;
        }
        float sum = 0.0f;
        for (uint32_t i = 0; i < moe->n_experts; i++) {
            float d = z[i] - max; /* not a number: weight 0 */
            z[i] = !csn_is_active(r->routable, i) ? NOT_ROUTABLE
                   : d > -100.0f                  ? (float)csn_f64_exp((double)d)
                                                  : 0.0f;
            sum += z[i] > 0.0f ? z[i] : 0.0f;
        }
        choose(z, moe->n_experts, r->top_k, picks);
        if (moe->norm_topk_prob) {
            sum = 0.0f;
            for (uint32_t k = 0; k < r->top_k; k++) {
                sum += picks[k].weight;
            }
        }
        for (uint32_t k = 0; k < r->top_k; k++) {
            picks[k].weight = picks[k].weight / sum * moe->scale;
        }
        r->cursor[t] = 0;
    }
}

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

/* Adds the expert's results for the n gathered rows x, with their weights, to y. */
static void run_expert(csn_ops *ops, int act, const csn_expert *e, csn_moe_memory *mem,
                       const float *x, uint64_t n, struct gather *g) {
    csn_block_gate_up(ops, act, &e->gate, &e->up, NULL, x, g->dim, n, mem->gate, mem->up);
    csn_linear item = {&e->down, mem->y, g->dim, NULL};
    csn_ops_linear(ops, &item, 1, mem->gate, e->gate.rows, n, scatter_rows, g);
}

static void run_shared(csn_ops *ops, int act, const csn_moe *moe, csn_moe_memory *mem,
                       const float *x, uint64_t n, struct gather *g) {
    if (moe->shared_gate != NULL) {
        csn_linear item = {moe->shared_gate, mem->weights, 1, NULL};
        csn_ops_linear_normed(ops, &item, 1, x, g->dim, n, NULL, NULL);
    }
    for (uint64_t t = 0; t < n; t++) {
        mem->rows[t] = (uint32_t)t;
        float z = moe->shared_gate != NULL ? mem->weights[t] : 0.0f;
        double away = z > -80.0f ? z < 80.0f ? -(double)z : -80.0 : 80.0;
        mem->weights[t] =
            moe->shared_gate != NULL ? (float)(1.0 / (1.0 + csn_f64_exp(away))) : 1.0f;
    }
    run_expert(ops, act, moe->shared, mem, x, n, g);
}

void csn_block_moe(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                   const csn_active_visit *active, const float *x, float *y, uint64_t n) {
    uint64_t dim = plan->hidden;
    struct gather g = {mem, y, dim};
    const uint8_t *routable = active != NULL ? active->experts : NULL;
    uint32_t top_k = moe->top_k;
    if (routable != NULL && active->n_experts < top_k) {
        top_k = active->n_experts;
    }
    struct route r = {moe, routable, top_k, mem->logits, mem->picks, mem->cursor};
    csn_linear item = {&moe->router, mem->logits, moe->n_experts, NULL};
    csn_ops_linear_normed(ops, &item, 1, x, dim, n, NULL, NULL);
    csn_ops_each(ops, n, route_span, &r);
    memset(y, 0, n * dim * sizeof(float));
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        uint64_t n_rows = 0;
        for (uint64_t t = 0; t < n; t++) {
            uint32_t k = mem->cursor[t];
            const csn_pick *pick = &mem->picks[t * top_k + k];
            if (k == top_k || pick->i_expert != e) {
                continue;
            }
            mem->cursor[t]++;
            mem->rows[n_rows] = (uint32_t)t;
            mem->weights[n_rows] = pick->weight;
            if (n > 1) { /* a single row is x itself */
                memcpy(mem->x + n_rows * dim, x + t * dim, dim * sizeof(float));
            }
            n_rows++;
        }
        if (n_rows > 0) {
            run_expert(ops, plan->act, &moe->experts[e], mem, n > 1 ? mem->x : x, n_rows, &g);
        }
    }
    if (moe->shared != NULL) {
        run_shared(ops, plan->act, moe, mem, x, n, &g);
    }
}
