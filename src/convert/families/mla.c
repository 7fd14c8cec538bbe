/* SPDX-License-Identifier: Apache-2.0 */
/* What recipes with latent attention share: its tensors and keys, and the router that comes with
 * it. */
#include "convert/family.h"

#define LAYER "model.layers.{}."
#define ATTN LAYER "self_attn."
#define BLK "blk.{}."
#define ROW(name, gguf, rows, cols, flags) CSN_NAME_ROW(name, NULL, gguf, rows, cols, flags)
#define H CSN_DIM_HIDDEN
#define F CSN_DIM_FFN
#define ONE_D CSN_DIM_NONE
#define MLA CSN_ROW_MLA
#define OPT CSN_ROW_OPTIONAL

/* Larger numbers are no model, but a file that wants memory. */
enum { MAX_EXPERTS = 1 << 16, MAX_SHARED = 64 };

static const csn_name_row end_rows[] = {
    ROW("model.embed_tokens.weight", "token_embd.weight", CSN_DIM_VOCAB, H, 0),
    ROW("model.norm.weight", "output_norm.weight", H, ONE_D, CSN_ROW_NORM),
    ROW("lm_head.weight", "output.weight", CSN_DIM_VOCAB, H, OPT),
    ROW(LAYER "input_layernorm.weight", BLK "attn_norm.weight", H, ONE_D, CSN_ROW_NORM),
    ROW(LAYER "mlp.gate_proj.weight", BLK "ffn_gate.weight", F, H, CSN_ROW_FFN),
    ROW(LAYER "mlp.up_proj.weight", BLK "ffn_up.weight", F, H, CSN_ROW_FFN),
    ROW(LAYER "mlp.down_proj.weight", BLK "ffn_down.weight", H, F, CSN_ROW_FFN),
};
const csn_name_table csn_names_ends = CSN_NAME_TABLE(end_rows);

/* Queries are direct, or of low rank: the plan of the engine asks for what arch says. */
static const csn_name_row mla_rows[] = {
    ROW(ATTN "q_proj.weight", BLK "attn_q.weight", CSN_DIM_MLA_Q, H, MLA | OPT),
    ROW(ATTN "q_a_proj.weight", BLK "attn_q_a.weight", CSN_DIM_Q_LORA, H, MLA | OPT),
    ROW(ATTN "q_a_layernorm.weight", BLK "attn_q_a_norm.weight", CSN_DIM_Q_LORA, ONE_D, MLA | OPT),
    ROW(ATTN "q_b_proj.weight", BLK "attn_q_b.weight", CSN_DIM_MLA_Q, CSN_DIM_Q_LORA, MLA | OPT),
    ROW(ATTN "kv_a_proj_with_mqa.weight", BLK "attn_kv_a_mqa.weight", CSN_DIM_KV_A, H, MLA),
    ROW(ATTN "kv_a_layernorm.weight", BLK "attn_kv_a_norm.weight", CSN_DIM_KV_LORA, ONE_D, MLA),
    ROW(ATTN "kv_b_proj.weight", BLK "attn_kv_b.weight", CSN_DIM_KV_B, CSN_DIM_KV_LORA,
        MLA | CSN_ROW_KV_B),
    ROW(ATTN "g_proj.weight", NULL, CSN_DIM_MLA_V, H, MLA | OPT),
    ROW(ATTN "o_proj.weight", BLK "attn_output.weight", H, CSN_DIM_MLA_V, MLA),
};
const csn_name_table csn_names_mla = CSN_NAME_TABLE(mla_rows);

caisson_status csn_config_mla(csn_config *c, const csn_rope_rules *rules, double norm_eps,
                              csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t query = 0;
    CSN_TRY(csn_config_u32(c, "kv_lora_rank", &a->mla.kv_lora_rank, err));
    CSN_TRY(csn_config_u32(c, "q_lora_rank", &a->mla.q_lora_rank, err));
    CSN_TRY(csn_config_u32(c, "qk_nope_head_dim", &a->mla.qk_nope_head_dim, err));
    CSN_TRY(csn_config_u32(c, "qk_rope_head_dim", &a->mla.qk_rope_head_dim, err));
    CSN_TRY(csn_config_u32(c, "v_head_dim", &a->mla.v_head_dim, err));
    CSN_TRY(csn_config_u32(c, "qk_head_dim", &query, err)); /* the sum of two others */
    CSN_TRY(csn_config_bool(c, "mla_use_nope", &a->mla.nope, err));
    CSN_TRY(csn_config_refuse_true(c, "attention_bias", err));
    c->output_gate = CSN_BIASES_NONE;
    a->mla.norm_eps = (float)norm_eps != (float)a->rms_norm_eps ? norm_eps : 0;
    a->mla.rope_interleave = csn_jval_get(c->object, "rope_interleave") == NULL; /* null: false */
    CSN_TRY(csn_config_bool(c, "rope_interleave", &a->mla.rope_interleave, err));
    const uint32_t sizes[] = {a->mla.kv_lora_rank, a->mla.qk_nope_head_dim, a->mla.qk_rope_head_dim,
                              a->mla.v_head_dim};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] == 0 || sizes[i] > 1 << 20) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = c->section,
                            .tensor = CSN_STR("kv_lora_rank, qk_*_head_dim, v_head_dim"),
                            .what = "a size of latent attention is missing or out of range");
        }
    }
    a->head_dim = a->mla.qk_rope_head_dim; /* what RoPE's factors are made for */
    CSN_TRY(csn_config_rope(c, rules, arena, a, err));
    if (a->longrope.present) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "rope_parameters",
                        .tensor = CSN_STR("rope_type"), .what = "longrope with latent attention");
    }
    a->head_dim = a->mla.qk_nope_head_dim + a->mla.qk_rope_head_dim;
    a->mla.present = true;
    return CAISSON_OK;
}

