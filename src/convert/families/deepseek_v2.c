/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V2 and V2-Lite: latent attention with rotated pairs and YaRN, experts chosen by softmax,
 * in V2 within the best groups. GGUF is read by deepseek_v3.c. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 102400,
    .hidden_size = 4096,
    .intermediate_size = 11008,
    .n_layers = 32,
    .n_heads = 32,
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
};

/* Weights that sum to 1 are not scaled, nor is a single one, in DeepSeek's own code; llama.cpp does
 * both, transformers passes over norm_topk_prob. No release has it. */
static caisson_status check_norm(const csn_config *c, const csn_arch *a, caisson_error *err) {
    if (a->moe.norm_topk_prob && (a->moe.routed_scaling_factor != 1.0 || a->moe.top_k == 1)) {
        return csn_config_refuse(c, "norm_topk_prob",
                                 "with routed_scaling_factor, or one expert a token, it means "
                                 "something else to each who runs it",
                                 err);
    }
    return CAISSON_OK;
}

static caisson_status deepseek_v2_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                         caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_refuse_true(c, "mlp_bias", err));
    CSN_TRY(csn_config_refuse_true(c, "mla_use_nope", err));
    CSN_TRY(csn_config_mla(c, &rope, CSN_LATENT_EPS, arena, a, err));
    if (!a->mla.rope_interleave) {
        return csn_config_refuse(c, "rope_interleave", "this family rotates pairs always", err);
    }
    CSN_TRY(csn_config_grouped_moe(c, false, a, err));
    CSN_TRY(check_norm(c, a, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_deepseek_v2 = {
    .names = (const char *const[]){"deepseek_v2", NULL},
    .gguf_names = (const char *const[]){NULL}, /* it is deepseek2 there, too */
    .read_config = deepseek_v2_config,
    .tables = (const csn_name_table *const[]){&csn_names_ends, &csn_names_ffn_norm, &csn_names_mla,
                                              &csn_names_deepseek, NULL},
};
