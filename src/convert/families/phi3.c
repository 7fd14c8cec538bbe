/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3, Phi-3.5 and Phi-4 (mini and 14B): one matrix for q, k, v and one for gate and up, partial
 * rotary, longrope. Phi-3-small and the MoE and vision models are other families. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 32064,
    .hidden_size = 3072,
    .intermediate_size = 8192,
    .n_layers = 32,
    .n_heads = 32,
    .max_position_embeddings = 4096,
    .rms_norm_eps = 1e-5,
};

static caisson_status phi3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                  caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0, .is_phi = true};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_refuse_true(c, "attention_bias", err));
    CSN_TRY(csn_config_refuse_true(c, "mlp_bias", err));
    CSN_TRY(csn_config_refuse_true(c, "lm_head_bias", err));
    CSN_TRY(csn_config_expect(c, "full_attn_mod", 1, err));
    CSN_TRY(csn_config_expect(c, "interpolate_factor", 1, err));
    CSN_TRY(csn_config_u32(c, "sliding_window", &a->sliding_window, err));
    a->sliding_all = a->sliding_window != 0;
    return csn_arch_full_layers(a, arena, err);
}

static caisson_status phi3_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    CSN_TRY(csn_meta_u32(m, "attention.sliding_window", &a->sliding_window, err));
    a->sliding_all = a->sliding_window != 0;
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_phi3 = {
    .names = (const char *const[]){"phi3", NULL},
    .gguf_names = (const char *const[]){"phi3", NULL},
    .read_config = phi3_config,
    .read_gguf = phi3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_fused, &csn_names_ffn_norm, NULL},
};