/* One value under two names: transformers takes the one that stands behind the other. */
static caisson_status u32_of(csn_config *c, const char *name, const char *other, uint32_t *ret,
                             caisson_error *err) {
    CSN_TRY(csn_config_u32(c, name, ret, err));
    uint32_t first = *ret;
    CSN_TRY(csn_config_u32(c, other, ret, err));
    return *ret == first || csn_config_get(c, name) == NULL
               ? CAISSON_OK
               : csn_config_refuse(c, other, "not what the same key says under its other name",
                                   err);
}

/* The key, if present, must be one of the words; *ret is it. */
static caisson_status expect_word(csn_config *c, const char *key, const char *const *words,
                                  csn_str *ret, caisson_error *err) {
    *ret = (csn_str){0};
    CSN_TRY(csn_config_str(c, key, ret, err));
    for (size_t i = 0; ret->len > 0 && words[i] != NULL; i++) {
        if (csn_str_is(*ret, words[i])) {
            return CAISSON_OK;
        }
    }
    return ret->len == 0 ? CAISSON_OK
                         : csn_config_refuse(c, key, "this way of routing is not supported", err);
}

/* How experts are scored is the family's; whether in groups, V2 says. */
static caisson_status read_method(csn_config *c, bool is_sigmoid, csn_arch *a, caisson_error *err) {
    static const char *const scores[2][2] = {{"softmax", NULL}, {"sigmoid", NULL}};
    static const char *const methods[2][3] = {{"greedy", "group_limited_greedy", NULL},
                                              {"noaux_tc", "greedy", NULL}};
    csn_str ignored, method;
    CSN_TRY(expect_word(c, "scoring_func", scores[is_sigmoid], &ignored, err));
    CSN_TRY(expect_word(c, "moe_router_activation_func", scores[is_sigmoid], &ignored, err));
    CSN_TRY(expect_word(c, "topk_method", methods[is_sigmoid], &method, err));
    if (!is_sigmoid && !csn_str_is(method, "group_limited_greedy")) {
        a->moe.n_group = 0;
    }
    return CAISSON_OK;
}

/* first_k_dense_replace and moe_layer_freq: which layers are mixtures, the tensors say. */
static void ignore_keys(csn_config *c) {
    static const char *const keys[] = {"first_k_dense_replace",
                                       "moe_layer_freq",
                                       "mlp_layer_types",
                                       "num_nextn_predict_layers",
                                       "ep_size",
                                       "aux_loss_alpha",
                                       "seq_aux",
                                       "use_grouped_topk"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        (void)csn_config_get(c, keys[i]);
    }
}

/* Checks what the source says of experts and sets what follows from it; n_shared experts of the
 * routed ones' width run always. */
static caisson_status finish_moe(csn_arch *a, bool is_sigmoid, uint32_t n_shared,
                                 const char *section, caisson_error *err) {
    if (n_shared > MAX_SHARED || a->moe.n_experts > MAX_EXPERTS) {
        bool is_shared = n_shared > MAX_SHARED;
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = section,
                        .tensor = is_shared ? CSN_STR("shared experts") : CSN_STR("experts"),
                        .what = "more than a model has",
                        CSN_VALUES(is_shared ? MAX_SHARED : MAX_EXPERTS,
                                   is_shared ? n_shared : a->moe.n_experts));
    }
    if (a->moe.n_experts == 0 || a->moe.top_k == 0 || a->moe.top_k > a->moe.n_experts ||
        a->moe.moe_intermediate_size == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = section, .tensor = CSN_STR("experts"),
                        .what = "experts, experts per token or their width are missing or make no "
                                "sense",
                        CSN_VALUES(a->moe.n_experts, a->moe.top_k));
    }
    if (a->moe.n_group <= 1) { /* one group is none */
        a->moe.n_group = 0;
        a->moe.topk_group = 0;
    } else if (a->moe.n_experts % a->moe.n_group != 0 || a->moe.topk_group == 0 ||
               a->moe.topk_group > a->moe.n_group ||
               a->moe.top_k > a->moe.n_experts / a->moe.n_group * a->moe.topk_group) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = section, .tensor = CSN_STR("groups"),
                        .what = "not equal groups of experts, or fewer in those that are chosen "
                                "than a token takes",
                        CSN_VALUES(a->moe.n_group, a->moe.topk_group));
    }
    a->moe.present = true;
    a->moe.router_sigmoid = is_sigmoid;
    a->moe.group_max = a->moe.n_group > 1 && !is_sigmoid;
    a->moe.has_scaling = true;
    a->moe.has_shared = n_shared != 0;
    a->moe.shared_expert_intermediate_size = n_shared * a->moe.moe_intermediate_size;
    return CAISSON_OK;
}

