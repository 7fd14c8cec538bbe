/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3, dense: no biases in q, k, v; a norm over each head of q and k. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 151936,
    .hidden_size = 4096,
    .intermediate_size = 22016,
    .n_layers = 32,
    .n_heads = 32,
    .n_kv_heads = 32,
    .head_dim = 128,
    .max_position_embeddings = 32768,
    .rms_norm_eps = 1e-6,
};

static caisson_status qwen3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    c->mlp_bias = CSN_BIASES_NONE;
    return csn_config_qwen_window(c, CSN_QWEN_FROM_MAX, arena, a, err);
}

static caisson_status qwen3_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_qwen3 = {
    .names = (const char *const[]){"qwen3", NULL},
    .gguf_names = (const char *const[]){"qwen3", NULL},
    .read_config = qwen3_config,
    .read_gguf = qwen3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm,
                                              &csn_names_qk_norm, &csn_names_biases, NULL},
};
