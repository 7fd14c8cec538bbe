/* SPDX-License-Identifier: Apache-2.0 */
/* What recipes share: tables of tensor names, and the keys that every dense decoder has. */
#include "convert/family.h"

#define LAYER "model.layers.{}."
#define V CSN_DIM_VOCAB
#define H CSN_DIM_HIDDEN
#define Q CSN_DIM_Q
#define KV CSN_DIM_KV
#define F CSN_DIM_FFN
#define HD CSN_DIM_HEAD
#define ONE_D CSN_DIM_NONE
#define NORM CSN_ROW_NORM
#define ROT CSN_ROW_ROTARY
#define OPT CSN_ROW_OPTIONAL

/* Rows in the order in which they are written to the file. */
#define ROW(name, gguf, rows, cols, flags) CSN_NAME_ROW(name, NULL, gguf, rows, cols, flags)
#define HEAD_ROWS                                                                                  \
    ROW("model.embed_tokens.weight", "token_embd.weight", V, H, 0),                                \
        ROW("model.norm.weight", "output_norm.weight", H, ONE_D, NORM),                            \
        ROW("lm_head.weight", "output.weight", V, H, OPT)
#define INPUT_NORM_ROW                                                                             \
    ROW(LAYER "input_layernorm.weight", "blk.{}.attn_norm.weight", H, ONE_D, NORM)
#define OUT_ROW ROW(LAYER "self_attn.o_proj.weight", "blk.{}.attn_output.weight", H, Q, 0)
#define DOWN_ROW ROW(LAYER "mlp.down_proj.weight", "blk.{}.ffn_down.weight", H, F, CSN_ROW_FFN)

static const csn_name_row dense_rows[] = {
    HEAD_ROWS,
    INPUT_NORM_ROW,
    ROW(LAYER "self_attn.q_proj.weight", "blk.{}.attn_q.weight", Q, H, ROT),
    ROW(LAYER "self_attn.k_proj.weight", "blk.{}.attn_k.weight", KV, H, ROT),
    ROW(LAYER "self_attn.v_proj.weight", "blk.{}.attn_v.weight", KV, H, 0),
    OUT_ROW,
    ROW(LAYER "mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", F, H, CSN_ROW_FFN),
    ROW(LAYER "mlp.up_proj.weight", "blk.{}.ffn_up.weight", F, H, CSN_ROW_FFN),
    DOWN_ROW,
};
const csn_name_table csn_names_dense = CSN_NAME_TABLE(dense_rows);

static const char qkv_hf[] = LAYER "self_attn.qkv_proj.weight";
static const char qkv_gguf[] = "blk.{}.attn_qkv.weight";
static const char gate_up_hf[] = LAYER "mlp.gate_up_proj.weight";
static const char gate_up_gguf[] = "blk.{}.ffn_up.weight";
static const csn_name_row fused_rows[] = {
    HEAD_ROWS,
    INPUT_NORM_ROW,
    {LAYER "self_attn.q_proj.weight", qkv_hf, qkv_gguf, Q, H, 0, {0}, {Q, KV, KV}},
    {LAYER "self_attn.k_proj.weight", qkv_hf, qkv_gguf, KV, H, 0, {Q}, {Q, KV, KV}},
    {LAYER "self_attn.v_proj.weight", qkv_hf, qkv_gguf, KV, H, 0, {Q, KV}, {Q, KV, KV}},
    OUT_ROW,
    {LAYER "mlp.gate_proj.weight", gate_up_hf, gate_up_gguf, F, H, 0, {0}, {F, F}},
    {LAYER "mlp.up_proj.weight", gate_up_hf, gate_up_gguf, F, H, 0, {F}, {F, F}},
    DOWN_ROW,
};
const csn_name_table csn_names_fused = CSN_NAME_TABLE(fused_rows);

/* The norm in front of the FFN, where there is no sandwich. */
static const csn_name_row pre_norm_rows[] = {
    ROW(LAYER "post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", H, ONE_D, NORM),
};
const csn_name_table csn_names_ffn_norm = CSN_NAME_TABLE(pre_norm_rows);

