/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of latent attention (facts 3.5): which projections there are, and the shapes that arch
 * gives them. */
#include <math.h>

#include "model/blocks/blocks.h"
#include "model/math.h"
#include "model/plan_internal.h"

/* 1 / sqrt(dims of a query head), and YaRN's correction of it (warp facts 14). */
static float scale_of(const csn_arch *a) {
    double scale = 1.0 / sqrt((double)a->mla.qk_nope_head_dim + (double)a->mla.qk_rope_head_dim);
    if (!a->mla.nope && a->yarn.present && a->yarn.has_mscale_all_dim && a->yarn.factor > 1.0f) {
        double m = 0.1 * (double)a->yarn.mscale_all_dim * csn_f64_log((double)a->yarn.factor) + 1.0;
        scale *= m * m;
    }
    return (float)scale;
}

static caisson_status plan_query(struct csn_maker *m, uint32_t i, csn_mla *mla, uint64_t q_rows,
                                 caisson_error *err) {
    uint64_t hidden = m->plan->hidden;
    uint64_t rank = m->arch->mla.q_lora_rank;
    if (rank == 0) {
        return csn_plan_weight(m, csn_plan_name(m, i, "self_attn.q_proj.weight"), q_rows, hidden,
                               &mla->q, err);
    }
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &mla->q_a, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.q_a_proj.weight"), rank, hidden,
                            mla->q_a, err));
    CSN_TRY(csn_plan_vector(m, csn_plan_name(m, i, "self_attn.q_a_layernorm.weight"), rank, 0.0f,
                            &mla->q_a_norm, err));
    return csn_plan_weight(m, csn_plan_name(m, i, "self_attn.q_b_proj.weight"), q_rows, rank,
                           &mla->q, err);
}

/* csn_arch_parse checks this too, but not every arch comes from it. */
static caisson_status check_dims(const csn_mla *mla, caisson_error *err) {
    const uint32_t dims[] = {mla->n_nope, mla->n_rope, mla->n_v, mla->n_latent};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        if (dims[i] == 0 || dims[i] > CSN_MAX_MLA_DIM) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = CSN_STR("mla"),
                            .what = "a size of latent attention is out of range",
                            CSN_VALUES(CSN_MAX_MLA_DIM, dims[i]));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_mla_plan(struct csn_maker *m, uint32_t i, csn_layer *l, caisson_error *err) {
    const csn_arch *a = m->arch;
    uint64_t hidden = m->plan->hidden;
    csn_mla *mla;
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &mla, err));
    mla->n_nope = a->mla.qk_nope_head_dim;
    mla->n_rope = a->mla.qk_rope_head_dim;
    mla->n_v = a->mla.v_head_dim;
    mla->n_latent = a->mla.kv_lora_rank;
    mla->has_pairs = a->mla.rope_interleave;
    mla->scale = scale_of(a);
    mla->norm_eps = (float)(a->mla.norm_eps != 0 ? a->mla.norm_eps : a->rms_norm_eps);
    CSN_TRY(check_dims(mla, err));
    uint64_t q_rows = (uint64_t)a->n_heads * (mla->n_nope + mla->n_rope);
    uint64_t v_rows = (uint64_t)a->n_heads * mla->n_v;
    uint64_t kv_rows = (uint64_t)a->n_heads * (mla->n_nope + mla->n_v);
    if (q_rows > INT32_MAX / 4 || kv_rows > INT32_MAX / 4) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header", .tensor = CSN_STR("mla"),
                        .what = "heads of latent attention are too many or too wide",
                        CSN_VALUES(INT32_MAX / 4, q_rows > kv_rows ? q_rows : kv_rows));
    }
    CSN_TRY(plan_query(m, i, mla, q_rows, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.kv_a_proj_with_mqa.weight"),
                            (uint64_t)mla->n_latent + mla->n_rope, hidden, &mla->kv_a, err));
    CSN_TRY(csn_plan_vector(m, csn_plan_name(m, i, "self_attn.kv_a_layernorm.weight"),
                            mla->n_latent, 0.0f, &mla->kv_a_norm, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.kv_b_proj.weight"), kv_rows,
                            mla->n_latent, &mla->kv_b, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.o_proj.weight"), hidden, v_rows,
                            &l->o, err));
    csn_str gate = csn_plan_name(m, i, "self_attn.g_proj.weight");
    if (csn_plan_has(m, gate)) {
        CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &mla->gate, err));
        CSN_TRY(csn_plan_weight(m, gate, v_rows, hidden, mla->gate, err));
    }
    l->mla = mla;
    l->n_heads = a->n_heads;
    l->n_kv_heads = 1;
    l->head_dim = mla->n_nope + mla->n_rope;
    l->first[0] = mla->q_a != NULL ? mla->q_a : &mla->q;
    l->first[1] = &mla->kv_a;
    l->first[2] = mla->gate;
    csn_plan *p = m->plan;
    csn_plan_widen(&p->max_q, q_rows > v_rows ? q_rows : v_rows);
    csn_plan_widen(&p->max_kv, (uint64_t)mla->n_latent + mla->n_rope);
    csn_plan_widen(&p->max_gate, mla->gate != NULL ? v_rows : 0);
    csn_plan_widen(&p->max_low, a->mla.q_lora_rank);
    return csn_rope_plan(a, i, m->arena, p, &l->i_rope, err);
}
