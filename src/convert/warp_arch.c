/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/warp_arch.h"

#include "convert/warp_names.h"

enum { MAX_ROTATED = 128 };

static const char *attention_gap(const csn_arch *a) {
    for (uint32_t i = 0; i < a->n_layers; i++) {
        csn_layer_type type = i < a->n_layer_types ? a->layer_types[i] : CSN_LAYER_FULL_ATTENTION;
        if (type != CSN_LAYER_KDA && (type != CSN_LAYER_FULL_ATTENTION || !a->mla.present)) {
            return "attention that is not latent (MLA): WARP knows latent attention and KDA alone";
        }
    }
    if (a->mla.present && !a->mla.nope && !a->mla.rope_interleave) {
        return "rotated dims in halves: WARP rotates neighbouring pairs";
    }
    if (a->linear_n_key_heads != a->linear_n_value_heads ||
        a->linear_key_head_dim != a->linear_value_head_dim) {
        return "KDA with values of another width than its keys";
    }
    if (a->longrope.present || a->n_rope_freq_factors > 0 || a->partial_rotary_factor != 1.0f ||
        a->no_rope != NULL || (a->yarn.present && a->yarn.attention_factor != 1.0f)) {
        return "rotary embeddings that are neither plain nor YaRN with equal mscales";
    }
    if (a->yarn.present && !a->mla.nope && (a->yarn.untruncated || a->yarn.factor < 1)) {
        return "YaRN with \"truncate\": false, or with a factor below 1";
    }
    if (a->mla.present && !a->mla.nope && a->mla.qk_rope_head_dim > MAX_ROTATED) {
        return "more than 128 rotated dims in a head: WARP's engine has room for no more";
    }
    return NULL;
}

static const char *moe_gap(const csn_arch *a) {
    if (!a->moe.present) {
        return "no mixture of experts: there is nothing to stream";
    }
    if (!a->moe.router_sigmoid || a->moe.router_resonance) {
        return "a router of softmax: WARP's engine scores experts by the sigmoid, always";
    }
    if (a->moe.group_max) {
        return "groups of experts that are chosen by their best one";
    }
    if (!a->moe.has_shared || a->moe.moe_intermediate_size == 0 ||
        a->moe.shared_expert_intermediate_size % a->moe.moe_intermediate_size != 0) {
        return "a shared expert that is not as wide as some routed ones: WARP's engine has one, "
               "always";
    }
    if (a->moe.norm_topk_prob && a->moe.top_k == 1) {
        return "one expert a token whose weight is made 1: there it keeps its score";
    }
    if (a->moe.routed_expert_hidden_size != 0 && !a->moe.has_latent_norm) {
        return "latent experts without a norm behind them";
    }
    return NULL;
}

/* What of the model WARP has no words for, as a sentence; NULL: none. */
static const char *gap(const csn_arch *a) {
    const char *what = attention_gap(a);
    what = what != NULL ? what : moe_gap(a);
    if (what != NULL) {
        return what;
    }
    if (a->norm_style != CSN_NORM_QWEN ||
        (a->hidden_act != CSN_ACT_SILU && a->hidden_act != CSN_ACT_SITU)) {
        return "norms or activations of another family";
    }
    if (a->embed_multiplier != 1.0f || a->logit_multiplier != 1.0f ||
        a->attn_logit_softcapping != 0 || a->final_logit_softcapping != 0 ||
        a->query_pre_attn_scalar != 0 || a->attn_v_norm || a->num_loops > 1 || a->mtp.present ||
        a->linear_core.present || a->has_g3n || a->sliding_window != 0 ||
        a->attention_heads_per_layer != NULL || a->head_clusters != 0 || a->global_head_dim != 0 ||
        a->n_global_kv_heads != 0 || a->global_partial_rotary_factor != 0) {
        return "blocks or factors of another family";
    }
    return NULL;
}

static bool has_name(const csn_convert_plan *plan, const char *end) {
    for (uint32_t i = 0; i < plan->n; i++) {
        if (csn_str_ends(plan->items[i].name, csn_str_from(end))) {
            return true;
        }
    }
    return false;
}

/* Mixtures must be all layers from one on. */
static caisson_status find_first_mixture(const csn_convert_plan *plan, csn_arena *arena,
                                         csn_warp_words *w, caisson_error *err) {
    bool *is_mixture;
    CSN_TRY(CSN_ARENA_NEW(arena, w->n_layers, &is_mixture, err));
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t layer, expert;
        unsigned kind;
        if (csn_warp_expert_of(plan->items[i].name, &layer, &expert, &kind) &&
            layer < w->n_layers) {
            is_mixture[layer] = true;
        }
    }
    w->first_dense = 0;
    while (w->first_dense < w->n_layers && !is_mixture[w->first_dense]) {
        w->first_dense++;
    }
    for (uint32_t i = w->first_dense; i < w->n_layers; i++) {
        if (!is_mixture[i]) {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "experts",
                            .what = "a dense layer behind a mixture: in WARP all layers from one "
                                    "on are mixtures",
                            CSN_VALUES(w->first_dense, i));
        }
    }
    return CAISSON_OK;
}

