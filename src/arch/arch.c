/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an `arch` object: one table of keys a JSON object, then what a table cannot say (enums,
 * arrays, ranges). Writing is in arch_write.c; both share the tables. */
#include "arch/arch_internal.h"

#include <math.h>

#include "caisson/limits.h"

#define REQ CSN_JF_REQUIRED
#define OPT CSN_JF_NULLABLE
#define U32(member, key, flags) CSN_JFIELD(csn_arch, member, key, CSN_JT_U32, flags)
#define F32(member, key, flags) CSN_JFIELD(csn_arch, member, key, CSN_JT_F32, flags)
#define F64(member, key, flags) CSN_JFIELD(csn_arch, member, key, CSN_JT_F64_AS_F32, flags)
#define BOOL(member, key, flags) CSN_JFIELD(csn_arch, member, key, CSN_JT_BOOL, flags)

/* Facts 2.3. "Option" keys accept null, keys with a plain default do not. */
const csn_jfield csn_arch_fields[CSN_ARCH_N_FIELDS] = {
    CSN_JFIELD(csn_arch, arch_name, "arch_name", CSN_JT_STR, REQ),
    U32(hidden_size, "hidden_size", REQ),
    U32(intermediate_size, "intermediate_size", REQ),
    U32(n_layers, "num_layers", REQ),
    U32(n_heads, "num_attention_heads", REQ),
    U32(n_kv_heads, "num_kv_heads", REQ),
    U32(head_dim, "head_dim", REQ),
    U32(vocab_size, "vocab_size", REQ),
    CSN_JCHECK("layer_types", CSN_JT_ARRAY, REQ),
    F64(rms_norm_eps, "rms_norm_eps", REQ),
    CSN_JCHECK("norm_style", CSN_JT_STR, 0),
    F64(rope_theta, "rope_theta", 0),
    BOOL(tie_word_embeddings, "tie_word_embeddings", 0),
    F32(partial_rotary_factor, "partial_rotary_factor", 0),
    CSN_JCHECK("yarn", CSN_JT_OBJECT, OPT),
    CSN_JCHECK("attention_heads_per_layer", CSN_JT_ARRAY, OPT),
    CSN_JCHECK("hidden_act", CSN_JT_STR, 0),
    F32(embed_multiplier, "embed_multiplier", 0),
    F64(query_pre_attn_scalar, "query_pre_attn_scalar", OPT),
    U32(sliding_window, "sliding_window", OPT),
    U32(sliding_window_pattern, "sliding_window_pattern", OPT),
    F64(rope_local_base_freq, "rope_local_base_freq", OPT),
    F32(local_partial_rotary_factor, "local_partial_rotary_factor", OPT),
    U32(global_head_dim, "global_head_dim", OPT),
    U32(n_global_kv_heads, "num_global_kv_heads", OPT),
    F32(global_partial_rotary_factor, "global_partial_rotary_factor", OPT),
    F64(final_logit_softcapping, "final_logit_softcapping", OPT),
    CSN_JCHECK("mla", CSN_JT_OBJECT, OPT),
    F64(activation_situ_beta, "activation_situ_beta", OPT),
    F64(activation_situ_linear_beta, "activation_situ_linear_beta", OPT),
    F64(attn_logit_softcapping, "attn_logit_softcapping", OPT),
    BOOL(attn_v_norm, "attn_v_norm", 0),
    CSN_JCHECK("mtp", CSN_JT_OBJECT, OPT),
    CSN_JCHECK("moe", CSN_JT_OBJECT, OPT),
    CSN_JCHECK("linear_core", CSN_JT_OBJECT, OPT),
    U32(head_clusters, "head_clusters", OPT),
    U32(max_position_embeddings, "max_position_embeddings", REQ),
    U32(linear_conv_kernel_dim, "linear_conv_kernel_dim", OPT),
    U32(linear_n_key_heads, "linear_num_key_heads", OPT),
    U32(linear_n_value_heads, "linear_num_value_heads", OPT),
    U32(linear_key_head_dim, "linear_key_head_dim", OPT),
    U32(linear_value_head_dim, "linear_value_head_dim", OPT),
    CSN_JCHECK("rope_freq_factors", CSN_JT_ARRAY, OPT),
    F32(logit_multiplier, "logit_multiplier", OPT),
    CSN_JCHECK("g3n", CSN_JT_OBJECT, OPT),
    F64(kda_gate_lower_bound, "kda_gate_lower_bound", OPT),
    U32(num_loops, "num_loops", 0),
    BOOL(loop_final_norm, "loop_final_norm", 0),
    CSN_JCHECK("caisson.longrope", CSN_JT_OBJECT, OPT),
    BOOL(sliding_all, "caisson.sliding_all", 0),
    CSN_JCHECK("caisson.no_rope_layers", CSN_JT_ARRAY, OPT),
    U32(attn_res_block_size, "caisson.attn_res_block_size", OPT),
};
_Static_assert(CSN_ARCH_N_FIELDS <= 64, "csn_jfields_read has 64 bits for what it saw");