static const csn_name_row bias_rows[] = {
    ROW(LAYER "self_attn.q_proj.bias", "blk.{}.attn_q.bias", Q, ONE_D, OPT | ROT),
    ROW(LAYER "self_attn.k_proj.bias", "blk.{}.attn_k.bias", KV, ONE_D, OPT | ROT),
    ROW(LAYER "self_attn.v_proj.bias", "blk.{}.attn_v.bias", KV, ONE_D, OPT),
    ROW(LAYER "self_attn.o_proj.bias", "blk.{}.attn_output.bias", H, ONE_D, OPT),
    ROW(LAYER "mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", F, ONE_D, OPT),
    ROW(LAYER "mlp.up_proj.bias", "blk.{}.ffn_up.bias", F, ONE_D, OPT),
    ROW(LAYER "mlp.down_proj.bias", "blk.{}.ffn_down.bias", H, ONE_D, OPT),
};
const csn_name_table csn_names_biases = CSN_NAME_TABLE(bias_rows);

static const csn_name_row qk_norm_rows[] = {
    ROW(LAYER "self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", HD, ONE_D, NORM),
    ROW(LAYER "self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", HD, ONE_D, NORM),
};
const csn_name_table csn_names_qk_norm = CSN_NAME_TABLE(qk_norm_rows);

static const csn_name_row sandwich_rows[] = {
    ROW(LAYER "post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", H, ONE_D,
        NORM),
    ROW(LAYER "pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", H, ONE_D, NORM),
    ROW(LAYER "post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", H, ONE_D, NORM),
};
const csn_name_table csn_names_sandwich = CSN_NAME_TABLE(sandwich_rows);

/* ---- config.json ---- */

static caisson_status need_u32(csn_config *c, const char *key, uint32_t fallback, uint32_t *ret,
                               caisson_error *err) {
    *ret = fallback;
    CSN_TRY(csn_config_u32(c, key, ret, err));
    if (*ret == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = c->section, .tensor = csn_str_from(key),
                        .what = "key is missing or 0");
    }
    return CAISSON_OK;
}

static caisson_status act_of(csn_config *c, const char *key, bool gelu_is_tanh, csn_act *ret,
                             caisson_error *err) {
    csn_str s = {0};
    CSN_TRY(csn_config_str(c, key, &s, err));
    if (csn_config_get(c, key) == NULL) {
        return CAISSON_OK;
    }
    if (csn_str_is(s, "silu") || csn_str_is(s, "swish")) {
        *ret = CSN_ACT_SILU;
    } else if (csn_str_is(s, "situ")) {
        *ret = CSN_ACT_SITU;
    } else if (csn_str_is(s, "gelu_pytorch_tanh") || csn_str_is(s, "gelu_new") ||
               csn_str_is(s, "gelu_tanh") || (gelu_is_tanh && csn_str_is(s, "gelu"))) {
        *ret = CSN_ACT_GELU_TANH;
    } else {
        return csn_config_refuse(c, key, "activation is not supported", err);
    }
    return CAISSON_OK;
}

/* There are two names for it. The one that the class does not read may be left from another
 * version, but says the same. */
static caisson_status read_act(csn_config *c, const csn_config_defaults *d, csn_act *ret,
                               caisson_error *err) {
    const char *names[] = {"hidden_act", "hidden_activation"};
    const char *key = names[d->has_activation], *other = names[!d->has_activation];
    *ret = d->hidden_act;
    CSN_TRY(act_of(c, key, d->gelu_is_tanh, ret, err));
    csn_act said = *ret;
    CSN_TRY(act_of(c, other, d->gelu_is_tanh, &said, err));
    return said == *ret ? CAISSON_OK
                        : csn_config_refuse(c, other,
                                            "another activation than the one that models of this "
                                            "family are run by",
                                            err);
}

