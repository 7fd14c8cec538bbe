/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of models with latent attention: DeepSeek-V3 and Kimi-Linear in transformers' form,
 * Kimi K3 in its release's. */
#include <stdio.h>
#include <string.h>

#include "convert/hf_config_internal.h"

/* transformers' DeepSeek-V2 rotates pairs and passes over norm_topk_prob. */
static const char *v2_gap(const csn_arch *a) {
    return a->moe.norm_topk_prob     ? "weights of experts that are made to sum to 1"
           : !a->mla.rope_interleave ? "attention of another family"
                                     : NULL;
}

static bool is_kda(const csn_arch *a, uint32_t i) {
    return i < a->n_layer_types && a->layer_types[i] == CSN_LAYER_KDA;
}

/* Gates of attention are tensors, and only Kimi K3 has words for them. */
static bool has_gates(const csn_cmf *c) {
    for (uint32_t i = 0; i < c->dir.n; i++) {
        if (csn_str_ends(c->dir.tensors[i].name, CSN_STR("_attn.g_proj.weight"))) {
            return true;
        }
    }
    return false;
}

static bool has_kda(const csn_arch *a) {
    for (uint32_t i = 0; i < a->n_layers; i++) {
        if (is_kda(a, i)) {
            return true;
        }
    }
    return false;
}

const char *csn_hf_latent_gap(const csn_cmf *c, const char *model_type) {
    const csn_arch *a = &c->arch;
    bool is_k3 = strcmp(model_type, "kimi_k3") == 0;
    bool is_v2 = strcmp(model_type, "deepseek_v2") == 0;
    if (!a->mla.present || a->n_rope_freq_factors > 0 || a->longrope.present ||
        a->partial_rotary_factor != 1.0f || a->no_rope != NULL) {
        return "attention of another family";
    }
    if (!a->moe.present || a->moe.router_sigmoid == is_v2 || a->moe.router_resonance ||
        a->moe.group_max != (is_v2 && a->moe.n_group > 1)) {
        return "a router of another family";
    }
    if (is_v2 && v2_gap(a) != NULL) {
        return v2_gap(a);
    }
    if (a->tie_word_embeddings && strcmp(model_type, "kimi_linear") == 0) {
        return "a head that is the embedding, which this class does not know";
    }
    if (a->moe.moe_intermediate_size == 0) {
        return "experts whose width its arch does not tell";
    }
    if (a->moe.has_shared &&
        a->moe.shared_expert_intermediate_size % a->moe.moe_intermediate_size != 0) {
        return "a shared expert that is not as wide as some routed ones";
    }
    if (!is_k3 && (a->attn_res_block_size != 0 || a->hidden_act == CSN_ACT_SITU ||
                   a->moe.routed_expert_hidden_size != 0 || has_gates(c) ||
                   (a->has_kda_gate_lower_bound && a->kda_gate_lower_bound < 0))) {
        return "blocks of another family";
    }
    if (!is_k3 && strcmp(model_type, "kimi_linear") != 0 && has_kda(a)) {
        return "a kind of layer that these classes do not have";
    }
    if (a->linear_core.present || a->mtp.present || a->has_g3n || a->num_loops > 1 ||
        a->attention_heads_per_layer != NULL || a->head_clusters != 0 || a->attn_v_norm ||
        a->embed_multiplier != 1.0f || a->logit_multiplier != 1.0f || a->sliding_window != 0 ||
        a->norm_style == CSN_NORM_GEMMA) {
        return "blocks of another family";
    }
    return NULL;
}

bool csn_hf_has_router(const csn_cmf *c, uint32_t i) {
    char name[64];
    int n = snprintf(name, sizeof(name), "model.layers.%u.mlp.gate.weight", (unsigned)i);
    return csn_directory_find(&c->dir, csn_str_make(name, (size_t)n)) != NULL;
}

static void put_attention(csn_jw *w, const csn_arch *a) {
    csn_jw_key(w, CSN_STR("q_lora_rank"));
    if (a->mla.q_lora_rank != 0) {
        csn_jw_u64(w, a->mla.q_lora_rank);
    } else {
        csn_jw_null(w);
    }
    csn_jw_put_u64(w, "kv_lora_rank", a->mla.kv_lora_rank);
    csn_jw_put_u64(w, "qk_nope_head_dim", a->mla.qk_nope_head_dim);
    csn_jw_put_u64(w, "qk_rope_head_dim", a->mla.qk_rope_head_dim);
    csn_jw_put_u64(w, "qk_head_dim", a->mla.qk_nope_head_dim + a->mla.qk_rope_head_dim);
    csn_jw_put_u64(w, "v_head_dim", a->mla.v_head_dim);
    csn_jw_put_u64(w, "head_dim", a->mla.qk_rope_head_dim); /* transformers': what rotates */
    csn_jw_put_bool(w, "rope_interleave", a->mla.rope_interleave);
    csn_jw_put_bool(w, "attention_bias", false);
}