static void name_family(const csn_arch *a, csn_warp_words *w) {
    bool is_k3 = a->attn_res_block_size != 0 || a->moe.routed_expert_hidden_size != 0;
    w->model_type = w->is_kda != NULL ? "kimi_linear" : "deepseek_v3";
    w->class_name = w->is_kda != NULL ? "KimiLinearForCausalLM" : "DeepseekV3ForCausalLM";
    w->outer_class = is_k3 ? "KimiK3ForConditionalGeneration" : NULL;
}

static caisson_status take_kda(const csn_arch *a, csn_arena *arena, csn_warp_words *w,
                               caisson_error *err) {
    bool *is_kda, any = false;
    CSN_TRY(CSN_ARENA_NEW(arena, w->n_layers, &is_kda, err));
    for (uint32_t i = 0; i < w->n_layers; i++) {
        is_kda[i] = i < a->n_layer_types && a->layer_types[i] == CSN_LAYER_KDA;
        any |= is_kda[i];
    }
    w->is_kda = any ? is_kda : NULL;
    w->n_kda_heads = a->linear_n_value_heads;
    w->kda_head_dim = a->linear_value_head_dim;
    w->kda_conv = a->linear_conv_kernel_dim;
    w->kda_lower_bound = a->has_kda_gate_lower_bound ? a->kda_gate_lower_bound : 0;
    return CAISSON_OK;
}

static void take_mla(const csn_arch *a, csn_warp_words *w) {
    double mscale = a->yarn.has_mscale_all_dim ? (double)a->yarn.mscale_all_dim : 0;
    w->q_lora_rank = a->mla.q_lora_rank;
    w->kv_lora_rank = a->mla.kv_lora_rank;
    w->qk_nope_head_dim = a->mla.qk_nope_head_dim;
    w->qk_rope_head_dim = a->mla.qk_rope_head_dim;
    w->v_head_dim = a->mla.v_head_dim;
    w->mla_rotates = a->mla.present && !a->mla.nope;
    w->rope_theta = a->rope_theta;
    w->yarn.present = a->yarn.present;
    w->yarn.factor = (double)a->yarn.factor;
    w->yarn.mscale = w->yarn.mscale_all_dim = mscale;
    w->yarn.beta_fast = (double)a->yarn.beta_fast;
    w->yarn.beta_slow = (double)a->yarn.beta_slow;
    w->yarn.original_max_position_embeddings = a->yarn.original_max_position_embeddings;
}

static void take_moe(const csn_arch *a, csn_warp_words *w) {
    w->n_experts = a->moe.n_experts;
    w->top_k = a->moe.top_k;
    w->expert_width = a->moe.moe_intermediate_size;
    w->n_shared = a->moe.shared_expert_intermediate_size / a->moe.moe_intermediate_size;
    w->routed_scaling_factor = a->moe.has_scaling ? a->moe.routed_scaling_factor : 1.0;
    w->renormalize = a->moe.norm_topk_prob;
    w->n_group = a->moe.n_group;
    w->topk_group = a->moe.topk_group;
    w->latent_size = a->moe.routed_expert_hidden_size;
}

static void take_eos(const csn_source *s, csn_warp_words *w) {
    w->n_eos = s->cmf != NULL ? s->cmf->chat.n_eos : s->n_eos;
    w->eos_token_ids = s->cmf != NULL ? s->cmf->chat.eos_token_ids : s->eos_token_ids;
    w->eos_token_id = w->n_eos > 0 && w->eos_token_ids[0] > 0 ? w->eos_token_ids[0] : -1;
}

caisson_status csn_warp_words_from(const csn_source *s, const csn_convert_plan *plan,
                                   csn_arena *arena, csn_warp_words *ret, caisson_error *err) {
    const csn_arch *a = &s->arch;
    const char *what = gap(a);
    if (what != NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "config",
                        .what = "a WARP directory cannot hold this model",
                        .got = csn_str_from(what));
    }
    csn_warp_words w = {.n_layers = a->n_layers,
                        .hidden_size = a->hidden_size,
                        .vocab_size = a->vocab_size,
                        .n_heads = a->n_heads,
                        .intermediate_size = a->intermediate_size,
                        .max_position_embeddings = a->max_position_embeddings,
                        .rms_norm_eps = a->rms_norm_eps,
                        .mla_gate = has_name(plan, "self_attn.g_proj.weight"),
                        .kda_full_gate = has_name(plan, "kda_attn.g_proj.weight"),
                        .attn_res_block = a->attn_res_block_size,
                        .is_situ = a->hidden_act == CSN_ACT_SITU,
                        .situ_beta = a->has_situ_beta ? a->activation_situ_beta : 1,
                        .situ_linear_beta =
                            a->has_situ_linear_beta ? a->activation_situ_linear_beta : 0};
    take_eos(s, &w);
    take_moe(a, &w);
    take_mla(a, &w);
    CSN_TRY(take_kda(a, arena, &w, err));
    CSN_TRY(find_first_mixture(plan, arena, &w, err));
    name_family(a, &w);
    *ret = w;
    return CAISSON_OK;
}
