/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an `arch` object in the key order of facts 2.1: what is always written, then optional
 * keys that are set, then keys that only the source object has. */
#include "arch/arch_internal.h"

static void opt_u32(csn_jw *w, const char *key, uint32_t v) {
    if (v != 0) {
        csn_jw_put_u64(w, key, v);
    }
}

static void opt_f32(csn_jw *w, const char *key, float v, float absent) {
    if (v != absent) {
        csn_jw_put_f32(w, key, v);
    }
}

static void opt_f64(csn_jw *w, const char *key, double v) {
    if (v != 0) {
        csn_jw_put_f64(w, key, v);
    }
}

/* Written even when unset. */
static void null_u32(csn_jw *w, const char *key, uint32_t v) {
    csn_jw_key(w, csn_str_from(key));
    if (v != 0) {
        csn_jw_u64(w, v);
    } else {
        csn_jw_null(w);
    }
}

/* Keys of `source` that the table does not know, in their order. */
static void put_unknown(csn_jw *w, const csn_jval *source, const csn_jfield *fields, size_t n) {
    for (csn_jiter it = csn_jval_iter(source); csn_jiter_next(&it);) {
        if (!csn_jfields_know(fields, n, it.key)) {
            csn_jw_key(w, it.key);
            csn_jw_value(w, it.value);
        }
    }
}

static void end_object(csn_jw *w, const csn_arch *a, const char *key, const csn_jfield *fields,
                       size_t n) {
    const csn_jval *v = csn_jval_get(a->source, key);
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        put_unknown(w, v, fields, n);
    }
    csn_jw_object_end(w);
}

void csn_arch_put_yarn(const csn_arch *a, csn_jw *w) {
    csn_jw_put_f32(w, "factor", a->yarn.factor);
    csn_jw_put_u64(w, "original_max_position_embeddings", a->yarn.original_max_position_embeddings);
    csn_jw_put_f32(w, "beta_fast", a->yarn.beta_fast);
    csn_jw_put_f32(w, "beta_slow", a->yarn.beta_slow);
    csn_jw_put_f32(w, "attention_factor", a->yarn.attention_factor);
    if (a->yarn.has_mscale_all_dim) {
        csn_jw_put_f32(w, "mscale_all_dim", a->yarn.mscale_all_dim);
    }
}

static void write_yarn(csn_jw *w, const csn_arch *a) {
    if (!a->yarn.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("yarn"));
    csn_jw_object(w);
    csn_arch_put_yarn(a, w);
    if (a->yarn.untruncated) {
        csn_jw_put_bool(w, "caisson.untruncated", true);
    }
    end_object(w, a, "yarn", csn_yarn_fields, CSN_YARN_N_FIELDS);
}

