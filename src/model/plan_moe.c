/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a feed-forward network: one expert, or a router over many (facts 15.1: the layer is a
 * mixture where mlp.gate.weight is there). */
#include <stdio.h>

#include "base/size.h"
#include "model/blocks/blocks.h"
#include "model/plan_internal.h"

static csn_str expert_name(struct csn_maker *m, uint32_t i_layer, const char *prefix,
                           const char *suffix) {
    char tail[96];
    (void)snprintf(tail, sizeof(tail), "%s%s", prefix, suffix);
    return csn_plan_name(m, i_layer, tail);
}

caisson_status csn_plan_expert(struct csn_maker *m, uint32_t i_layer, const char *prefix,
                               uint64_t dim, csn_expert *ret, caisson_error *err) {
    csn_expert e;
    CSN_TRY(csn_plan_weight(m, expert_name(m, i_layer, prefix, "gate_proj.weight"), 0, dim, &e.gate,
                            err));
    uint64_t width = e.gate.m.rows;
    CSN_TRY(csn_plan_weight(m, expert_name(m, i_layer, prefix, "up_proj.weight"), width, dim, &e.up,
                            err));
    CSN_TRY(csn_plan_weight(m, expert_name(m, i_layer, prefix, "down_proj.weight"), dim, width,
                            &e.down, err));
    *ret = e;
    return CAISSON_OK;
}

static const char *expert_prefix(char buf[48], uint32_t i) {
    (void)snprintf(buf, 48, "mlp.experts.%u.", i);
    return buf;
}

/* Experts are those from 0 up to the first that is missing (facts 12.4); the router has a row for
 * each. A file that was cut down has fewer than arch.moe names. */
static uint32_t count_experts(struct csn_maker *m, uint32_t i) {
    char prefix[48];
    uint32_t n = 0;
    while (n < m->arch->moe.n_experts &&
           csn_plan_has(m, expert_name(m, i, expert_prefix(prefix, n), "gate_proj.weight"))) {
        n++;
    }
    return n;
}

static caisson_status plan_shared(struct csn_maker *m, uint32_t i, csn_moe *moe,
                                  caisson_error *err) {
    if (!csn_plan_has(m, csn_plan_name(m, i, "mlp.shared_expert.gate_proj.weight"))) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &moe->shared, err));
    CSN_TRY(csn_plan_expert(m, i, "mlp.shared_expert.", m->plan->hidden, moe->shared, err));
    csn_str gate = csn_plan_name(m, i, "mlp.shared_expert_gate.weight");
    if (csn_plan_has(m, gate)) {
        CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &moe->shared_gate, err));
        CSN_TRY(csn_plan_weight(m, gate, 1, m->plan->hidden, moe->shared_gate, err));
    }
    return CAISSON_OK;
}

/* A file that was cut down would have other groups than arch names. */
static caisson_status plan_groups(const struct csn_maker *m, csn_moe *moe, caisson_error *err) {
    uint32_t n_group = m->arch->moe.n_group;
    if (n_group <= 1) {
        return CAISSON_OK;
    }
    uint32_t topk_group = m->arch->moe.topk_group;
    if (n_group > CSN_MAX_EXPERT_GROUPS || moe->n_experts != m->arch->moe.n_experts ||
        moe->n_experts % n_group != 0 || topk_group == 0 || topk_group > n_group ||
        moe->top_k > moe->n_experts / n_group * topk_group) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "header",
                        .tensor = CSN_STR("moe.caisson.n_group"),
                        .what = "not equal groups of all experts, or too many of them",
                        CSN_VALUES(CSN_MAX_EXPERT_GROUPS, n_group));
    }
    moe->n_group = n_group;
    moe->topk_group = topk_group;
    moe->group_max = m->arch->moe.group_max;
    return CAISSON_OK;
}

static caisson_status plan_bias(struct csn_maker *m, uint32_t i, csn_moe *moe, caisson_error *err) {
    csn_str name = csn_plan_name(m, i, "mlp.expert_bias");
    return csn_plan_has(m, name) ? csn_plan_vector(m, name, moe->n_experts, 0.0f, &moe->bias, err)
                                 : CAISSON_OK;
}

static caisson_status plan_latent(struct csn_maker *m, uint32_t i, csn_moe *moe,
                                  caisson_error *err) {
    uint64_t hidden = m->plan->hidden;
    moe->dim = m->arch->moe.routed_expert_hidden_size;
    if (moe->dim == 0) {
        moe->dim = (uint32_t)hidden;
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &moe->latent, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "mlp.routed_expert_down_proj.weight"), moe->dim,
                            hidden, &moe->latent->down, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "mlp.routed_expert_up_proj.weight"), hidden,
                            moe->dim, &moe->latent->up, err));
    if (!m->arch->moe.has_latent_norm) {
        return CAISSON_OK;
    }
    return csn_plan_vector(m, csn_plan_name(m, i, "mlp.routed_expert_norm.weight"), moe->dim, 0.0f,
                           &moe->latent->norm, err);
}

