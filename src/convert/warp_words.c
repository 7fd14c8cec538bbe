/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/warp_words.h"

static void key_class(csn_jw *w, const char *name) {
    csn_jw_key(w, CSN_STR("architectures"));
    csn_jw_array(w);
    csn_jw_str(w, csn_str_from(name));
    csn_jw_array_end(w);
}

static void put_experts(csn_jw *w, const csn_warp_words *c) {
    csn_jw_put_u64(w, "first_k_dense_replace", c->first_dense);
    csn_jw_put_u64(w, "moe_intermediate_size", c->expert_width);
    csn_jw_put_u64(w, "num_experts", c->n_experts);
    csn_jw_put_u64(w, "num_experts_per_token", c->top_k);
    csn_jw_put_u64(w, "num_shared_experts", c->n_shared);
    if (c->renormalize) { /* its presence alone means yes */
        csn_jw_put_bool(w, "moe_renormalize", true);
    }
    csn_jw_put_str(w, "moe_router_activation_func", CSN_STR("sigmoid"));
    if (c->n_group > 0) {
        csn_jw_put_u64(w, "n_group", c->n_group);
        csn_jw_put_u64(w, "topk_group", c->topk_group);
    }
    csn_jw_put_f64(w, "routed_scaling_factor", c->routed_scaling_factor);
    if (c->latent_size != 0) {
        csn_jw_put_u64(w, "routed_expert_hidden_size", c->latent_size);
        csn_jw_put_bool(w, "latent_moe_use_norm", true); /* presence again */
    }
}

static void put_rope(csn_jw *w, const csn_warp_words *c) {
    csn_jw_put_bool(w, "mla_use_nope", !c->mla_rotates);
    csn_jw_put_f64(w, "rope_theta", c->rope_theta);
    if (!c->yarn.present) {
        return;
    }
    csn_jw_key(w, CSN_STR("rope_scaling"));
    csn_jw_object(w);
    csn_jw_put_f64(w, "beta_fast", c->yarn.beta_fast);
    csn_jw_put_f64(w, "beta_slow", c->yarn.beta_slow);
    csn_jw_put_f64(w, "factor", c->yarn.factor);
    csn_jw_put_f64(w, "mscale", c->yarn.mscale);
    csn_jw_put_f64(w, "mscale_all_dim", c->yarn.mscale_all_dim);
    csn_jw_put_u64(w, "original_max_position_embeddings", c->yarn.original_max_position_embeddings);
    csn_jw_put_str(w, "type", CSN_STR("yarn"));
    csn_jw_object_end(w);
}

static void put_mla(csn_jw *w, const csn_warp_words *c) {
    csn_jw_put_u64(w, "qk_nope_head_dim", c->qk_nope_head_dim);
    csn_jw_put_u64(w, "qk_rope_head_dim", c->qk_rope_head_dim);
    csn_jw_put_u64(w, "v_head_dim", c->v_head_dim);
    csn_jw_put_u64(w, "kv_lora_rank", c->kv_lora_rank);
    csn_jw_key(w, CSN_STR("q_lora_rank"));
    if (c->q_lora_rank != 0) {
        csn_jw_u64(w, c->q_lora_rank);
    } else {
        csn_jw_null(w);
    }
    if (c->mla_gate) { /* presence */
        csn_jw_put_bool(w, "mla_use_output_gate", true);
    }
    put_rope(w, c);
}

/* The numbers, counted from 1, of the layers that are KDA or are not. */
static void key_layers(csn_jw *w, const char *key, const csn_warp_words *c, bool are_kda) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_array(w);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (c->is_kda[i] == are_kda) {
            csn_jw_u64(w, i + 1);
        }
    }
    csn_jw_array_end(w);
}

static void put_kda(csn_jw *w, const csn_warp_words *c) {
    csn_jw_key(w, CSN_STR("linear_attn_config"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "head_dim", c->kda_head_dim);
    csn_jw_put_u64(w, "num_heads", c->n_kda_heads);
    csn_jw_put_u64(w, "short_conv_kernel_size", c->kda_conv);
    key_layers(w, "kda_layers", c, true);
    key_layers(w, "full_attn_layers", c, false);
    if (c->kda_full_gate) { /* presence */
        csn_jw_put_bool(w, "use_full_rank_gate", true);
    }
    if (c->kda_lower_bound != 0) {
        csn_jw_put_f64(w, "gate_lower_bound", c->kda_lower_bound);
    }
    csn_jw_object_end(w);
}

void csn_warp_words_write(const csn_warp_words *c, csn_jw *w) {
    csn_jw_object(w);
    csn_jw_put_str(w, "model_type", csn_str_from(c->model_type));
    key_class(w, c->class_name);
    csn_jw_put_u64(w, "hidden_size", c->hidden_size);
    csn_jw_put_u64(w, "num_hidden_layers", c->n_layers);
    csn_jw_put_u64(w, "intermediate_size", c->intermediate_size);
    if (c->n_experts > 0) {
        put_experts(w, c);
    }
    csn_jw_put_u64(w, "num_attention_heads", c->n_heads);
    put_mla(w, c);
    csn_jw_put_f64(w, "rms_norm_eps", c->rms_norm_eps);
    csn_jw_put_u64(w, "vocab_size", c->vocab_size);
    if (c->max_position_embeddings != 0) {
        csn_jw_put_u64(w, "max_position_embeddings", c->max_position_embeddings);
    }
    csn_jw_put_bool(w, "tie_word_embeddings", false);
    if (c->eos_token_id >= 0) {
        csn_jw_put_u64(w, "eos_token_id", (uint32_t)c->eos_token_id);
    }
    if (c->n_eos > 1) {
        csn_jw_key(w, CSN_STR("caisson.eos_token_ids"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < c->n_eos; i++) {
            if (c->eos_token_ids[i] >= 0 && (uint32_t)c->eos_token_ids[i] < c->vocab_size) {
                csn_jw_u64(w, (uint32_t)c->eos_token_ids[i]);
            }
        }
        csn_jw_array_end(w);
    }
    if (c->is_kda != NULL) {
        put_kda(w, c);
    }
    if (c->attn_res_block != 0) {
        csn_jw_put_u64(w, "attn_res_block_size", c->attn_res_block);
    }
    csn_jw_put_str(w, "hidden_act", csn_str_from(c->is_situ ? "situ" : "silu"));
    if (c->is_situ) {
        csn_jw_put_f64(w, "activation_situ_beta", c->situ_beta);
        csn_jw_put_f64(w, "activation_situ_linear_beta", c->situ_linear_beta);
    }
    if (c->outer_class != NULL) {
        csn_jw_key(w, CSN_STR("_outer"));
        csn_jw_object(w);
        key_class(w, c->outer_class);
        csn_jw_object_end(w);
    }
    csn_jw_object_end(w);
}
