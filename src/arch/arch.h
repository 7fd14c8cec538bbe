/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a model: the `arch` object of a CMF header (facts 2.3), as a struct.
 *
 * Import recipes fill it, the CMF reader parses it, the engine's plan reads it. Nothing in it names
 * a family except arch_name, which the engine never looks at: differences are data (rope kind, norm
 * style, gates) or the presence of tensors.
 *
 * "absent" optional numbers are held as has_* flags where 0 is a meaningful value, else as 0.
 */
#ifndef CSN_ARCH_ARCH_H
#define CSN_ARCH_ARCH_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

typedef enum csn_layer_type {
    CSN_LAYER_FULL_ATTENTION,
    CSN_LAYER_LINEAR_ATTENTION,
    CSN_LAYER_SLIDING_ATTENTION,
    CSN_LAYER_SHORT_CONV,
    CSN_LAYER_KDA
} csn_layer_type;

typedef enum csn_norm_style {
    CSN_NORM_QWEN /* x*w */,
    CSN_NORM_GEMMA /* x*(1+w) */
} csn_norm_style;
typedef enum csn_act { CSN_ACT_SILU, CSN_ACT_GELU_TANH, CSN_ACT_SITU } csn_act;

typedef struct csn_arch {
    csn_str arch_name;
    uint32_t hidden_size, intermediate_size, n_layers, n_heads, n_kv_heads, head_dim, vocab_size;
    uint32_t max_position_embeddings;
    csn_layer_type *layer_types; /* [n_layer_types]; a layer beyond it is full attention */
    uint32_t n_layer_types;

    double rms_norm_eps;
    csn_norm_style norm_style;
    csn_act hidden_act;
    bool tie_word_embeddings;
    float embed_multiplier;         /* 1.0 = none */
    float logit_multiplier;         /* 1.0 = none */
    double query_pre_attn_scalar;   /* 0 = absent: head_dim */
    double attn_logit_softcapping;  /* 0 = absent */
    double final_logit_softcapping; /* 0 = absent */
    bool attn_v_norm;

    double rope_theta;
    float partial_rotary_factor;       /* 1.0 = all of head_dim */
    double rope_local_base_freq;       /* 0 = absent: rope_theta */
    float local_partial_rotary_factor; /* 0 = absent */
    double *rope_freq_factors;         /* [n_rope_freq_factors]: inv_freq[i] /= factors[i] */
    uint32_t n_rope_freq_factors;
    struct {
        bool present;
        float factor, beta_fast, beta_slow, attention_factor;
        bool has_mscale_all_dim;
        float mscale_all_dim;
        uint32_t original_max_position_embeddings;
        bool untruncated; /* the ramp begins and ends between dims, key "caisson.untruncated" */
    } yarn;
    /* Phi longrope, key "caisson.longrope" {short_factor, long_factor,
     * original_max_position_embeddings, attention_factor}. A token at position p of a request whose
     * prompt has n tokens uses long_factor iff max(n, p + 1) > original (as transformers does). */
    struct {
        bool present;
        double *short_factor, *long_factor; /* [n] each, n = rotary_dim / 2 */
        uint32_t n;
        uint32_t original_max_position_embeddings;
        float attention_factor;
    } longrope;

    /* [n_layers] or NULL: true where queries and keys are not rotated. Key
     * "caisson.no_rope_layers": the numbers of those layers. */
    bool *no_rope;

    /* Layer i is global iff (i + 1) % sliding_window_pattern == 0; the others, and layers typed
     * SlidingAttention, see the last sliding_window keys, their own included. With no pattern and
     * no SlidingAttention layer (mistral): every layer is local, key "caisson.sliding_all". */
    uint32_t sliding_window, sliding_window_pattern; /* 0 = absent */
    bool sliding_all;

    /* Facts beyond the dense core: parsed, kept and written; what the engine cannot run yet is
     * refused by the plan by name. */
    uint32_t *attention_heads_per_layer; /* [n_layers] or NULL */
    uint32_t global_head_dim, n_global_kv_heads;
    float global_partial_rotary_factor;
    uint32_t head_clusters;
    uint32_t num_loops; /* 1 */
    bool loop_final_norm;
    struct {
        bool present;
        uint32_t n_experts, top_k, moe_intermediate_size;
        bool norm_topk_prob, has_shared, router_sigmoid, router_resonance, has_scaling;
        uint32_t shared_expert_intermediate_size; /* of all shared experts together */
        double routed_scaling_factor;
        /* DeepSeek-V3: experts lie in n_group groups of equal size, of which the topk_group with
         * the largest sum of two scores may be chosen from; with group_max (DeepSeek-V2's
         * group_limited_greedy) with the largest score. 0 = absent: no groups. Keys
         * "caisson.n_group", "caisson.topk_group", "caisson.group_max". */
        uint32_t n_group, topk_group;
        bool group_max;
        /* Kimi K3: routed experts work at this width, between mlp.routed_expert_down_proj and
         * mlp.routed_expert_up_proj; 0 = absent: at hidden_size. has_latent_norm: their sum passes
         * mlp.routed_expert_norm. Keys "caisson.routed_expert_hidden_size", "caisson.latent_norm".
         */
        uint32_t routed_expert_hidden_size;
        bool has_latent_norm;
    } moe;
    struct {
        bool present;
        uint32_t n_layers;
        bool share_lm_head, share_embed;
    } mtp;
    struct {
        bool present;
        uint32_t kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim, q_lora_rank;
        bool nope;            /* queries and keys are not rotated */
        bool rope_interleave; /* pairs (2j, 2j + 1) rotate; key "caisson.rope_interleave" */
        double norm_eps;      /* of the norms behind q_a and kv_a; 0 = absent: rms_norm_eps; key
                                 "caisson.norm_eps" */
    } mla;                    /* every layer that attends; linear layers are those of layer_types */
    struct {
        bool present;
        csn_str kind;
        uint32_t n_heads, nphase, value_head_dim;
    } linear_core;
    uint32_t linear_conv_kernel_dim, linear_n_key_heads, linear_n_value_heads;
    uint32_t linear_key_head_dim, linear_value_head_dim; /* 0 = null */
    bool has_situ_beta, has_situ_linear_beta, has_kda_gate_lower_bound, has_g3n;
    double activation_situ_beta, activation_situ_linear_beta, kda_gate_lower_bound;
    /* Attention residuals (Kimi K3): the length of a block in layers, 0 = absent. Key
     * "caisson.attn_res_block_size". */
    uint32_t attn_res_block_size;

    /* Keys of the source `arch` object that are not in this struct, kept on rewrite:
     * a parsed object or NULL, owned by whoever owns the arch's document. */
    const csn_jval *source;
} csn_arch;