static void plan_stream(const struct csn_maker *m, uint32_t i, csn_moe *moe) {
    csn_stream *stream = csn_store_stream(m->store);
    int64_t i_stream = stream != NULL ? csn_stream_layer(stream, i) : -1;
    if (i_stream >= 0) {
        moe->stream = stream;
        moe->i_stream = (uint32_t)i_stream;
    }
}

static const csn_warp_bank *find_bank(const struct csn_maker *m, uint32_t i_layer) {
    const csn_warp *w = csn_store_warp(m->store);
    for (uint32_t i = 0; w != NULL && i < w->n_banks; i++) {
        if (w->banks[i].layer == i_layer) {
            return &w->banks[i];
        }
    }
    return NULL;
}

/* Experts that are the records of a bank: they are always streamed. */
static caisson_status plan_bank(struct csn_maker *m, uint32_t i, const csn_warp_bank *bank,
                                csn_moe *moe, csn_layer *l, caisson_error *err) {
    const csn_warp *w = csn_store_warp(m->store);
    csn_vq_sizes *vq = &m->plan->vq;
    if (w->expert_hidden != moe->dim) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "manifest",
                        .tensor = csn_plan_name(m, i, "mlp.gate.weight"),
                        .what = "the experts' width is not that of their input",
                        CSN_VALUES(moe->dim, w->expert_hidden));
    }
    *vq = (csn_vq_sizes){.hidden = w->expert_hidden,
                         .width = w->expert_width,
                         .stages = w->stages,
                         .entries = w->entries,
                         .is_packed = bank->books[0].is_packed};
    moe->bank = bank;
    l->ffn = vq->width > l->ffn ? vq->width : l->ffn;
    m->plan->bytes_per_token += bank->stride * moe->top_k;
    plan_stream(m, i, moe);
    return CAISSON_OK;
}

static caisson_status plan_matrices(struct csn_maker *m, uint32_t i, csn_moe *moe, csn_layer *l,
                                    caisson_error *err) {
    char prefix[48];
    uint32_t n = moe->n_experts;
    uint64_t before = m->plan->bytes_per_token;
    CSN_TRY(CSN_ARENA_NEW(m->arena, n, &moe->experts, err));
    for (uint32_t e = 0; e < n; e++) {
        CSN_TRY(csn_plan_expert(m, i, expert_prefix(prefix, e), moe->dim, &moe->experts[e], err));
        uint64_t width = moe->experts[e].gate.m.rows;
        l->ffn = width > l->ffn ? (uint32_t)width : l->ffn;
    }
    uint64_t all = m->plan->bytes_per_token - before;
    m->plan->bytes_per_token = before + (n != 0 ? all / n : 0) * moe->top_k;
    plan_stream(m, i, moe);
    return CAISSON_OK;
}

caisson_status csn_moe_plan(struct csn_maker *m, uint32_t i, csn_layer *l, caisson_error *err) {
    const csn_arch *a = m->arch;
    char prefix[48];
    csn_str router = csn_plan_name(m, i, "mlp.gate.weight");
    if (!a->moe.present) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = CSN_STR("moe"),
                        .what = "a layer has a router, but arch.moe is missing",
                        CSN_TEXTS(CSN_STR("arch.moe"), router));
    }
    csn_moe *moe;
    const csn_warp_bank *bank = find_bank(m, i);
    uint32_t n = bank != NULL ? bank->n_experts : count_experts(m, i);
    if (n == 0) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory",
                        .tensor = expert_name(m, i, expert_prefix(prefix, 0), "gate_proj.weight"),
                        .what = "a router, but no expert that it could choose");
    }
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &moe, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "mlp.gate.weight"), n, m->plan->hidden,
                            &moe->router, err));
    moe->n_experts = n;
    moe->top_k = a->moe.top_k < n ? a->moe.top_k : n;
    moe->is_sigmoid = a->moe.router_sigmoid;
    moe->norm_topk_prob = a->moe.norm_topk_prob;
    moe->scale = a->moe.has_scaling ? (float)a->moe.routed_scaling_factor : 1.0f;
    CSN_TRY(plan_groups(m, moe, err));
    CSN_TRY(plan_bias(m, i, moe, err));
    CSN_TRY(plan_latent(m, i, moe, err));
    CSN_TRY(bank != NULL ? plan_bank(m, i, bank, moe, l, err) : plan_matrices(m, i, moe, l, err));
    CSN_TRY(plan_shared(m, i, moe, err));
    if (moe->shared != NULL && moe->shared->gate.m.rows > l->ffn) {
        l->ffn = (uint32_t)moe->shared->gate.m.rows;
    }
    l->moe = moe;
    return CAISSON_OK;
}