caisson_status csn_config_sizes(csn_config *c, const csn_config_defaults *d, csn_arch *a,
                                caisson_error *err) {
    CSN_TRY(need_u32(c, "vocab_size", d->vocab_size, &a->vocab_size, err));
    CSN_TRY(need_u32(c, "hidden_size", d->hidden_size, &a->hidden_size, err));
    CSN_TRY(need_u32(c, "intermediate_size", d->intermediate_size, &a->intermediate_size, err));
    CSN_TRY(need_u32(c, "num_hidden_layers", d->n_layers, &a->n_layers, err));
    CSN_TRY(need_u32(c, "num_attention_heads", d->n_heads, &a->n_heads, err));
    /* Absent means the class's default, null means as many as there are heads. */
    bool is_said = csn_jval_get(c->object, "num_key_value_heads") != NULL;
    CSN_TRY(need_u32(c, "num_key_value_heads",
                     d->n_kv_heads != 0 && !is_said ? d->n_kv_heads : a->n_heads, &a->n_kv_heads,
                     err));
    CSN_TRY(need_u32(c, "head_dim", d->head_dim ? d->head_dim : a->hidden_size / a->n_heads,
                     &a->head_dim, err));
    CSN_TRY(need_u32(c, "max_position_embeddings", d->max_position_embeddings,
                     &a->max_position_embeddings, err));
    a->rms_norm_eps = d->rms_norm_eps;
    CSN_TRY(csn_config_f64(c, "rms_norm_eps", &a->rms_norm_eps, err));
    a->tie_word_embeddings = d->tie_word_embeddings;
    CSN_TRY(csn_config_bool(c, "tie_word_embeddings", &a->tie_word_embeddings, err));
    return read_act(c, d, &a->hidden_act, err);
}

static caisson_status alloc_layers(csn_arch *a, csn_arena *arena, caisson_error *err) {
    if (a->n_layers > 1u << 16) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = CSN_STR("num_hidden_layers"),
                        .what = "too many layers", CSN_VALUES(1u << 16, a->n_layers));
    }
    a->n_layer_types = a->n_layers;
    return CSN_ARENA_NEW(arena, a->n_layers, &a->layer_types, err);
}

caisson_status csn_arch_full_layers(csn_arch *a, csn_arena *arena, caisson_error *err) {
    CSN_TRY(alloc_layers(a, arena, err));
    for (uint32_t i = 0; i < a->n_layers; i++) {
        a->layer_types[i] = CSN_LAYER_FULL_ATTENTION;
    }
    return CAISSON_OK;
}

caisson_status csn_arch_pattern(csn_arch *a, uint32_t pattern, csn_arena *arena,
                                caisson_error *err) {
    CSN_TRY(alloc_layers(a, arena, err));
    for (uint32_t i = 0; i < a->n_layers; i++) {
        a->layer_types[i] =
            (i + 1) % pattern != 0 ? CSN_LAYER_SLIDING_ATTENTION : CSN_LAYER_FULL_ATTENTION;
    }
    a->sliding_window_pattern = pattern;
    return CAISSON_OK;
}

/* The pattern that gives exactly these types, 0 if there is none. */
static uint32_t pattern_of(const csn_arch *a) {
    uint32_t p = 1;
    while (p <= a->n_layers && a->layer_types[p - 1] == CSN_LAYER_SLIDING_ATTENTION) {
        p++;
    }
    for (uint32_t i = 0; i < a->n_layers; i++) {
        bool is_local = a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION;
        if (is_local != ((i + 1) % p != 0)) {
            return 0;
        }
    }
    return p > 1 && p <= a->n_layers ? p : 0;
}

