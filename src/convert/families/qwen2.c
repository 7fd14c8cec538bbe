/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5, dense: biases in q, k and v. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 151936,
    .hidden_size = 4096,
    .intermediate_size = 22016,
    .n_layers = 32,
    .n_heads = 32,
    .n_kv_heads = 32,

    .max_position_embeddings = 32768,
    .rms_norm_eps = 1e-6,
};

static caisson_status qwen2_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));

    CSN_TRY(csn_config_refuse_true(c, "use_mrope", err));
    c->attention_bias = CSN_BIASES_QKV;
    c->mlp_bias = CSN_BIASES_NONE;
    return csn_config_qwen_window(c, CSN_QWEN_FROM_MAX, arena, a, err);
}

static caisson_status qwen2_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_qwen2 = {
    .names = (const char *const[]){"qwen2", NULL},
    .gguf_names = (const char *const[]){"qwen2", NULL},
    .read_config = qwen2_config,
    .read_gguf = qwen2_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm,
                                              &csn_names_biases, NULL},
};