const csn_jfield csn_yarn_fields[CSN_YARN_N_FIELDS] = {
    F32(yarn.factor, "factor", REQ),
    U32(yarn.original_max_position_embeddings, "original_max_position_embeddings", REQ),
    F32(yarn.beta_fast, "beta_fast", 0),
    F32(yarn.beta_slow, "beta_slow", 0),
    F32(yarn.attention_factor, "attention_factor", 0),
    F32(yarn.mscale_all_dim, "mscale_all_dim", OPT),
    BOOL(yarn.untruncated, "caisson.untruncated", 0),
};
const csn_jfield csn_mla_fields[CSN_MLA_N_FIELDS] = {
    U32(mla.kv_lora_rank, "kv_lora_rank", REQ),
    U32(mla.qk_rope_head_dim, "qk_rope_head_dim", REQ),
    U32(mla.qk_nope_head_dim, "qk_nope_head_dim", REQ),
    U32(mla.v_head_dim, "v_head_dim", REQ),
    U32(mla.q_lora_rank, "q_lora_rank", OPT),
    BOOL(mla.nope, "nope", 0),
    BOOL(mla.rope_interleave, "caisson.rope_interleave", 0),
    F64(mla.norm_eps, "caisson.norm_eps", OPT),
};
const csn_jfield csn_mtp_fields[CSN_MTP_N_FIELDS] = {
    U32(mtp.n_layers, "num_layers", REQ),
    BOOL(mtp.share_lm_head, "share_lm_head", 0),
    BOOL(mtp.share_embed, "share_embed", 0),
};
const csn_jfield csn_moe_fields[CSN_MOE_N_FIELDS] = {
    U32(moe.n_experts, "num_experts", REQ),
    U32(moe.top_k, "top_k", REQ),
    U32(moe.moe_intermediate_size, "moe_intermediate_size", REQ),
    BOOL(moe.norm_topk_prob, "norm_topk_prob", 0),
    U32(moe.shared_expert_intermediate_size, "shared_expert_intermediate_size", OPT),
    BOOL(moe.router_sigmoid, "router_sigmoid", 0),
    F64(moe.routed_scaling_factor, "routed_scaling_factor", OPT),
    BOOL(moe.router_resonance, "router_resonance", 0),
    U32(moe.n_group, "caisson.n_group", OPT),
    U32(moe.topk_group, "caisson.topk_group", OPT),
    BOOL(moe.group_max, "caisson.group_max", 0),
    U32(moe.routed_expert_hidden_size, "caisson.routed_expert_hidden_size", OPT),
    BOOL(moe.has_latent_norm, "caisson.latent_norm", 0),
};
const csn_jfield csn_linear_core_fields[CSN_LINEAR_CORE_N_FIELDS] = {
    CSN_JFIELD(csn_arch, linear_core.kind, "kind", CSN_JT_STR, REQ),
    U32(linear_core.n_heads, "num_heads", REQ),
    U32(linear_core.nphase, "nphase", OPT),
    U32(linear_core.value_head_dim, "value_head_dim", OPT),
};
const csn_jfield csn_longrope_fields[CSN_LONGROPE_N_FIELDS] = {
    CSN_JCHECK("short_factor", CSN_JT_ARRAY, REQ),
    CSN_JCHECK("long_factor", CSN_JT_ARRAY, REQ),
    U32(longrope.original_max_position_embeddings, "original_max_position_embeddings", REQ),
    F32(longrope.attention_factor, "attention_factor", REQ),
};

const char *const csn_layer_type_names[CSN_N_LAYER_TYPES] = {
    [CSN_LAYER_FULL_ATTENTION] = "FullAttention",
    [CSN_LAYER_LINEAR_ATTENTION] = "LinearAttention",
    [CSN_LAYER_SLIDING_ATTENTION] = "SlidingAttention",
    [CSN_LAYER_SHORT_CONV] = "ShortConv",
    [CSN_LAYER_KDA] = "Kda",
};
const char *const csn_norm_style_names[CSN_N_NORM_STYLES] = {"qwen", "gemma"};
const char *const csn_act_names[CSN_N_ACTS] = {"silu", "gelu_tanh", "situ"};

