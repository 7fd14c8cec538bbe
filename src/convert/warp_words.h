/* SPDX-License-Identifier: Apache-2.0 */
/* What the `config` of a WARP manifest says (warp facts 2.4), in the field's words. */
#ifndef CSN_CONVERT_WARP_WORDS_H
#define CSN_CONVERT_WARP_WORDS_H

#include "base/json.h"

typedef struct csn_warp_words {
    const char *model_type, *class_name; /* of Hugging Face */
    const char *outer_class;             /* of a model that this one is a part of; NULL = none */
    uint32_t n_layers, hidden_size, vocab_size, n_heads, intermediate_size;
    uint32_t max_position_embeddings; /* 0 = not told */
    double rms_norm_eps;
    int32_t eos_token_id;         /* -1 = not told */
    const int32_t *eos_token_ids; /* [n_eos] if there are several: a key of ours, others have one */
    uint32_t n_eos;
    /* experts */
    uint32_t n_experts, top_k, n_shared, expert_width,
        first_dense; /* first_dense: layers without */
    double routed_scaling_factor;
    bool renormalize;
    uint32_t n_group, topk_group; /* 0 = no groups; the format's engine passes over them */
    uint32_t latent_size;         /* the width that routed experts run at; 0 = hidden_size */
    /* MLA */
    uint32_t q_lora_rank /* 0 = none */, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim;
    uint32_t v_head_dim;
    bool mla_gate;
    bool mla_rotates;
    double rope_theta;
    struct {
        bool present;
        double factor, mscale, mscale_all_dim, beta_fast, beta_slow;
        uint32_t original_max_position_embeddings;
    } yarn;
    /* KDA */
    const bool *is_kda; /* [n_layers], the others are MLA; NULL = all are */
    uint32_t n_kda_heads, kda_head_dim, kda_conv;
    bool kda_full_gate;     /* a gate of one matrix, not of two */
    double kda_lower_bound; /* 0 = none */
    uint32_t attn_res_block;
    bool is_situ;
    double situ_beta, situ_linear_beta;
} csn_warp_words;

void csn_warp_words_write(const csn_warp_words *c, csn_jw *w);

#endif
