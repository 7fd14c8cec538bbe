/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen1.5 and Qwen2 with experts: biases in q, k and v, and a shared expert behind a gate. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 151936,
    .hidden_size = 2048,
    .intermediate_size = 5632,
    .n_layers = 24,
    .n_heads = 16,
    .n_kv_heads = 16,
    .max_position_embeddings = 32768,
    .rms_norm_eps = 1e-6,
};

static caisson_status qwen2_moe_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                       caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_moe(c, false, true, a, err));
    CSN_TRY(csn_config_biases(c, "qkv_bias", true, CSN_BIASES_QKV, &c->attention_bias, err));
    c->mlp_bias = CSN_BIASES_NONE;
    return csn_config_qwen_window(c, CSN_QWEN_EVEN_BELOW_MAX, arena, a, err);
}

static caisson_status qwen2_moe_gguf(csn_meta *m, csn_arena *arena, csn_arch *a,
                                     caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    CSN_TRY(csn_meta_moe(m, false, true, a, err)); /* llama.cpp never normalises */
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_qwen2_moe = {
    .names = (const char *const[]){"qwen2_moe", NULL},
    .gguf_names = (const char *const[]){"qwen2moe", NULL},
    .read_config = qwen2_moe_config,
    .read_gguf = qwen2_moe_gguf,
    .tables =
        (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm, &csn_names_biases,
                                        &csn_names_moe, &csn_names_shared, NULL},
};