static const char where[] = "arch";

static caisson_status fail(caisson_error *err, const char *key, const char *what, const char *want,
                           const csn_jval *got) {
    return csn_jfields_fail(err, where, csn_str_from(key), what, csn_str_from(want), got);
}

void csn_arch_init(csn_arch *arch) {
    *arch = (csn_arch){
        .rope_theta = 10000.0,
        .partial_rotary_factor = 1.0f,
        .embed_multiplier = 1.0f,
        .logit_multiplier = 1.0f,
        .num_loops = 1,
        .yarn = {.beta_fast = 32.0f, .beta_slow = 1.0f, .attention_factor = 1.0f},
        .mtp = {.share_lm_head = true, .share_embed = true},
    };
}

/* Index of s in a list of words, or n. */
static unsigned word_index(csn_str s, const char *const *words, unsigned n) {
    unsigned i = 0;
    while (i < n && !csn_str_is(s, words[i])) {
        i++;
    }
    return i;
}

static caisson_status read_layer_types(const csn_jval *list, csn_arena *arena, csn_arch *a,
                                       caisson_error *err) {
    a->n_layer_types = 0;
    CSN_TRY(CSN_ARENA_NEW(arena, csn_jval_len(list), &a->layer_types, err));
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        csn_str s = {0};
        unsigned k = csn_jval_str(it.value, &s)
                         ? word_index(s, csn_layer_type_names, CSN_N_LAYER_TYPES)
                         : CSN_N_LAYER_TYPES;
        if (k == CSN_N_LAYER_TYPES) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.layer_types"),
                            .what = "unknown kind of layer", .got = s,
                            .want = CSN_STR("FullAttention, LinearAttention, SlidingAttention, "
                                            "ShortConv or Kda"));
        }
        a->layer_types[a->n_layer_types++] = (csn_layer_type)k;
    }
    return CAISSON_OK;
}

static caisson_status read_factors(const csn_jval *list, const char *key, csn_arena *arena,
                                   double **ret, uint32_t *ret_n, caisson_error *err) {
    double *f;
    CSN_TRY(CSN_ARENA_NEW(arena, csn_jval_len(list), &f, err));
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        if (!csn_jval_f64(it.value, &f[it.index]) || !isfinite(f[it.index]) || f[it.index] <= 0) {
            return fail(err, key, "element has the wrong type or range", "numbers above 0",
                        it.value);
        }
    }
    *ret = f;
    *ret_n = (uint32_t)csn_jval_len(list);
    return CAISSON_OK;
}

static caisson_status read_heads_per_layer(const csn_jval *list, csn_arena *arena, csn_arch *a,
                                           caisson_error *err) {
    static const char key[] = "attention_heads_per_layer";
    if (csn_jval_len(list) != a->n_layers) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.attention_heads_per_layer"),
                        .what = "length differs from num_layers",
                        CSN_VALUES(a->n_layers, csn_jval_len(list)));
    }
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers, &a->attention_heads_per_layer, err));
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        uint64_t u = 0;
        if (!csn_jval_u64(it.value, &u) || u == 0 || u > INT32_MAX || u % a->n_kv_heads != 0) {
            return fail(err, key, "element has the wrong type or range",
                        "multiples of num_kv_heads above 0", it.value);
        }
        a->attention_heads_per_layer[it.index] = (uint32_t)u;
    }
    return CAISSON_OK;
}

static caisson_status read_no_rope(const csn_jval *list, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers, &a->no_rope, err));
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        uint64_t i = 0;
        if (!csn_jval_u64(it.value, &i) || i >= a->n_layers || a->no_rope[i]) {
            return fail(err, "caisson.no_rope_layers", "element has the wrong type or range",
                        "layer numbers, each once", it.value);
        }
        a->no_rope[i] = true;
    }
    return CAISSON_OK;
}

