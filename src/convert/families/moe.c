/* SPDX-License-Identifier: Apache-2.0 */
/* What recipes with experts share. Experts are written role by role (facts 3.3): all gates of a
 * layer, then all ups, then all downs. */
#include "convert/family.h"

#define MLP "model.layers.{}.mlp."
#define ROW(name, gguf, rows, cols, flags)                                                         \
    CSN_NAME_ROW(MLP name, NULL, "blk.{}." gguf, rows, cols, flags)
#define H CSN_DIM_HIDDEN
#define F CSN_DIM_EXPERT_FFN
#define S CSN_DIM_SHARED_FFN

/* A larger number is no model, but a file that wants memory. */
enum { MAX_EXPERTS = 1 << 16 };

static const csn_name_row moe_rows[] = {
    ROW("gate.weight", "ffn_gate_inp.weight", CSN_DIM_EXPERTS, H, CSN_ROW_ROUTER | CSN_ROW_MIXTURE),
    ROW("experts.{}.gate_proj.weight", "ffn_gate_exps.weight", F, H, CSN_ROW_EXPERT),
    ROW("experts.{}.up_proj.weight", "ffn_up_exps.weight", F, H, CSN_ROW_EXPERT),
    ROW("experts.{}.down_proj.weight", "ffn_down_exps.weight", H, F, CSN_ROW_EXPERT),
};
const csn_name_table csn_names_moe = CSN_NAME_TABLE(moe_rows);

static const csn_name_row shared_rows[] = {
    ROW("shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", CSN_DIM_ONE, H, CSN_ROW_MIXTURE),
    ROW("shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", S, H, CSN_ROW_MIXTURE),
    ROW("shared_expert.up_proj.weight", "ffn_up_shexp.weight", S, H, CSN_ROW_MIXTURE),
    ROW("shared_expert.down_proj.weight", "ffn_down_shexp.weight", H, S, CSN_ROW_MIXTURE),
};
const csn_name_table csn_names_shared = CSN_NAME_TABLE(shared_rows);

static caisson_status check(csn_arch *a, const char *section, caisson_error *err) {
    if (a->moe.n_experts == 0 || a->moe.n_experts > MAX_EXPERTS || a->moe.top_k == 0 ||
        a->moe.top_k > a->moe.n_experts || a->moe.moe_intermediate_size == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = section, .tensor = CSN_STR("experts"),
                        .what = "experts, experts per token or their width are missing or make no "
                                "sense",
                        CSN_VALUES(a->moe.n_experts, a->moe.top_k));
    }
    a->moe.present = true;
    return CAISSON_OK;
}

caisson_status csn_config_moe(csn_config *c, bool norm, bool has_shared, csn_arch *a,
                              caisson_error *err) {
    CSN_TRY(csn_config_u32(c, "num_experts", &a->moe.n_experts, err));
    CSN_TRY(csn_config_u32(c, "num_local_experts", &a->moe.n_experts, err));
    CSN_TRY(csn_config_u32(c, "num_experts_per_tok", &a->moe.top_k, err));
    CSN_TRY(csn_config_u32(c, "moe_intermediate_size", &a->moe.moe_intermediate_size, err));
    a->moe.norm_topk_prob = norm;
    CSN_TRY(csn_config_bool(c, "norm_topk_prob", &a->moe.norm_topk_prob, err));
    if (has_shared) {
        a->moe.has_shared = true;
        CSN_TRY(csn_config_u32(c, "shared_expert_intermediate_size",
                               &a->moe.shared_expert_intermediate_size, err));
    }
    /* which layers are mixtures: the tensors say it */
    (void)csn_config_get(c, "decoder_sparse_step");
    (void)csn_config_get(c, "mlp_only_layers");
    return check(a, c->section, err);
}

caisson_status csn_meta_moe(csn_meta *m, bool norm, bool has_shared, csn_arch *a,
                            caisson_error *err) {
    CSN_TRY(csn_meta_need_u32(m, "expert_count", &a->moe.n_experts, err));
    CSN_TRY(csn_meta_need_u32(m, "expert_used_count", &a->moe.top_k, err));
    CSN_TRY(csn_meta_need_u32(m, "expert_feed_forward_length", &a->moe.moe_intermediate_size, err));
    a->moe.norm_topk_prob = norm;
    CSN_TRY(csn_meta_bool(m, "expert_weights_norm", &a->moe.norm_topk_prob, err));
    if (has_shared) {
        a->moe.has_shared = true;
        CSN_TRY(csn_meta_need_u32(m, "expert_shared_feed_forward_length",
                                  &a->moe.shared_expert_intermediate_size, err));
    }
    return check(a, "metadata", err);
}
