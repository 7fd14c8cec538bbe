/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <pthread.h>
#include <stdio.h>

struct csn_model {
    csn_store *store;
    csn_plan plan;
    uint32_t max_ubatch;
    uint64_t max_packed;
    csn_plan **skill_plans; /* [cmf.n_skills] NULL: nobody asked for it yet */
    csn_arena arena;        /* the plans and their arrays */
    pthread_mutex_t mutex;  /* guards skill_plans and arena after csn_model_new; taken alone */
};

caisson_status csn_model_new(csn_store *store, csn_model **ret, caisson_error *err) {
    csn_model *m;
    CSN_TRY(CSN_NEW(1, &m, err));
    pthread_mutex_init(&m->mutex, NULL);
    caisson_status s = csn_plan_make(store, NULL, 0, &m->arena, &m->plan, err);
    if (s == CAISSON_OK) {
        s = CSN_ARENA_NEW(&m->arena, csn_store_cmf(store)->n_skills, &m->skill_plans, err);
    }
    if (s != CAISSON_OK) {
        csn_model_free(m);
        return s;
    }
    m->store = store;
    m->max_ubatch = UINT32_MAX;
    m->max_packed = UINT64_MAX;
    *ret = m;
    return CAISSON_OK;
}

void csn_model_free(csn_model *m) {
    if (m == NULL) {
        return;
    }
    csn_store_free(m->store);
    csn_arena_done(&m->arena);
    pthread_mutex_destroy(&m->mutex);
    csn_free(m);
}

static caisson_status make_skill_plan(csn_model *m, csn_str id, csn_plan **ret,
                                      caisson_error *err) {
    csn_plan_part part = {.skill = id, .weight = 1.0f};
    csn_plan *plan;
    CSN_TRY(CSN_ARENA_NEW(&m->arena, 1, &plan, err));
    CSN_TRY(csn_plan_make(m->store, &part, 1, &m->arena, plan, err));
    *ret = plan;
    return CAISSON_OK;
}

caisson_status csn_model_skill_plan(csn_model *m, const csn_cmf_skill *skill, const csn_plan **ret,
                                    caisson_error *err) {
    csn_plan **plan = &m->skill_plans[skill - csn_store_cmf(m->store)->skills];
    pthread_mutex_lock(&m->mutex);
    caisson_status s = *plan != NULL ? CAISSON_OK : make_skill_plan(m, skill->id, plan, err);
    if (s == CAISSON_OK) {
        *ret = *plan;
    }
    pthread_mutex_unlock(&m->mutex);
    return s;
}

const csn_arch *csn_model_arch(const csn_model *m) {
    return csn_store_arch(m->store);
}

csn_store *csn_model_store(const csn_model *m) {
    return m->store;
}

const csn_plan *csn_model_plan(const csn_model *m) {
    return &m->plan;
}

void csn_model_set_max_ubatch(csn_model *m, uint32_t n) {
    m->max_ubatch = n;
}

uint32_t csn_model_max_ubatch(const csn_model *m) {
    return m->max_ubatch;
}

void csn_model_set_max_packed(csn_model *m, uint64_t n) {
    m->max_packed = n;
}

uint64_t csn_model_max_packed(const csn_model *m) {
    return m->max_packed;
}

uint64_t csn_model_bytes_per_token(const csn_model *m) {
    return m->plan.bytes_per_token;
}

static void block(csn_jw *w, const char *name, const char *why) {
    csn_jw_object(w);
    csn_jw_put_str(w, "block", csn_str_from(name));
    csn_jw_put_str(w, "why", csn_str_from(why));
    csn_jw_object_end(w);
}

static void describe_kda(const csn_kda *kda, csn_jw *w) {
    block(w, "Kimi Delta Attention", "arch.layer_types says Kda");
    if (kda->bound < 0.0f) {
        block(w, "bounded decay", "arch.kda_gate_lower_bound is below 0");
    }
    block(w, kda->gate_a != NULL ? "output gate of low rank" : "output gate of full rank",
          kda->gate_a != NULL ? "kda_attn.g_a_proj.weight is there"
                              : "kda_attn.g_proj.weight is there");
}

static void describe_mla(const csn_model *m, const csn_mla *mla, csn_jw *w) {
    const csn_arch *a = csn_model_arch(m);
    block(w, "latent attention, all keys", "arch.mla");
    if (mla->q_a != NULL) {
        block(w, "queries of low rank", "arch.mla.q_lora_rank");
    }
    if (a->mla.nope) {
        block(w, "no rope", "arch.mla.nope");
    } else {
        block(w, mla->has_pairs ? "rope, interleaved pairs" : "rope",
              mla->has_pairs ? "arch.mla has caisson.rope_interleave" : "arch.rope_theta");
        if (a->yarn.present) {
            block(w, "YaRN", "arch.yarn");
        }
    }
    if (mla->gate != NULL) {
        block(w, "output gate", "self_attn.g_proj.weight is there");
    }
}

