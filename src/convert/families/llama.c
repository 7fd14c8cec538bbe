/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 1 to 3, SmolLM, SmolLM2 and whatever else calls itself llama. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 32000,
    .hidden_size = 4096,
    .intermediate_size = 11008,
    .n_layers = 32,
    .n_heads = 32,
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
};

static caisson_status llama_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    CSN_TRY(csn_config_biases(c, "mlp_bias", false, CSN_BIASES_ALL, &c->mlp_bias, err));
    CSN_TRY(csn_config_refuse_true(c, "rope_interleaved", err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    return csn_arch_full_layers(a, arena, err);
}

static caisson_status llama_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t n_experts = 0;
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    CSN_TRY(csn_meta_u32(m, "expert_count", &n_experts, err));
    if (n_experts != 0) {
        return csn_meta_refuse(m, "expert_count", "mixtures of experts are not supported", err);
    }
    CSN_TRY(csn_meta_u32(m, "expert_used_count", &n_experts, err));
    /* Mistral models come under this name too. */
    CSN_TRY(csn_meta_u32(m, "attention.sliding_window", &a->sliding_window, err));
    a->sliding_all = a->sliding_window != 0;
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_llama = {
    .names = (const char *const[]){"llama", NULL},
    .gguf_names = (const char *const[]){"llama", NULL},
    .read_config = llama_config,
    .read_gguf = llama_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm,
                                              &csn_names_biases, NULL},
    .gguf_permutes_rows = true,
};