static void write_mla(csn_jw *w, const csn_arch *a) {
    if (!a->mla.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("mla"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "kv_lora_rank", a->mla.kv_lora_rank);
    csn_jw_put_u64(w, "qk_rope_head_dim", a->mla.qk_rope_head_dim);
    csn_jw_put_u64(w, "qk_nope_head_dim", a->mla.qk_nope_head_dim);
    csn_jw_put_u64(w, "v_head_dim", a->mla.v_head_dim);
    opt_u32(w, "q_lora_rank", a->mla.q_lora_rank);
    if (a->mla.nope) {
        csn_jw_put_bool(w, "nope", true);
    }
    if (a->mla.rope_interleave) {
        csn_jw_put_bool(w, "caisson.rope_interleave", true);
    }
    if (a->mla.norm_eps != 0) {
        csn_jw_put_f64(w, "caisson.norm_eps", a->mla.norm_eps);
    }
    end_object(w, a, "mla", csn_mla_fields, CSN_MLA_N_FIELDS);
}

static void write_mtp(csn_jw *w, const csn_arch *a) {
    if (!a->mtp.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("mtp"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "num_layers", a->mtp.n_layers);
    csn_jw_put_bool(w, "share_lm_head", a->mtp.share_lm_head);
    csn_jw_put_bool(w, "share_embed", a->mtp.share_embed);
    end_object(w, a, "mtp", csn_mtp_fields, CSN_MTP_N_FIELDS);
}

static void write_moe(csn_jw *w, const csn_arch *a) {
    if (!a->moe.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("moe"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "num_experts", a->moe.n_experts);
    csn_jw_put_u64(w, "top_k", a->moe.top_k);
    csn_jw_put_u64(w, "moe_intermediate_size", a->moe.moe_intermediate_size);
    csn_jw_put_bool(w, "norm_topk_prob", a->moe.norm_topk_prob);
    if (a->moe.has_shared) {
        csn_jw_put_u64(w, "shared_expert_intermediate_size",
                       a->moe.shared_expert_intermediate_size);
    }
    if (a->moe.router_sigmoid) {
        csn_jw_put_bool(w, "router_sigmoid", true);
    }
    if (a->moe.has_scaling) {
        csn_jw_put_f64(w, "routed_scaling_factor", a->moe.routed_scaling_factor);
    }
    if (a->moe.router_resonance) {
        csn_jw_put_bool(w, "router_resonance", true);
    }
    opt_u32(w, "caisson.n_group", a->moe.n_group);
    opt_u32(w, "caisson.topk_group", a->moe.topk_group);
    if (a->moe.group_max) {
        csn_jw_put_bool(w, "caisson.group_max", true);
    }
    opt_u32(w, "caisson.routed_expert_hidden_size", a->moe.routed_expert_hidden_size);
    if (a->moe.has_latent_norm) {
        csn_jw_put_bool(w, "caisson.latent_norm", true);
    }
    end_object(w, a, "moe", csn_moe_fields, CSN_MOE_N_FIELDS);
}

static void write_linear_core(csn_jw *w, const csn_arch *a) {
    if (!a->linear_core.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("linear_core"));
    csn_jw_object(w);
    csn_jw_put_str(w, "kind", a->linear_core.kind);
    csn_jw_put_u64(w, "num_heads", a->linear_core.n_heads);
    opt_u32(w, "nphase", a->linear_core.nphase);
    opt_u32(w, "value_head_dim", a->linear_core.value_head_dim);
    end_object(w, a, "linear_core", csn_linear_core_fields, CSN_LINEAR_CORE_N_FIELDS);
}

static void write_longrope(csn_jw *w, const csn_arch *a) {
    if (!a->longrope.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("caisson.longrope"));
    csn_jw_object(w);
    csn_jw_put_f64s(w, "short_factor", a->longrope.short_factor, a->longrope.n);
    csn_jw_put_f64s(w, "long_factor", a->longrope.long_factor, a->longrope.n);
    csn_jw_put_u64(w, "original_max_position_embeddings",
                   a->longrope.original_max_position_embeddings);
    csn_jw_put_f32(w, "attention_factor", a->longrope.attention_factor);
    end_object(w, a, "caisson.longrope", csn_longrope_fields, CSN_LONGROPE_N_FIELDS);
}

/* arch_name to partial_rotary_factor: always there. */
static void write_head(csn_jw *w, const csn_arch *a) {
    csn_jw_put_str(w, "arch_name", a->arch_name);
    csn_jw_put_u64(w, "hidden_size", a->hidden_size);
    csn_jw_put_u64(w, "intermediate_size", a->intermediate_size);
    csn_jw_put_u64(w, "num_layers", a->n_layers);
    csn_jw_put_u64(w, "num_attention_heads", a->n_heads);
    csn_jw_put_u64(w, "num_kv_heads", a->n_kv_heads);
    csn_jw_put_u64(w, "head_dim", a->head_dim);
    csn_jw_put_u64(w, "vocab_size", a->vocab_size);
    csn_jw_key(w, CSN_STR("layer_types"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layer_types; i++) {
        csn_jw_str(w, csn_str_from(csn_layer_type_names[a->layer_types[i]]));
    }
    csn_jw_array_end(w);
    csn_jw_put_f64(w, "rms_norm_eps", a->rms_norm_eps);
    csn_jw_put_str(w, "norm_style", csn_str_from(csn_norm_style_names[a->norm_style]));
    csn_jw_put_f64(w, "rope_theta", a->rope_theta);
    csn_jw_put_bool(w, "tie_word_embeddings", a->tie_word_embeddings);
    csn_jw_put_f32(w, "partial_rotary_factor", a->partial_rotary_factor);
}

/* yarn to head_clusters: only when set. */
static void write_options(csn_jw *w, const csn_arch *a) {
    write_yarn(w, a);
    if (a->attention_heads_per_layer != NULL) {
        csn_jw_key(w, CSN_STR("attention_heads_per_layer"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < a->n_layers; i++) {
            csn_jw_u64(w, a->attention_heads_per_layer[i]);
        }
        csn_jw_array_end(w);
    }
    if (a->hidden_act != CSN_ACT_SILU) {
        csn_jw_put_str(w, "hidden_act", csn_str_from(csn_act_names[a->hidden_act]));
    }
    opt_f32(w, "embed_multiplier", a->embed_multiplier, 1.0f);
    opt_f64(w, "query_pre_attn_scalar", a->query_pre_attn_scalar);
    opt_u32(w, "sliding_window", a->sliding_window);
    opt_u32(w, "sliding_window_pattern", a->sliding_window_pattern);
    opt_f64(w, "rope_local_base_freq", a->rope_local_base_freq);
    opt_f32(w, "local_partial_rotary_factor", a->local_partial_rotary_factor, 0.0f);
    opt_u32(w, "global_head_dim", a->global_head_dim);
    opt_u32(w, "num_global_kv_heads", a->n_global_kv_heads);
    opt_f32(w, "global_partial_rotary_factor", a->global_partial_rotary_factor, 0.0f);
    opt_f64(w, "final_logit_softcapping", a->final_logit_softcapping);
    write_mla(w, a);
    if (a->has_situ_beta) {
        csn_jw_put_f64(w, "activation_situ_beta", a->activation_situ_beta);
    }
    if (a->has_situ_linear_beta) {
        csn_jw_put_f64(w, "activation_situ_linear_beta", a->activation_situ_linear_beta);
    }
    opt_f64(w, "attn_logit_softcapping", a->attn_logit_softcapping);
    if (a->attn_v_norm) {
        csn_jw_put_bool(w, "attn_v_norm", true);
    }
    write_mtp(w, a);
    write_moe(w, a);
    write_linear_core(w, a);
    opt_u32(w, "head_clusters", a->head_clusters);
}

void csn_arch_write(const csn_arch *a, csn_jw *w) {
    csn_jw_object(w);
    write_head(w, a);
    write_options(w, a);
    csn_jw_put_u64(w, "max_position_embeddings", a->max_position_embeddings);
    null_u32(w, "linear_conv_kernel_dim", a->linear_conv_kernel_dim);
    null_u32(w, "linear_num_key_heads", a->linear_n_key_heads);
    null_u32(w, "linear_num_value_heads", a->linear_n_value_heads);
    opt_u32(w, "linear_key_head_dim", a->linear_key_head_dim);
    opt_u32(w, "linear_value_head_dim", a->linear_value_head_dim);
    if (a->n_rope_freq_factors > 0) {
        csn_jw_put_f64s(w, "rope_freq_factors", a->rope_freq_factors, a->n_rope_freq_factors);
    }
    opt_f32(w, "logit_multiplier", a->logit_multiplier, 1.0f);
    if (a->has_g3n) { /* not looked into: the source's object */
        csn_jw_key(w, CSN_STR("g3n"));
        csn_jw_value(w, csn_jval_get(a->source, "g3n"));
    }
    if (a->has_kda_gate_lower_bound) {
        csn_jw_put_f64(w, "kda_gate_lower_bound", a->kda_gate_lower_bound);
    }
    if (a->num_loops != 1) {
        csn_jw_put_u64(w, "num_loops", a->num_loops);
    }
    if (a->loop_final_norm) {
        csn_jw_put_bool(w, "loop_final_norm", true);
    }
    write_longrope(w, a);
    if (a->sliding_all) {
        csn_jw_put_bool(w, "caisson.sliding_all", true);
    }
    if (a->no_rope != NULL) {
        csn_jw_key(w, CSN_STR("caisson.no_rope_layers"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < a->n_layers; i++) {
            if (a->no_rope[i]) {
                csn_jw_u64(w, i);
            }
        }
        csn_jw_array_end(w);
    }
    opt_u32(w, "caisson.attn_res_block_size", a->attn_res_block_size);
    put_unknown(w, a->source, csn_arch_fields, CSN_ARCH_N_FIELDS);
    csn_jw_object_end(w);
}