static void describe_attention(const csn_model *m, uint32_t i, csn_jw *w) {
    const csn_arch *a = csn_model_arch(m);
    if (m->plan.layers[i].kda != NULL) {
        describe_kda(m->plan.layers[i].kda, w);
        return;
    }
    if (m->plan.layers[i].mla != NULL) {
        describe_mla(m, m->plan.layers[i].mla, w);
        return;
    }
    const csn_layer *l = &m->plan.layers[i];
    const csn_rope *r = &m->plan.ropes[l->i_rope];
    if (l->window == 0) {
        block(w, "attention, all keys",
              i < a->n_layer_types && a->layer_types[i] == CSN_LAYER_FULL_ATTENTION
                  ? "arch.layer_types says FullAttention"
                  : "arch names no window for this layer");
    } else if (i < a->n_layer_types && a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION) {
        block(w, "attention, sliding window", "arch.layer_types says SlidingAttention");
    } else if (a->sliding_window_pattern != 0) {
        block(w, "attention, sliding window",
              "(layer + 1) is not a multiple of arch.sliding_window_pattern");
    } else {
        block(w, "attention, sliding window", "arch says that every layer is local");
    }
    if (l->q.bias != NULL) {
        block(w, "biases on q, k, v", "self_attn.{q,k,v}_proj.bias are there");
    }
    if (l->q_norm != NULL || l->k_norm != NULL) {
        block(w, "norm of query and key heads", "self_attn.{q,k}_norm.weight are there");
    }
    if (m->plan.v_norm) {
        block(w, "norm of value heads", "arch.attn_v_norm");
    }
    bool is_scaled = !r->is_local && r->rotary_dim > 0;
    if (r->rotary_dim == 0) {
        block(w, "no rope", "arch has the layer in caisson.no_rope_layers");
    } else {
        block(w, r->is_local ? "rope, local base" : "rope",
              r->is_local ? "local layer and arch.rope_local_base_freq" : "arch.rope_theta");
    }
    if (is_scaled && a->n_rope_freq_factors != 0) {
        block(w, "rope frequency factors", "arch.rope_freq_factors");
    }
    if (is_scaled && a->yarn.present) {
        block(w, "YaRN", "arch.yarn");
    }
    if (is_scaled && a->longrope.present) {
        block(w, "longrope", "arch has caisson.longrope");
    }
    if (m->plan.attn_softcap > 0.0f) {
        block(w, "soft-cap of scores", "arch.attn_logit_softcapping");
    }
    if (l->post_attn_norm != NULL) {
        block(w, "norm of the attention's output", "pre_feedforward_layernorm.weight is there");
    }
}

static const char *act_name(csn_vec_act_kind kind) {
    switch (kind) {
    case CSN_VEC_SILU: return "silu";
    case CSN_VEC_GELU_TANH: return "gelu_tanh";
    case CSN_VEC_SITU: return "situ";
    default: return "sigmoid";
    }
}

static void block_of(csn_jw *w, const char *kind, const char *which, const char *why) {
    char name[64];
    (void)snprintf(name, sizeof(name), "%s%s", kind, which);
    block(w, name, why);
}

static void describe_moe(const csn_model *m, const csn_moe *moe, csn_jw *w) {
    block_of(w, "mixture of experts, ", act_name(m->plan.act.kind),
             "mlp.gate.weight is there; arch.moe, arch.hidden_act");
    if (moe->is_sigmoid) {
        block(w, "router: sigmoid", "arch.moe.router_sigmoid");
    }
    if (moe->bias != NULL) {
        block(w, "router: bias that only chooses", "mlp.expert_bias is there");
    }
    if (moe->n_group > 1) {
        block(w,
              moe->group_max ? "router: experts of the groups with the best expert"
                             : "router: experts of the best groups",
              moe->group_max ? "arch.moe has caisson.n_group, caisson.group_max"
                             : "arch.moe has caisson.n_group");
    }
    if (moe->latent != NULL) {
        block(w, moe->latent->norm != NULL ? "latent experts, norm of their sum" : "latent experts",
              "arch.moe has caisson.routed_expert_hidden_size");
    }
    if (moe->shared != NULL) {
        block(w, moe->shared_gate != NULL ? "shared expert with a gate" : "shared expert",
              "mlp.shared_expert.gate_proj.weight is there");
    }
}

void csn_model_describe_layer(const csn_model *m, uint32_t i_layer, csn_jw *w) {
    const csn_layer *l = &m->plan.layers[i_layer];
    csn_jw_put_u64(w, "layer", i_layer);
    csn_jw_put_u64(w, "heads", l->n_heads);
    csn_jw_put_u64(w, "kv_heads", l->n_kv_heads);
    csn_jw_put_u64(w, "head_dim", l->head_dim);
    csn_jw_put_u64(w, "rotary_dim", l->kda != NULL ? 0 : m->plan.ropes[l->i_rope].rotary_dim);
    csn_jw_put_u64(w, "window", l->window);
    csn_jw_put_u64(w, "ffn", l->ffn);
    if (l->moe != NULL) {
        csn_jw_put_u64(w, "experts", l->moe->n_experts);
        csn_jw_put_u64(w, "experts_per_token", l->moe->top_k);
    }
    csn_jw_key(w, CSN_STR("blocks"));
    csn_jw_array(w);
    if (m->plan.res_block != 0) {
        block(w, "attention residuals", "arch has caisson.attn_res_block_size");
    }
    block(w, "norm", "input_layernorm.weight is there");
    describe_attention(m, i_layer, w);
    block(w, "norm",
          l->post_attn_norm != NULL ? "pre_feedforward_layernorm.weight is there"
                                    : "post_attention_layernorm.weight, no sandwich");
    if (l->moe == NULL) {
        block_of(w, "gated FFN, ", act_name(m->plan.act.kind),
                 "mlp.gate_proj.weight is there and no router; arch.hidden_act");
    } else {
        describe_moe(m, l->moe, w);
    }
    if (l->post_ffn_norm != NULL) {
        block(w, "norm of the FFN's output", "post_feedforward_layernorm.weight is there");
    }
    csn_jw_array_end(w);
}
