/* SPDX-License-Identifier: Apache-2.0 */
/* What `config` says of attention: which layers are KDA, latent attention, rotation. */
#include "format/warp/config_internal.h"

struct kda {
    uint32_t n_heads, head_dim, conv;
    double lower_bound;
    const csn_jval *layers;
};
#define F(member, key, type) CSN_JFIELD(struct kda, member, key, type, CSN_JF_NULLABLE)
static const csn_jfield kda_fields[] = {
    F(n_heads, "num_heads", CSN_JT_U32),
    F(head_dim, "head_dim", CSN_JT_U32),
    F(conv, "short_conv_kernel_size", CSN_JT_U32),
    F(lower_bound, "gate_lower_bound", CSN_JT_F64_AS_F32),
    F(layers, "kda_layers", CSN_JT_ARRAY),
};
#undef F

struct yarn {
    csn_str type, rope_type;
    double factor, mscale, mscale_all_dim, beta_fast, beta_slow, attention_factor;
    uint32_t original;
    bool truncate;
};
#define F(member, key, type) CSN_JFIELD(struct yarn, member, key, type, CSN_JF_NULLABLE)
static const csn_jfield yarn_fields[] = {
    F(type, "type", CSN_JT_STR),
    F(rope_type, "rope_type", CSN_JT_STR),
    F(factor, "factor", CSN_JT_F64_AS_F32),
    F(mscale, "mscale", CSN_JT_F64_AS_F32),
    F(mscale_all_dim, "mscale_all_dim", CSN_JT_F64_AS_F32),
    F(beta_fast, "beta_fast", CSN_JT_F64_AS_F32),
    F(beta_slow, "beta_slow", CSN_JT_F64_AS_F32),
    F(original, "original_max_position_embeddings", CSN_JT_U32),
    F(attention_factor, "attention_factor", CSN_JT_F64_AS_F32),
    F(truncate, "truncate", CSN_JT_BOOL),
};
#undef F

/* transformers 5 says all of RoPE here. The format has no such key: its engine passes over it. */
struct rope_parameters {
    csn_str type, rope_type;
    double theta;
};
#define F(member, key, type) CSN_JFIELD(struct rope_parameters, member, key, type, CSN_JF_NULLABLE)
static const csn_jfield rope_parameters_fields[] = {
    F(type, "type", CSN_JT_STR),
    F(rope_type, "rope_type", CSN_JT_STR),
    F(theta, "rope_theta", CSN_JT_F64_AS_F32),
};
#undef F

caisson_status csn_warp_read_kda(const struct csn_warp_raw *r, csn_arena *arena, csn_arch *a,
                                 caisson_error *err) {
    struct kda k = {.conv = 4};
    a->n_layer_types = r->n_layers;
    CSN_TRY(CSN_ARENA_NEW(arena, r->n_layers, &a->layer_types, err)); /* full attention */
    if (r->kda != NULL) {
        CSN_TRY(csn_jfields_read(r->kda, kda_fields, CSN_N_FIELDS(kda_fields), "linear_attn_config",
                                 &k, NULL, err));
    }
    for (csn_jiter it = csn_jval_iter(k.layers); csn_jiter_next(&it);) { /* counted from 1 */
        uint64_t layer = 0;
        if (!csn_jval_u64(it.value, &layer) || layer < 1 || layer > r->n_layers ||
            a->layer_types[layer - 1] == CSN_LAYER_KDA) {
            return CSN_FAIL(err, CAISSON_E_PARSE,
                            .tensor = CSN_STR("linear_attn_config.kda_layers"),
                            .what = "not the number of a layer (from 1 on), or given twice",
                            CSN_VALUES(r->n_layers, layer));
        }
        a->layer_types[layer - 1] = CSN_LAYER_KDA;
    }
    if (csn_jval_len(k.layers) == 0) {
        return CAISSON_OK;
    }
    if (k.n_heads == 0 || k.n_heads > 1 << 16 || k.head_dim == 0 || k.head_dim > 1 << 16 ||
        k.conv == 0 || k.conv > 64) {
        return csn_warp_refuse(
            err, CAISSON_E_PARSE, "linear_attn_config", "heads or kernel out of range",
            CSN_STR("num_heads, head_dim above 0, kernel 1 to 64"), (csn_str){0});
    }
    a->linear_conv_kernel_dim = k.conv;
    a->linear_n_key_heads = a->linear_n_value_heads = k.n_heads;
    a->linear_key_head_dim = a->linear_value_head_dim = k.head_dim;
    a->has_kda_gate_lower_bound = k.lower_bound < 0;
    a->kda_gate_lower_bound = a->has_kda_gate_lower_bound ? k.lower_bound : 0;
    return CAISSON_OK;
}

