/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts run for each token, and with what weight (CMF 2.2): by softmax (Qwen3-MoE, Mixtral)
 * or by sigmoid with a bias that only chooses (DeepSeek-V3, Kimi), in groups (DeepSeek-V2 and V3)
 * or not. */
#include <math.h>

#include "model/blocks/blocks.h"
#include "model/math.h"

#define NOT_ROUTABLE (-1.0f) /* weights are not negative */

struct route {
    const csn_vec *vec;
    const csn_moe *moe;
    const uint8_t *routable; /* bits, or NULL = all */
    uint32_t top_k;
    float *logits;
    csn_pick *picks;
};

uint32_t csn_route_n_picks(const csn_moe *moe, const csn_active_visit *active) {
    bool fewer = active != NULL && active->experts != NULL && active->n_experts < moe->top_k;
    return fewer ? active->n_experts : moe->top_k;
}

/* Turns logits into weights exp(z - max) and returns their sum. */
static float softmax_weights(const struct route *r, float *z) {
    uint32_t n = r->moe->n_experts;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        max = z[i] > max && csn_is_active(r->routable, i) ? z[i] : max;
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float d = z[i] - max; /* not a number: weight 0 */
        z[i] = !csn_is_active(r->routable, i) ? NOT_ROUTABLE
               : d > -100.0f                  ? (float)csn_f64_exp((double)d)
                                              : 0.0f;
        sum += z[i] > 0.0f ? z[i] : 0.0f;
    }
    return sum;
}

static void sigmoid_weights(const struct route *r, float *z) {
    r->vec->sigmoid(z, r->moe->n_experts);
    for (uint32_t i = 0; i < r->moe->n_experts; i++) {
        bool is_number = z[i] >= 0.0f;
        z[i] = !csn_is_active(r->routable, i) ? NOT_ROUTABLE : is_number ? z[i] : 0.0f;
    }
}

/* What experts are chosen by. A bias adds to probabilities: w[i] / all. */
static float score(const csn_moe *moe, const float *w, float all, uint32_t i) {
    if (w[i] < 0.0f) {
        return -INFINITY;
    }
    return moe->bias != NULL ? w[i] / all + moe->bias[i] : w[i];
}

/* The sum of the two largest scores of the routable of experts [i0, i1), of one the only, of none
 * less than any; or the largest alone. *ret_n: how many are routable. */
static float group_score(const csn_moe *moe, const float *w, float all, uint32_t i0, uint32_t i1,
                         uint32_t *ret_n) {
    float first = -INFINITY;
    float second = -INFINITY;
    uint32_t n = 0;
    for (uint32_t i = i0; i < i1; i++) {
        float s = score(moe, w, all, i);
        n += w[i] >= 0.0f;
        if (s > first) {
            second = first;
            first = s;
        } else if (s > second) {
            second = s;
        }
    }
    *ret_n = n;
    return n > 1 && !moe->group_max ? first + second : first;
}

/* Takes the experts of all groups but the topk_group best out; of equal ones the first is better.
 * Where a mask leaves fewer than top_k experts in these, the next best stay too. */
static void keep_groups(const csn_moe *moe, uint32_t top_k, float all, float *w) {
    uint32_t size = moe->n_experts / moe->n_group;
    float scores[CSN_MAX_EXPERT_GROUPS];
    uint32_t n_routable[CSN_MAX_EXPERT_GROUPS];
    for (uint32_t g = 0; g < moe->n_group; g++) {
        scores[g] = group_score(moe, w, all, g * size, (g + 1) * size, &n_routable[g]);
    }
    for (uint32_t g = 0; g < moe->n_group; g++) {
        uint32_t n_better = 0;
        uint32_t n_there = 0; /* experts in the better groups */
        for (uint32_t k = 0; k < moe->n_group; k++) {
            if (scores[k] > scores[g] || (scores[k] == scores[g] && k < g)) {
                n_better++;
                n_there += n_routable[k];
            }
        }
        bool is_out = n_better >= moe->topk_group && n_there >= top_k;
        for (uint32_t i = g * size; is_out && i < (g + 1) * size; i++) {
            w[i] = NOT_ROUTABLE;
        }
    }
}

/* The top_k of the largest scores, the lower id first among equals, sorted by id, none twice
 * whatever the bias is. w is used up. */
static void choose(const csn_moe *moe, float *w, float all, uint32_t top_k, csn_pick *picks) {
    for (uint32_t k = 0; k < top_k; k++) {
        uint32_t best = moe->n_experts;
        float best_score = -INFINITY;
        for (uint32_t i = 0; i < moe->n_experts; i++) {
            float s = score(moe, w, all, i);
            if (w[i] >= 0.0f && (best == moe->n_experts || s > best_score)) {
                best = i;
                best_score = s;
            }
        }
        uint32_t at = k;
        for (; at > 0 && picks[at - 1].i_expert > best; at--) {
            picks[at] = picks[at - 1];
        }
        picks[at] = (csn_pick){best, w[best]};
        w[best] = NOT_ROUTABLE;
    }
}

/* What the weights of the chosen are divided by. */
static float divisor(const struct route *r, const csn_pick *picks, float all) {
    const csn_moe *moe = r->moe;
    if (!moe->norm_topk_prob) {
        return all;
    }
    float sum = 0.0f;
    for (uint32_t k = 0; k < r->top_k; k++) {
        sum += picks[k].weight;
    }
    return moe->is_sigmoid ? sum + 1e-20f : sum;
}

static void route_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct route *r = ctx;
    const csn_moe *moe = r->moe;
    for (uint64_t t = t0; t < t1; t++) {
        float *w = r->logits + t * moe->n_experts;
        csn_pick *picks = r->picks + t * r->top_k;
        float all = 1.0f; /* the sum over all experts, or what stands for it */
        if (moe->is_sigmoid) {
            sigmoid_weights(r, w);
        } else {
            all = softmax_weights(r, w);
        }
        if (moe->n_group > 1) {
            keep_groups(moe, r->top_k, all, w);
        }
        choose(moe, w, all, r->top_k, picks);
        float by = divisor(r, picks, all);
        for (uint32_t k = 0; k < r->top_k; k++) {
            picks[k].weight = picks[k].weight / by * moe->scale;
        }
    }
}

void csn_block_route(csn_ops *ops, const csn_moe *moe, const csn_active_visit *active,
                     const float *x, uint64_t x_stride, uint64_t n, float *logits,
                     csn_pick *picks) {
    struct route r = {.vec = ops->vec,
                      .moe = moe,
                      .routable = active != NULL ? active->experts : NULL,
                      .top_k = csn_route_n_picks(moe, active),
                      .logits = logits,
                      .picks = picks};
    csn_linear item = {&moe->router, logits, moe->n_experts, NULL};
    csn_ops_linear_normed(ops, &item, 1, x, x_stride, n, NULL, NULL);
    csn_ops_each(ops, n, route_span, &r);
}
