/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 and R1, Kimi-K2: latent attention with rotated pairs and YaRN, experts chosen by
 * sigmoid and bias within the best groups. Of GGUF DeepSeek-V2 as well (deepseek_v2.c): there both
 * are deepseek2. Layers that predict further tokens are left out. */
#include "convert/family.h"

#define MLP "model.layers.{}.mlp."
#define H CSN_DIM_HIDDEN
#define F CSN_DIM_EXPERT_FFN
#define S CSN_DIM_SHARED_FFN
#define BLK "blk.{}."
#define ROW(name, hf, gguf, rows, cols, flags)                                                     \
    CSN_NAME_ROW(MLP name, MLP hf, BLK gguf, rows, cols, flags)
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
const csn_name_table csn_names_deepseek = CSN_NAME_TABLE(moe_rows);

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
    CSN_TRY(csn_config_refuse_true(c, "mla_use_nope", err));
    CSN_TRY(csn_config_mla(c, &rope, CSN_LATENT_EPS, arena, a, err));
    CSN_TRY(csn_config_need(c, "n_group", NULL, err));
    CSN_TRY(csn_config_need(c, "norm_topk_prob", "moe_renormalize", err));
    CSN_TRY(csn_config_need(c, "routed_scaling_factor", NULL, err));
    CSN_TRY(csn_config_grouped_moe(c, true, a, err));
    return csn_arch_full_layers(a, arena, err);
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
    (void)csn_meta_get(m, "attention.head_count_kv"); /* of what the cache holds: one */
    CSN_TRY(csn_meta_mla(m, arena, a, err));
    CSN_TRY(csn_meta_grouped_moe(m, false, a, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_deepseek_v3 = {
    .names = (const char *const[]){"deepseek_v3", "kimi_k2", NULL},
    .gguf_names = (const char *const[]){"deepseek2", NULL},
    .read_config = deepseek_v3_config,
    .read_gguf = deepseek_v3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_ends, &csn_names_ffn_norm, &csn_names_mla,
                                              &csn_names_deepseek, NULL},
    .drops_next_layers = true,
};
