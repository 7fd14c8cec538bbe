/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 and R1, Kimi-K2: latent attention with rotated pairs and YaRN, experts chosen by
 * sigmoid and bias within the best groups. Layers that predict further tokens are left out. */
#include "convert/family.h"

#define MLP "model.layers.{}.mlp."
#define TABLE(rows)                                                                                \
    { rows, sizeof(rows) / sizeof((rows)[0]) }
#define H CSN_DIM_HIDDEN
#define F CSN_DIM_EXPERT_FFN
#define S CSN_DIM_SHARED_FFN
#define BLK "blk.{}."
#define ROW(name, hf, gguf, rows, cols, flags)                                                     \
    {                                                                                              \
        MLP name, MLP hf, BLK gguf, rows, cols, flags, {0}, {                                      \
            0                                                                                      \
        }                                                                                          \
    }
#define IN_MIXTURE CSN_ROW_MIXTURE

static const csn_name_row moe_rows[] = {
    ROW("gate.weight", "gate.weight", "ffn_gate_inp.weight", CSN_DIM_EXPERTS, H,
        CSN_ROW_ROUTER | IN_MIXTURE),
    ROW("expert_bias", "gate.e_score_correction_bias", "exp_probs_b.bias", CSN_DIM_EXPERTS,
        CSN_DIM_NONE, IN_MIXTURE | CSN_ROW_OPTIONAL),
    ROW("experts.{}.gate_proj.weight", "experts.{}.gate_proj.weight", "ffn_gate_exps.weight", F, H,
        CSN_ROW_EXPERT),
    ROW("experts.{}.up_proj.weight", "experts.{}.up_proj.weight", "ffn_up_exps.weight", F, H,
        CSN_ROW_EXPERT),
    ROW("experts.{}.down_proj.weight", "experts.{}.down_proj.weight", "ffn_down_exps.weight", H, F,
        CSN_ROW_EXPERT),
    ROW("shared_expert.gate_proj.weight", "shared_experts.gate_proj.weight",
        "ffn_gate_shexp.weight", S, H, IN_MIXTURE | CSN_ROW_OPTIONAL),
    ROW("shared_expert.up_proj.weight", "shared_experts.up_proj.weight", "ffn_up_shexp.weight", S,
        H, IN_MIXTURE | CSN_ROW_OPTIONAL),
    ROW("shared_expert.down_proj.weight", "shared_experts.down_proj.weight",
        "ffn_down_shexp.weight", H, S, IN_MIXTURE | CSN_ROW_OPTIONAL),
};
static const csn_name_table moe_names = TABLE(moe_rows);

static const csn_config_defaults defaults = {
    .vocab_size = 129280,
    .hidden_size = 7168,
    .intermediate_size = 18432,
    .n_layers = 61,
    .n_heads = 128,
    .max_position_embeddings = 4096,
    .rms_norm_eps = 1e-6,
};

static caisson_status deepseek_v3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                         caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_mla(c, &rope, true, arena, a, err));
    CSN_TRY(csn_config_sigmoid_moe(c, a, err));
    return csn_arch_full_layers(a, arena, err);
}

/* Sizes of heads. What the file calls a key is then what the cache holds of it; files of before
 * that have one matrix for keys and values, and name the sizes of heads themselves. */
static caisson_status gguf_mla(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t key = 0, value = 0;
    double log_mscale = 0;
    CSN_TRY(csn_meta_need_u32(m, "attention.kv_lora_rank", &a->mla.kv_lora_rank, err));
    CSN_TRY(csn_meta_u32(m, "attention.q_lora_rank", &a->mla.q_lora_rank, err));
    CSN_TRY(csn_meta_need_u32(m, "attention.key_length", &key, err));
    CSN_TRY(csn_meta_need_u32(m, "attention.value_length", &value, err));
    CSN_TRY(csn_meta_u32(m, "attention.key_length_mla", &key, err));
    CSN_TRY(csn_meta_u32(m, "attention.value_length_mla", &value, err));
    CSN_TRY(csn_meta_need_u32(m, "rope.dimension_count", &a->mla.qk_rope_head_dim, err));
    CSN_TRY(csn_meta_f64(m, "rope.scaling.yarn_log_multiplier", &log_mscale, err));
    if (key <= a->mla.qk_rope_head_dim || a->mla.qk_rope_head_dim == 0 || key > 1 << 20 ||
        value == 0 || value > 1 << 20 || a->mla.kv_lora_rank == 0 ||
        a->mla.kv_lora_rank > 1 << 20) {
        return csn_meta_refuse(m, "attention.key_length_mla",
                               "sizes of latent attention that make no sense", err);
    }
    a->n_kv_heads = a->n_heads;
    a->mla.present = true;
    a->mla.qk_nope_head_dim = key - a->mla.qk_rope_head_dim;
    a->mla.v_head_dim = value;
    a->mla.rope_interleave = true;
    a->head_dim = a->mla.qk_rope_head_dim; /* what RoPE's factors are made for */
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    a->head_dim = key;
    if (a->yarn.present && log_mscale != 0) { /* a tenth of mscale_all_dim; mscale is the same */
        a->yarn.has_mscale_all_dim = true;
        a->yarn.mscale_all_dim = (float)(log_mscale * 10);
        a->yarn.attention_factor = 1.0f;
    }
    return CAISSON_OK;
}

static caisson_status gguf_router(csn_meta *m, csn_arch *a, caisson_error *err) {
    enum { SIGMOID = 2 };
    uint32_t n_shared = 0, scores = 1;
    CSN_TRY(csn_meta_moe(m, false, false, a, err));
    CSN_TRY(csn_meta_u32(m, "expert_shared_count", &n_shared, err));
    CSN_TRY(csn_meta_u32(m, "expert_group_count", &a->moe.n_group, err));
    CSN_TRY(csn_meta_u32(m, "expert_group_used_count", &a->moe.topk_group, err));
    CSN_TRY(csn_meta_u32(m, "expert_gating_func", &scores, err));
    (void)csn_meta_get(m, "leading_dense_block_count"); /* the tensors say it */
    a->moe.routed_scaling_factor = 1.0;
    CSN_TRY(csn_meta_f64(m, "expert_weights_scale", &a->moe.routed_scaling_factor, err));
    if (scores != SIGMOID) {
        return csn_meta_refuse(m, "expert_gating_func",
                               "only experts that are scored by the sigmoid (2) are read", err);
    }
    return csn_arch_sigmoid_moe(a, n_shared, "metadata", err);
}

static caisson_status deepseek_v3_gguf(csn_meta *m, csn_arena *arena, csn_arch *a,
                                       caisson_error *err) {
    uint32_t n_next = 0;
    CSN_TRY(csn_meta_model(m, a, err));
    CSN_TRY(csn_meta_u32(m, "nextn_predict_layers", &n_next, err));
    if (n_next >= a->n_layers) {
        return csn_meta_refuse(m, "nextn_predict_layers", "as many as there are layers", err);
    }
    a->n_layers -= n_next;
    CSN_TRY(gguf_mla(m, arena, a, err));
    CSN_TRY(gguf_router(m, a, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_deepseek_v3 = {
    .names = (const char *const[]){"deepseek_v3", "kimi_k2", NULL},
    .gguf_names = (const char *const[]){"deepseek2", NULL},
    .read_config = deepseek_v3_config,
    .read_gguf = deepseek_v3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_ends, &csn_names_ffn_norm, &csn_names_mla,
                                              &moe_names, NULL},
    .drops_next_layers = true,
};