caisson_status csn_config_layer_types(csn_config *c, csn_arena *arena, csn_arch *a, bool *ret_has,
                                      caisson_error *err) {
    const csn_jval *v = csn_config_get(c, "layer_types");
    *ret_has = v != NULL;
    if (v == NULL) {
        return CAISSON_OK;
    }
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || csn_jval_len(v) != a->n_layers) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = c->section,
                        .tensor = CSN_STR("layer_types"), .what = "not one type a layer",
                        CSN_VALUES(a->n_layers, csn_jval_len(v)));
    }
    CSN_TRY(alloc_layers(a, arena, err));
    bool any = false;
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        csn_str s = {0};
        (void)csn_jval_str(it.value, &s);
        if (csn_str_is(s, "sliding_attention")) {
            a->layer_types[it.index] = CSN_LAYER_SLIDING_ATTENTION;
            any = true;
        } else if (csn_str_is(s, "full_attention")) {
            a->layer_types[it.index] = CSN_LAYER_FULL_ATTENTION;
        } else {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = c->section,
                            .tensor = CSN_STR("layer_types"), .what = "kind of layer is not known",
                            CSN_TEXTS(CSN_STR("full_attention or sliding_attention"), s));
        }
    }
    a->sliding_window_pattern = any ? pattern_of(a) : 0;
    return CAISSON_OK;
}

/* ---- GGUF ---- */

caisson_status csn_meta_model(csn_meta *m, csn_arch *a, caisson_error *err) {
    bool is_causal = true;
    const csn_gguf_pair *tokens = csn_gguf_find(m->gguf, CSN_STR("tokenizer.ggml.tokens"));
    const csn_tensor *embed = csn_directory_find(&m->gguf->dir, CSN_STR("token_embd.weight"));
    CSN_TRY(csn_meta_need_u32(m, "embedding_length", &a->hidden_size, err));
    CSN_TRY(csn_meta_need_u32(m, "feed_forward_length", &a->intermediate_size, err));
    CSN_TRY(csn_meta_need_u32(m, "block_count", &a->n_layers, err));
    CSN_TRY(csn_meta_need_u32(m, "attention.head_count", &a->n_heads, err));
    a->n_kv_heads = a->n_heads;
    CSN_TRY(csn_meta_need_u32(m, "context_length", &a->max_position_embeddings, err));
    CSN_TRY(csn_meta_need_f64(m, "attention.layer_norm_rms_epsilon", &a->rms_norm_eps, err));
    if (a->n_heads == 0 || a->hidden_size == 0 || a->n_layers == 0 ||
        a->max_position_embeddings == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .what = "a size is 0");
    }
    CSN_TRY(csn_meta_bool(m, "attention.causal", &is_causal, err));
    if (!is_causal) {
        return csn_meta_refuse(m, "attention.causal", "only causal models are supported", err);
    }
    /* The embedding's height is the truth: some writers pad it beyond vocab_size. */
    uint32_t said = 0;
    CSN_TRY(csn_meta_u32(m, "vocab_size", &said, err));
    a->vocab_size = said;
    if (embed != NULL && embed->shape.n_dims == 2 && embed->shape.dim[0] <= INT32_MAX) {
        a->vocab_size = (uint32_t)embed->shape.dim[0];
    } else if (tokens != NULL && tokens->n <= INT32_MAX) {
        a->vocab_size = (uint32_t)tokens->n;
    }
    a->tie_word_embeddings = csn_directory_find(&m->gguf->dir, CSN_STR("output.weight")) == NULL;
    return CAISSON_OK;
}

caisson_status csn_meta_sizes(csn_meta *m, csn_arch *a, caisson_error *err) {
    uint32_t value_length;
    CSN_TRY(csn_meta_model(m, a, err));
    CSN_TRY(csn_meta_u32(m, "attention.head_count_kv", &a->n_kv_heads, err));
    if (a->n_kv_heads == 0) {
        return csn_meta_refuse(m, "attention.head_count_kv", "must not be 0", err);
    }
    a->head_dim = a->hidden_size / a->n_heads;
    CSN_TRY(csn_meta_u32(m, "attention.key_length", &a->head_dim, err));
    value_length = a->head_dim;
    CSN_TRY(csn_meta_u32(m, "attention.value_length", &value_length, err));
    if (value_length != a->head_dim) {
        return csn_meta_refuse(m, "attention.value_length",
                               "values of another length than keys are not supported", err);
    }
    return CAISSON_OK;
}