/* What it says must be what the format's own keys say. */
static caisson_status check_rope_parameters(const struct csn_warp_raw *r, const csn_arch *a,
                                            caisson_error *err) {
    struct rope_parameters p = {.type = CSN_STR("default"), .theta = r->rope_theta};
    CSN_TRY(csn_jfields_read(r->rope_parameters, rope_parameters_fields,
                             CSN_N_FIELDS(rope_parameters_fields), "rope_parameters", &p, NULL,
                             err));
    csn_str type = p.rope_type.len > 0 ? p.rope_type : p.type;
    if (!csn_str_is(type, a->yarn.present ? "yarn" : "default")) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_parameters.rope_type",
                               "in this format rope_scaling says it, which says something else",
                               a->yarn.present ? CSN_STR("yarn") : CSN_STR("default"), p.rope_type);
    }
    if (p.theta != r->rope_theta) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_parameters.rope_theta",
                               "in this format rope_theta says it, which is another number",
                               (csn_str){0}, (csn_str){0});
    }
    return CAISSON_OK;
}

/* No factor above 1 is no scaling at all, whatever the other keys say. */
static caisson_status read_yarn(const struct csn_warp_raw *r, csn_arch *a, caisson_error *err) {
    struct yarn y = {.factor = 1,
                     .mscale = 1,
                     .beta_fast = 32,
                     .beta_slow = 1,
                     .attention_factor = 1,
                     .original = 4096,
                     .truncate = true};
    if (r->rope_scaling == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_jfields_read(r->rope_scaling, yarn_fields, CSN_N_FIELDS(yarn_fields),
                             "rope_scaling", &y, NULL, err));
    csn_str type = y.type.len > 0 ? y.type : y.rope_type;
    if (y.factor <= 1) {
        return CAISSON_OK;
    }
    if (!csn_str_is(type, "yarn")) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_scaling.type",
                               "this kind of rope scaling is not known here", CSN_STR("yarn"),
                               type);
    }
    if (y.mscale != y.mscale_all_dim) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_scaling.mscale",
                               "differs from mscale_all_dim", CSN_STR("the same"), (csn_str){0});
    }
    if (y.attention_factor != 1) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_scaling.attention_factor",
                               "the format has no such factor", CSN_STR("1"), (csn_str){0});
    }
    if (!y.truncate) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "rope_scaling.truncate",
                               "in this format the ramp begins and ends at whole dims",
                               CSN_STR("true"), CSN_STR("false"));
    }
    if (y.original == 0 || !(y.beta_fast > 0) || !(y.beta_slow > 0)) {
        return csn_warp_refuse(err, CAISSON_E_PARSE, "rope_scaling",
                               "lengths or betas out of range", CSN_STR("above 0"), (csn_str){0});
    }
    a->yarn.present = true;
    a->yarn.factor = (float)y.factor;
    a->yarn.beta_fast = (float)y.beta_fast;
    a->yarn.beta_slow = (float)y.beta_slow;
    a->yarn.attention_factor = 1.0f; /* mscale over mscale_all_dim */
    a->yarn.has_mscale_all_dim = y.mscale_all_dim != 0;
    a->yarn.mscale_all_dim = (float)y.mscale_all_dim;
    a->yarn.original_max_position_embeddings = y.original;
    return CAISSON_OK;
}

caisson_status csn_warp_read_mla(const struct csn_warp_raw *r, csn_arch *a, caisson_error *err) {
    a->n_heads = a->n_kv_heads = r->n_heads;
    a->head_dim = r->qk_nope + r->qk_rope > 0 ? r->qk_nope + r->qk_rope : a->linear_key_head_dim;
    bool has_mla = false;
    for (uint32_t i = 0; i < a->n_layer_types; i++) {
        has_mla |= a->layer_types[i] != CSN_LAYER_KDA;
    }
    if (!has_mla) {
        return CAISSON_OK;
    }
    if (r->kv_lora == 0 || r->v_head == 0 || r->qk_nope == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("kv_lora_rank"),
                        .what = "a layer has latent attention, but its geometry is missing",
                        .want = CSN_STR("kv_lora_rank, v_head_dim, qk_nope_head_dim above 0"));
    }
    if (!r->mla_use_nope && r->qk_rope % 2 != 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("qk_rope_head_dim"),
                        .what = "odd, but pairs of it are rotated",
                        CSN_VALUES(r->qk_rope + 1, r->qk_rope));
    }
    a->mla.present = true;
    a->mla.kv_lora_rank = r->kv_lora;
    a->mla.q_lora_rank = r->q_lora;
    a->mla.qk_nope_head_dim = r->qk_nope;
    a->mla.qk_rope_head_dim = r->qk_rope;
    a->mla.v_head_dim = r->v_head;
    a->mla.nope = r->mla_use_nope;
    a->mla.rope_interleave = true;
    if (r->mla_use_nope) {
        return CAISSON_OK;
    }
    CSN_TRY(read_yarn(r, a, err));
    return r->rope_parameters != NULL ? check_rope_parameters(r, a, err) : CAISSON_OK;
}