static void put_router(const csn_cmf *c, bool is_deepseek, csn_jw *w) {
    const csn_arch *a = &c->arch;
    uint32_t first = 0;
    while (first < a->n_layers && !csn_hf_has_router(c, first)) {
        first++;
    }
    uint32_t n_shared = a->moe.shared_expert_intermediate_size / a->moe.moe_intermediate_size;
    csn_jw_put_u64(w, is_deepseek ? "n_routed_experts" : "num_experts", a->moe.n_experts);
    csn_jw_put_u64(w, is_deepseek ? "num_experts_per_tok" : "num_experts_per_token", a->moe.top_k);
    csn_jw_put_u64(w, is_deepseek ? "n_shared_experts" : "num_shared_experts", n_shared);
    csn_jw_put_u64(w, is_deepseek ? "n_group" : "num_expert_group",
                   a->moe.n_group != 0 ? a->moe.n_group : 1);
    csn_jw_put_u64(w, "topk_group", a->moe.n_group != 0 ? a->moe.topk_group : 1);
    csn_jw_put_u64(w, "moe_intermediate_size", a->moe.moe_intermediate_size);
    csn_jw_put_bool(w, is_deepseek ? "norm_topk_prob" : "moe_renormalize", a->moe.norm_topk_prob);
    csn_jw_put_f64(w, "routed_scaling_factor",
                   a->moe.has_scaling ? a->moe.routed_scaling_factor : 1.0);
    csn_jw_put_u64(w, "first_k_dense_replace", first);
    csn_jw_put_str(w, is_deepseek ? "scoring_func" : "moe_router_activation_func",
                   a->moe.router_sigmoid ? CSN_STR("sigmoid") : CSN_STR("softmax"));
    if (is_deepseek) {
        csn_jw_put_str(w, "topk_method",
                       a->moe.router_sigmoid ? CSN_STR("noaux_tc")
                       : a->moe.group_max    ? CSN_STR("group_limited_greedy")
                                             : CSN_STR("greedy"));
    }
}

static void put_layer_types(csn_jw *w, const csn_cmf *c) {
    const csn_arch *a = &c->arch;
    csn_jw_key(w, CSN_STR("layer_types"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        csn_jw_str(w, is_kda(a, i) ? CSN_STR("linear_attention") : CSN_STR("full_attention"));
    }
    csn_jw_array_end(w);
    csn_jw_key(w, CSN_STR("mlp_layer_types"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        csn_jw_str(w, csn_hf_has_router(c, i) ? CSN_STR("sparse") : CSN_STR("dense"));
    }
    csn_jw_array_end(w);
    csn_jw_put_u64(w, "linear_num_heads", a->linear_n_value_heads);
    csn_jw_put_u64(w, "linear_head_dim", a->linear_value_head_dim);
    csn_jw_put_u64(w, "linear_conv_kernel_dim", a->linear_conv_kernel_dim);
}

/* Layers are counted from 1. */
static void put_layer_numbers(csn_jw *w, const csn_arch *a, const char *key, bool of_kda) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        if (is_kda(a, i) == of_kda) {
            csn_jw_u64(w, i + 1);
        }
    }
    csn_jw_array_end(w);
}

/* Flags that are not meant are left out: they count by their presence (warp facts 2.4). */
static void put_k3(csn_jw *w, const csn_cmf *c) {
    const csn_arch *a = &c->arch;
    bool has_gate = false;
    bool is_full_rank = false;
    for (uint32_t i = 0; i < c->dir.n; i++) {
        csn_str name = c->dir.tensors[i].name;
        has_gate |= csn_str_ends(name, CSN_STR("self_attn.g_proj.weight"));
        is_full_rank |= csn_str_ends(name, CSN_STR("kda_attn.g_proj.weight"));
    }
    if (a->attn_res_block_size != 0) {
        csn_jw_put_u64(w, "attn_res_block_size", a->attn_res_block_size);
    }
    if (a->moe.routed_expert_hidden_size != 0) {
        csn_jw_put_u64(w, "routed_expert_hidden_size", a->moe.routed_expert_hidden_size);
    }
    if (a->moe.has_latent_norm) {
        csn_jw_put_bool(w, "latent_moe_use_norm", true);
    }
    if (has_gate) {
        csn_jw_put_bool(w, "mla_use_output_gate", true);
    }
    if (a->has_situ_beta) {
        csn_jw_put_f64(w, "activation_situ_beta", a->activation_situ_beta);
        csn_jw_put_f64(w, "activation_situ_linear_beta", a->activation_situ_linear_beta);
    }
    csn_jw_key(w, CSN_STR("linear_attn_config"));
    csn_jw_object(w);
    put_layer_numbers(w, a, "kda_layers", true);
    put_layer_numbers(w, a, "full_attn_layers", false);
    csn_jw_put_u64(w, "num_heads", a->linear_n_value_heads);
    csn_jw_put_u64(w, "head_dim", a->linear_value_head_dim);
    csn_jw_put_u64(w, "short_conv_kernel_size", a->linear_conv_kernel_dim);
    if (is_full_rank) {
        csn_jw_put_bool(w, "use_full_rank_gate", true);
    }
    if (a->has_kda_gate_lower_bound) {
        csn_jw_put_f64(w, "gate_lower_bound", a->kda_gate_lower_bound);
    }
    csn_jw_object_end(w);
}

void csn_hf_put_latent(const csn_cmf *c, bool is_deepseek, bool is_k3, csn_jw *w) {
    put_attention(w, &c->arch);
    put_router(c, is_deepseek, w);
    if (is_deepseek) {
        return;
    }
    csn_jw_put_bool(w, "mla_use_nope", c->arch.mla.nope);
    csn_jw_put_u64(w, "model_max_length", c->arch.max_position_embeddings);
    if (is_k3) {
        put_k3(w, c);
    } else {
        put_layer_types(w, c);
    }
}