static caisson_status read_longrope(const csn_jval *v, csn_arena *arena, csn_arch *a,
                                    caisson_error *err) {
    uint32_t n_long = 0;
    CSN_TRY(csn_jfields_read(v, csn_longrope_fields, CSN_LONGROPE_N_FIELDS, "arch.caisson.longrope",
                             a, NULL, err));
    CSN_TRY(read_factors(csn_jval_get(v, "short_factor"), "caisson.longrope.short_factor", arena,
                         &a->longrope.short_factor, &a->longrope.n, err));
    CSN_TRY(read_factors(csn_jval_get(v, "long_factor"), "caisson.longrope.long_factor", arena,
                         &a->longrope.long_factor, &n_long, err));
    if (n_long != a->longrope.n || n_long != csn_arch_rotary_dim(a, 0) / 2) {
        return fail(err, "caisson.longrope", "factors differ in number from half the rotary dims",
                    "rotary_dim / 2 of each", NULL);
    }
    if (!(a->longrope.attention_factor > 0)) {
        return fail(err, "caisson.longrope.attention_factor", "not positive", "above 0",
                    csn_jval_get(v, "attention_factor"));
    }
    a->longrope.present = true;
    return CAISSON_OK;
}

static caisson_status check_moe(const csn_arch *a, caisson_error *err) {
    uint32_t n = a->moe.n_experts;
    uint32_t n_group = a->moe.n_group;
    if (n == 0) {
        return fail(err, "moe.num_experts", "is 0", "at least 1", NULL);
    }
    if (a->moe.top_k == 0 || a->moe.top_k > n) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.moe.top_k"),
                        .what = "not 1 to num_experts", CSN_VALUES(n, a->moe.top_k));
    }
    if (n_group == 0 && a->moe.topk_group == 0 && !a->moe.group_max) {
        return CAISSON_OK;
    }
    if (n_group == 0 || n % n_group != 0 || a->moe.topk_group == 0 || a->moe.topk_group > n_group ||
        a->moe.top_k > n / n_group * a->moe.topk_group) {
        return fail(err, "moe.caisson.n_group", "n_group or topk_group makes no sense",
                    "equal groups, and top_k experts in topk_group of them", NULL);
    }
    return CAISSON_OK;
}

static caisson_status check_mla(const csn_arch *a, caisson_error *err) {
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"arch.mla.kv_lora_rank", a->mla.kv_lora_rank},
        {"arch.mla.qk_rope_head_dim", a->mla.qk_rope_head_dim},
        {"arch.mla.qk_nope_head_dim", a->mla.qk_nope_head_dim},
        {"arch.mla.v_head_dim", a->mla.v_head_dim},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].value == 0 || sizes[i].value > CSN_ARCH_MAX_MLA_DIM) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(sizes[i].key),
                            .what = "not 1 to 2^20",
                            CSN_VALUES(CSN_ARCH_MAX_MLA_DIM, sizes[i].value));
        }
    }
    if (a->mla.q_lora_rank > CSN_ARCH_MAX_MLA_DIM || a->mla.qk_rope_head_dim % 2 != 0) {
        return fail(err, "mla", "q_lora_rank out of range or qk_rope_head_dim odd",
                    "at most 2^20, an even number", NULL);
    }
    if (!(a->mla.norm_eps >= 0)) {
        return fail(err, "mla.caisson.norm_eps", "negative", "at least 0", NULL);
    }
    return CAISSON_OK;
}

/* The nested objects of a parsed arch; v is NULL when the key is absent. */
static caisson_status read_objects(const csn_jval *o, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    uint64_t seen = 0;
    const csn_jval *v = csn_jval_get(o, "yarn");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(
            csn_jfields_read(v, csn_yarn_fields, CSN_YARN_N_FIELDS, "arch.yarn", a, &seen, err));
        a->yarn.present = true;
        a->yarn.has_mscale_all_dim = (seen >> 5 & 1) != 0;
        if (!(a->yarn.factor > 0 && a->yarn.attention_factor > 0) ||
            a->yarn.original_max_position_embeddings == 0) {
            return fail(err, "yarn", "a factor or the original length is not positive", "above 0",
                        NULL);
        }
    }
    v = csn_jval_get(o, "mla");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(csn_jfields_read(v, csn_mla_fields, CSN_MLA_N_FIELDS, "arch.mla", a, NULL, err));
        a->mla.present = true;
        CSN_TRY(check_mla(a, err));
    }
    v = csn_jval_get(o, "mtp");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(csn_jfields_read(v, csn_mtp_fields, CSN_MTP_N_FIELDS, "arch.mtp", a, NULL, err));
        a->mtp.present = true;
    }
    v = csn_jval_get(o, "moe");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(csn_jfields_read(v, csn_moe_fields, CSN_MOE_N_FIELDS, "arch.moe", a, &seen, err));
        a->moe.present = true;
        a->moe.has_shared = (seen >> 4 & 1) != 0;
        a->moe.has_scaling = (seen >> 6 & 1) != 0;
        CSN_TRY(check_moe(a, err));
    }
    v = csn_jval_get(o, "linear_core");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(csn_jfields_read(v, csn_linear_core_fields, CSN_LINEAR_CORE_N_FIELDS,
                                 "arch.linear_core", a, NULL, err));
        CSN_TRY(csn_arena_str(arena, a->linear_core.kind, &a->linear_core.kind, err));
        a->linear_core.present = true;
    }
    v = csn_jval_get(o, "caisson.longrope");
    if (csn_jval_kind(v) == CSN_JSON_OBJECT) {
        CSN_TRY(read_longrope(v, arena, a, err));
    }
    a->has_g3n = csn_jval_kind(csn_jval_get(o, "g3n")) == CSN_JSON_OBJECT;
    return CAISSON_OK;
}

