/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/warp_names.h"

#include "format/warp/warp.h"

#define ATTN "self_attn."
#define MOE "block_sparse_moe."
#define KDA(name) ATTN name, "kda_attn." name, CSN_WARP_KDA
#define MIX(name) MOE name, "mlp." name, CSN_WARP_MIXTURE
#define SHARED(name) MOE "shared_experts." name, "mlp.shared_expert." name, CSN_WARP_MIXTURE
#define DIM(d) CSN_WARP_DIM_##d

const csn_warp_row csn_warp_rows[] = {
    {"model.embed_tokens.weight",
     NULL,
     CSN_WARP_OF_MODEL,
     {DIM(VOCAB), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {"model.norm.weight", NULL, CSN_WARP_OF_MODEL, {DIM(HIDDEN)}, CSN_WARP_NORM},
    {"lm_head.weight", NULL, CSN_WARP_OF_MODEL, {DIM(VOCAB), DIM(HIDDEN)}, CSN_WARP_HEAD},
    {"model.output_attn_res_norm.weight",
     NULL,
     CSN_WARP_OF_MODEL | CSN_WARP_RESIDUALS,
     {DIM(HIDDEN)},
     CSN_WARP_NORM},
    {"model.output_attn_res_proj.weight",
     NULL,
     CSN_WARP_OF_MODEL | CSN_WARP_RESIDUALS,
     {DIM(ONE), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {"input_layernorm.weight", NULL, 0, {DIM(HIDDEN)}, CSN_WARP_NORM},
    {"post_attention_layernorm.weight", NULL, 0, {DIM(HIDDEN)}, CSN_WARP_NORM},
    {KDA("q_proj.weight"), {DIM(KDA), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("k_proj.weight"), {DIM(KDA), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("v_proj.weight"), {DIM(KDA), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("q_conv1d.weight"), {DIM(KDA), DIM(ONE), DIM(KDA_CONV)}, CSN_WARP_CONV},
    {KDA("k_conv1d.weight"), {DIM(KDA), DIM(ONE), DIM(KDA_CONV)}, CSN_WARP_CONV},
    {KDA("v_conv1d.weight"), {DIM(KDA), DIM(ONE), DIM(KDA_CONV)}, CSN_WARP_CONV},
    {KDA("A_log"), {DIM(KDA_HEADS)}, CSN_WARP_A_LOG},
    {KDA("dt_bias"), {DIM(KDA)}, CSN_WARP_DT_BIAS},
    {KDA("b_proj.weight"), {DIM(KDA_HEADS), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("f_a_proj.weight"), {DIM(KDA_HEAD), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("f_b_proj.weight"), {DIM(KDA), DIM(KDA_HEAD)}, CSN_WARP_WEIGHT},
    {KDA("g_proj.weight") | CSN_WARP_FULL_GATE, {DIM(KDA), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("g_a_proj.weight") | CSN_WARP_LOW_GATE, {DIM(KDA_HEAD), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {KDA("g_b_proj.weight") | CSN_WARP_LOW_GATE, {DIM(KDA), DIM(KDA_HEAD)}, CSN_WARP_WEIGHT},
    {KDA("o_norm.weight"), {DIM(KDA_HEAD)}, CSN_WARP_NORM},
    {KDA("o_proj.weight"), {DIM(HIDDEN), DIM(KDA)}, CSN_WARP_WEIGHT},
    {ATTN "q_proj.weight",
     NULL,
     CSN_WARP_MLA | CSN_WARP_Q_DIRECT,
     {DIM(Q), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {ATTN "q_a_proj.weight",
     NULL,
     CSN_WARP_MLA | CSN_WARP_Q_LORA,
     {DIM(Q_LORA), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {ATTN "q_a_layernorm.weight",
     NULL,
     CSN_WARP_MLA | CSN_WARP_Q_LORA,
     {DIM(Q_LORA)},
     CSN_WARP_NORM},
    {ATTN "q_b_proj.weight",
     NULL,
     CSN_WARP_MLA | CSN_WARP_Q_LORA,
     {DIM(Q), DIM(Q_LORA)},
     CSN_WARP_WEIGHT},
    {ATTN "kv_a_proj_with_mqa.weight",
     NULL,
     CSN_WARP_MLA,
     {DIM(KV_A), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {ATTN "kv_a_layernorm.weight", NULL, CSN_WARP_MLA, {DIM(KV_LORA)}, CSN_WARP_NORM},
    {ATTN "kv_b_proj.weight", NULL, CSN_WARP_MLA, {DIM(KV_B), DIM(KV_LORA)}, CSN_WARP_WEIGHT},
    {ATTN "g_proj.weight",
     NULL,
     CSN_WARP_MLA | CSN_WARP_MLA_GATE,
     {DIM(V), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {ATTN "o_proj.weight", NULL, CSN_WARP_MLA, {DIM(HIDDEN), DIM(V)}, CSN_WARP_WEIGHT},
    {"self_attention_res_norm.weight", NULL, CSN_WARP_RESIDUALS, {DIM(HIDDEN)}, CSN_WARP_NORM},
    {"self_attention_res_proj.weight",
     NULL,
     CSN_WARP_RESIDUALS,
     {DIM(ONE), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {"mlp_res_norm.weight", NULL, CSN_WARP_RESIDUALS, {DIM(HIDDEN)}, CSN_WARP_NORM},
    {"mlp_res_proj.weight", NULL, CSN_WARP_RESIDUALS, {DIM(ONE), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {"mlp.gate_proj.weight", NULL, CSN_WARP_DENSE, {DIM(FFN), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {"mlp.up_proj.weight", NULL, CSN_WARP_DENSE, {DIM(FFN), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {"mlp.down_proj.weight", NULL, CSN_WARP_DENSE, {DIM(HIDDEN), DIM(FFN)}, CSN_WARP_WEIGHT},
    {MIX("gate.weight"), {DIM(EXPERTS), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {MOE "gate.e_score_correction_bias",
     "mlp.expert_bias",
     CSN_WARP_MIXTURE,
     {DIM(EXPERTS)},
     CSN_WARP_SCORE_BIAS},
    {SHARED("gate_proj.weight"), {DIM(SHARED), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {SHARED("up_proj.weight"), {DIM(SHARED), DIM(HIDDEN)}, CSN_WARP_WEIGHT},
    {SHARED("down_proj.weight"), {DIM(HIDDEN), DIM(SHARED)}, CSN_WARP_WEIGHT},
    {MIX("routed_expert_down_proj.weight") | CSN_WARP_LATENT,
     {DIM(LATENT), DIM(HIDDEN)},
     CSN_WARP_WEIGHT},
    {MIX("routed_expert_norm.weight") | CSN_WARP_LATENT, {DIM(LATENT)}, CSN_WARP_NORM},
    {MIX("routed_expert_up_proj.weight") | CSN_WARP_LATENT,
     {DIM(HIDDEN), DIM(LATENT)},
     CSN_WARP_WEIGHT},
    {0},
};

uint64_t csn_warp_row_dim(const csn_warp_words *c, csn_warp_dim d) {
    uint64_t kda = (uint64_t)c->n_kda_heads * c->kda_head_dim, heads = c->n_heads;
    switch (d) {
    case DIM(ONE): return 1;
    case DIM(VOCAB): return c->vocab_size;
    case DIM(HIDDEN): return c->hidden_size;
    case DIM(FFN): return c->intermediate_size;
    case DIM(EXPERTS): return c->n_experts;
    case DIM(SHARED): return (uint64_t)c->expert_width * c->n_shared;
    case DIM(LATENT): return c->latent_size;
    case DIM(KDA_HEADS): return c->n_kda_heads;
    case DIM(KDA_HEAD): return c->kda_head_dim;
    case DIM(KDA): return kda;
    case DIM(KDA_CONV): return c->kda_conv;
    case DIM(Q_LORA): return c->q_lora_rank;
    case DIM(Q): return heads * (c->qk_nope_head_dim + c->qk_rope_head_dim);
    case DIM(KV_LORA): return c->kv_lora_rank;
    case DIM(KV_A): return (uint64_t)c->kv_lora_rank + c->qk_rope_head_dim;
    case DIM(KV_B): return heads * (c->qk_nope_head_dim + c->v_head_dim);
    case DIM(V): return heads * c->v_head_dim;
    case DIM(NONE): break;
    }
    return 0;
}

unsigned csn_warp_layer_has(const csn_warp_words *c, uint32_t i) {
    unsigned has = c->is_kda != NULL && c->is_kda[i] ? CSN_WARP_KDA : CSN_WARP_MLA;
    has |= i < c->first_dense ? CSN_WARP_DENSE : CSN_WARP_MIXTURE;
    has |= c->attn_res_block != 0 ? CSN_WARP_RESIDUALS : 0;
    has |= c->kda_full_gate ? CSN_WARP_FULL_GATE : CSN_WARP_LOW_GATE;
    has |= c->q_lora_rank != 0 ? CSN_WARP_Q_LORA : CSN_WARP_Q_DIRECT;
    has |= c->mla_gate ? CSN_WARP_MLA_GATE : 0;
    return has | (c->latent_size != 0 ? CSN_WARP_LATENT : 0);
}

static bool split(csn_str name, uint32_t *ret_layer, csn_str *ret_rest) {
    uint64_t n;
    if (!csn_warp_split_name(name, &n, ret_rest) || n > INT32_MAX) {
        return false;
    }
    *ret_layer = (uint32_t)n;
    return true;
}

const csn_warp_row *csn_warp_row_find(const csn_warp_words *c, csn_str name, uint32_t *ret_layer) {
    csn_str rest = name;
    bool of_layer = split(name, ret_layer, &rest);
    if (of_layer && *ret_layer >= c->n_layers) {
        return NULL;
    }
    unsigned has = csn_warp_layer_has(c, of_layer ? *ret_layer : 0);
    has |= of_layer ? 0 : CSN_WARP_OF_MODEL;
    for (const csn_warp_row *r = csn_warp_rows; r->name != NULL; r++) {
        bool fits = (r->needs & ~has) == 0 && of_layer == ((r->needs & CSN_WARP_OF_MODEL) == 0);
        if (fits && csn_str_is(rest, r->cmf != NULL ? r->cmf : r->name)) {
            return r;
        }
    }
    return NULL;
}

bool csn_warp_expert_of(csn_str name, uint32_t *ret_layer, uint32_t *ret_expert,
                        unsigned *ret_kind) {
    static const csn_str head = {"mlp.experts.", 12};
    static const char *const kinds[CSN_WARP_N_KINDS] = {"gate_proj.weight", "up_proj.weight",
                                                        "down_proj.weight"};
    csn_str rest;
    uint64_t n;
    if (!split(name, ret_layer, &rest) || !csn_str_starts(rest, head)) {
        return false;
    }
    size_t point = csn_str_find(rest, CSN_STR("."), head.len);
    if (point == SIZE_MAX ||
        !csn_str_to_u64(csn_str_make(rest.ptr + head.len, point - head.len), &n) || n > INT32_MAX) {
        return false;
    }
    *ret_expert = (uint32_t)n;
    rest = csn_str_make(rest.ptr + point + 1, rest.len - point - 1);
    for (*ret_kind = 0; *ret_kind < CSN_WARP_N_KINDS; ++*ret_kind) {
        if (csn_str_is(rest, kinds[*ret_kind])) {
            return true;
        }
    }
    return false;
}

const csn_dtype *csn_warp_row_dtype(const csn_warp_row *r, const csn_shape *shape, unsigned bits) {
    enum { SMALL = 65536 };
    uint64_t n = 0;
    (void)csn_shape_count(shape, &n);
    bool is_f32 = shape->n_dims != 2 || n < SMALL || r->dims[0] == DIM(ONE);
    bool is_q8 = r->dims[0] == DIM(VOCAB) || bits == 8;
    return csn_dtype_by_name(is_f32 ? CSN_STR("f32") : is_q8 ? CSN_STR("q8g") : CSN_STR("q4g"));
}