caisson_status csn_config_grouped_moe(csn_config *c, bool is_sigmoid, csn_arch *a,
                                      caisson_error *err) {
    uint32_t n_shared = 0;
    CSN_TRY(u32_of(c, "n_routed_experts", "num_experts", &a->moe.n_experts, err));
    CSN_TRY(u32_of(c, "num_experts_per_tok", "num_experts_per_token", &a->moe.top_k, err));
    CSN_TRY(u32_of(c, "n_shared_experts", "num_shared_experts", &n_shared, err));
    CSN_TRY(u32_of(c, "n_group", "num_expert_group", &a->moe.n_group, err));
    CSN_TRY(csn_config_u32(c, "topk_group", &a->moe.topk_group, err));
    CSN_TRY(csn_config_u32(c, "moe_intermediate_size", &a->moe.moe_intermediate_size, err));
    CSN_TRY(csn_config_bool(c, "norm_topk_prob", &a->moe.norm_topk_prob, err));
    bool norm = a->moe.norm_topk_prob;
    CSN_TRY(csn_config_bool(c, "moe_renormalize", &a->moe.norm_topk_prob, err));
    if (csn_config_get(c, "norm_topk_prob") != NULL && norm != a->moe.norm_topk_prob) {
        return csn_config_refuse(c, "moe_renormalize",
                                 "not what the same key says under its other name", err);
    }
    a->moe.routed_scaling_factor = 1.0;
    CSN_TRY(csn_config_f64(c, "routed_scaling_factor", &a->moe.routed_scaling_factor, err));
    CSN_TRY(read_method(c, is_sigmoid, a, err));
    if (a->moe.n_group > 0 && a->moe.topk_group == 0 && csn_config_get(c, "topk_group") != NULL) {
        return csn_config_refuse(c, "topk_group", "must not be 0", err);
    }
    ignore_keys(c);
    return finish_moe(a, is_sigmoid, n_shared, c->section, err);
}

/* ---- GGUF ---- */

/* Sizes of heads. What the file calls a key is then what the cache holds of it; files of before
 * that have one matrix for keys and values, and name the sizes of heads themselves. */
caisson_status csn_meta_mla(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t key = 0, value = 0;
    double log_mscale = 0;
    CSN_TRY(csn_meta_need_u32(m, "attention.kv_lora_rank", &a->mla.kv_lora_rank, err));
    CSN_TRY(csn_meta_u32(m, "attention.q_lora_rank", &a->mla.q_lora_rank, err));
    CSN_TRY(csn_meta_need_u32(m, "attention.key_length", &key, err));
    CSN_TRY(csn_meta_u32(m, "attention.value_length", &value, err));
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

/* Files of before the key are DeepSeek-V2's: a softmax. Biases are of routers of another kind. */
static caisson_status read_scores(csn_meta *m, bool *ret_sigmoid, caisson_error *err) {
    enum { NONE, SOFTMAX, SIGMOID };
    static const char key[] = "expert_gating_func";
    uint32_t scores = NONE;
    CSN_TRY(csn_meta_u32(m, key, &scores, err));
    for (uint32_t i = 0; scores == NONE && i < m->gguf->dir.n; i++) {
        csn_str name = m->gguf->dir.tensors[i].name;
        if (csn_str_ends(name, CSN_STR("exp_probs_b.bias"))) {
            return csn_meta_refuse(m, key, "a router with biases, but not how it scores", err);
        }
    }
    if (scores > SIGMOID) {
        return csn_meta_refuse(m, key, "experts are scored neither by softmax (1) nor sigmoid (2)",
                               err);
    }
    *ret_sigmoid = scores == SIGMOID;
    return CAISSON_OK;
}

caisson_status csn_meta_grouped_moe(csn_meta *m, bool norm, csn_arch *a, caisson_error *err) {
    uint32_t n_shared = 0;
    bool is_sigmoid = false;
    CSN_TRY(csn_meta_moe(m, norm, false, a, err));
    CSN_TRY(csn_meta_u32(m, "expert_shared_count", &n_shared, err));
    CSN_TRY(csn_meta_u32(m, "expert_group_count", &a->moe.n_group, err));
    CSN_TRY(csn_meta_u32(m, "expert_group_used_count", &a->moe.topk_group, err));
    (void)csn_meta_get(m, "leading_dense_block_count"); /* the tensors say it */
    a->moe.routed_scaling_factor = 1.0;
    CSN_TRY(csn_meta_f64(m, "expert_weights_scale", &a->moe.routed_scaling_factor, err));
    CSN_TRY(read_scores(m, &is_sigmoid, err));
    return finish_moe(a, is_sigmoid, n_shared, "metadata", err);
}