static caisson_status read_words(const csn_jval *o, csn_arch *a, caisson_error *err) {
    csn_str s = {0};
    if (csn_jval_str(csn_jval_get(o, "norm_style"), &s)) {
        unsigned k = word_index(s, csn_norm_style_names, CSN_N_NORM_STYLES);
        if (k == CSN_N_NORM_STYLES) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.norm_style"),
                            .what = "unknown norm style", CSN_TEXTS(CSN_STR("qwen or gemma"), s));
        }
        a->norm_style = (csn_norm_style)k;
    }
    if (csn_jval_str(csn_jval_get(o, "hidden_act"), &s)) {
        unsigned k = word_index(s, csn_act_names, CSN_N_ACTS);
        if (k == CSN_N_ACTS) {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("arch.hidden_act"),
                            .what = "unknown activation",
                            CSN_TEXTS(CSN_STR("silu, gelu_tanh or situ"), s));
        }
        a->hidden_act = (csn_act)k;
    }
    return CAISSON_OK;
}

static caisson_status check_counts(const csn_jval *o, const csn_arch *a, caisson_error *err) {
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {
        {"hidden_size", a->hidden_size},
        {"num_layers", a->n_layers},
        {"num_attention_heads", a->n_heads},
        {"num_kv_heads", a->n_kv_heads},
        {"head_dim", a->head_dim},
        {"vocab_size", a->vocab_size},
        {"num_loops", a->num_loops},
        {"max_position_embeddings", a->max_position_embeddings},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i].value == 0) {
            return fail(err, counts[i].key, "is 0", "at least 1", NULL);
        }
    }
    if (a->n_layers > CSN_ARCH_MAX_LAYERS || a->num_loops > CSN_ARCH_MAX_LAYERS / a->n_layers) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = CSN_STR("arch.num_layers"),
                        .what = "too many layers (times loops)",
                        CSN_VALUES(CSN_ARCH_MAX_LAYERS, (uint64_t)a->n_layers * a->num_loops));
    }
    if (a->vocab_size > CAISSON_MAX_TOKENS) { /* each token has a logit, with or without a row */
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = CSN_STR("arch.vocab_size"),
                        .what = "too many tokens", CSN_VALUES(CAISSON_MAX_TOKENS, a->vocab_size));
    }
    if (a->n_heads % a->n_kv_heads != 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.num_kv_heads"),
                        .what = "does not divide num_attention_heads",
                        CSN_VALUES(a->n_heads, a->n_kv_heads));
    }
    if (a->head_dim % 2 != 0) {
        return fail(err, "head_dim", "is odd", "an even number", csn_jval_get(o, "head_dim"));
    }
    if (a->attn_res_block_size > a->n_layers) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("arch.caisson.attn_res_block_size"),
                        .what = "a block is longer than all layers",
                        CSN_VALUES(a->n_layers, a->attn_res_block_size));
    }
    return CAISSON_OK;
}

/* Factors that are divided by or raised to powers: > 0 when given. */
static caisson_status check_factors(const csn_jval *o, caisson_error *err) {
    static const char *const positive[] = {
        "rope_theta",
        "partial_rotary_factor",
        "embed_multiplier",
        "logit_multiplier",
        "query_pre_attn_scalar",
        "rope_local_base_freq",
        "local_partial_rotary_factor",
        "global_partial_rotary_factor",
        "final_logit_softcapping",
        "attn_logit_softcapping",
    };
    for (size_t i = 0; i < sizeof(positive) / sizeof(positive[0]); i++) {
        double d = 0;
        const csn_jval *v = csn_jval_get(o, positive[i]);
        if (csn_jval_f64(v, &d) && !((float)d > 0)) {
            return fail(err, positive[i], "not positive in f32", "above 0", v);
        }
    }
    double eps = 0;
    const csn_jval *v = csn_jval_get(o, "rms_norm_eps");
    if (csn_jval_f64(v, &eps) && !(eps >= 0)) {
        return fail(err, "rms_norm_eps", "negative", "at least 0", v);
    }
    return CAISSON_OK;
}