/* Defaults of facts 2.3 (rope_theta 10000, multipliers 1, num_loops 1, silu, ...). */
void csn_arch_init(csn_arch *arch);

/* Parses an `arch` object; strings and arrays go to `arena`; `object` must outlive the arch
 * (unknown keys). Errors: CAISSON_E_PARSE with tensor = the key; CAISSON_E_LIMIT for more than 2^20
 * layers; CAISSON_E_UNSUPPORTED for an activation that we do not know (never guessed). Also checks
 * ranges that later arithmetic relies on: counts > 0 (intermediate_size may be 0), n_heads a
 * multiple of n_kv_heads, head_dim even, sizes below 2^31, optional factors finite and > 0. An
 * optional integer given as 0 is taken as absent. */
caisson_status csn_arch_parse(const csn_jval *object, csn_arena *arena, csn_arch *ret,
                              caisson_error *err);
/* Writes the object (key order of facts 2.1, then unknown keys of arch->source). */
void csn_arch_write(const csn_arch *arch, csn_jw *w);
/* The members of `yarn`, which a config.json names alike, into an open object. */
void csn_arch_put_yarn(const csn_arch *arch, csn_jw *w);

/* True if layer i sees only the last sliding_window keys. */
bool csn_arch_is_local(const csn_arch *arch, uint32_t i_layer);
/* Rotated dims of a head of ordinary attention: max(2, trunc(head_dim * factor)), even; 0 in a
 * layer of no_rope. */
uint32_t csn_arch_rotary_dim(const csn_arch *arch, uint32_t i_layer);

#endif