caisson_status csn_arch_parse(const csn_jval *object, csn_arena *arena, csn_arch *ret,
                              caisson_error *err) {
    csn_arch a;
    uint64_t seen = 0;
    csn_arch_init(&a);
    CSN_TRY(csn_jfields_read(object, csn_arch_fields, CSN_ARCH_N_FIELDS, where, &a, &seen, err));
    CSN_TRY(read_words(object, &a, err));
    CSN_TRY(check_counts(object, &a, err));
    CSN_TRY(check_factors(object, err));
    if (a.partial_rotary_factor > 1.0f) {
        return fail(err, "partial_rotary_factor", "more than all of a head", "at most 1",
                    csn_jval_get(object, "partial_rotary_factor"));
    }
    CSN_TRY(csn_arena_str(arena, a.arch_name, &a.arch_name, err));
    CSN_TRY(read_layer_types(csn_jval_get(object, "layer_types"), arena, &a, err));
    const csn_jval *v = csn_jval_get(object, "attention_heads_per_layer");
    if (csn_jval_kind(v) == CSN_JSON_ARRAY) {
        CSN_TRY(read_heads_per_layer(v, arena, &a, err));
    }
    v = csn_jval_get(object, "rope_freq_factors");
    if (csn_jval_kind(v) == CSN_JSON_ARRAY) {
        CSN_TRY(read_factors(v, "rope_freq_factors", arena, &a.rope_freq_factors,
                             &a.n_rope_freq_factors, err));
    }
    CSN_TRY(read_objects(object, arena, &a, err));
    v = csn_jval_get(object, "caisson.no_rope_layers");
    if (csn_jval_kind(v) == CSN_JSON_ARRAY) {
        CSN_TRY(read_no_rope(v, arena, &a, err));
    }
    for (size_t i = 0; i < CSN_ARCH_N_FIELDS; i++) {
        bool is_seen = (seen >> i & 1) != 0;
        if (csn_arch_fields[i].offset == offsetof(csn_arch, activation_situ_beta)) {
            a.has_situ_beta = is_seen;
        } else if (csn_arch_fields[i].offset == offsetof(csn_arch, activation_situ_linear_beta)) {
            a.has_situ_linear_beta = is_seen;
        } else if (csn_arch_fields[i].offset == offsetof(csn_arch, kda_gate_lower_bound)) {
            a.has_kda_gate_lower_bound = is_seen;
        }
    }
    a.source = object;
    *ret = a;
    return CAISSON_OK;
}

static bool has_sliding_layer(const csn_arch *arch) {
    for (uint32_t i = 0; i < arch->n_layer_types; i++) {
        if (arch->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION) {
            return true;
        }
    }
    return false;
}

bool csn_arch_is_local(const csn_arch *arch, uint32_t i_layer) {
    if (arch->sliding_window == 0) {
        return false;
    }
    if (i_layer < arch->n_layer_types &&
        arch->layer_types[i_layer] == CSN_LAYER_SLIDING_ATTENTION) {
        return true;
    }
    if (arch->sliding_window_pattern != 0) {
        return (i_layer + 1) % arch->sliding_window_pattern != 0;
    }
    return arch->sliding_all && !has_sliding_layer(arch);
}

uint32_t csn_arch_rotary_dim(const csn_arch *arch, uint32_t i_layer) {
    if (arch->no_rope != NULL && i_layer < arch->n_layers && arch->no_rope[i_layer]) {
        return 0;
    }
    float factor = arch->partial_rotary_factor;
    uint32_t head_dim = arch->head_dim;
    bool is_sliding =
        i_layer < arch->n_layer_types && arch->layer_types[i_layer] == CSN_LAYER_SLIDING_ATTENTION;
    if (is_sliding && arch->local_partial_rotary_factor > 0) {
        factor = arch->local_partial_rotary_factor;
    }
    uint32_t dim = (uint32_t)((float)head_dim * (factor < 1.0f ? factor : 1.0f));
    dim &= ~UINT32_C(1);
    return dim < 2 ? 2 : dim;
}
