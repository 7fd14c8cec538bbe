/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/hf_config.h"

#include <math.h>

#include "convert/family.h"
#include "convert/hf_config_internal.h"
#include "convert/plan.h"

/* Keys that only some classes have. */
enum {
    ATTENTION_BIAS = 1,
    MLP_BIAS = 2,
    SLIDING_SWITCH = 4,
    LATENT = 8,
    DEEPSEEK = 16,
    K3 = 32,
    PHI = 64
};

typedef struct class {
    const char *arch_name, *model_type, *class_name;
    unsigned keys;
} class;

/* arch_name is a model_type, or what GGUF or a .waste calls it. */
static const class classes[] = {
    {"llama", "llama", "LlamaForCausalLM", ATTENTION_BIAS | MLP_BIAS},
    {"mistral", "mistral", "MistralForCausalLM", 0},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", SLIDING_SWITCH},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", ATTENTION_BIAS | SLIDING_SWITCH},
    {"qwen2_moe", "qwen2_moe", "Qwen2MoeForCausalLM", SLIDING_SWITCH},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", SLIDING_SWITCH},
    {"qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM", ATTENTION_BIAS | SLIDING_SWITCH},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", ATTENTION_BIAS | SLIDING_SWITCH},
    {"gemma", "gemma", "GemmaForCausalLM", ATTENTION_BIAS},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", ATTENTION_BIAS},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", ATTENTION_BIAS},
    {"gemma3_text", "gemma3_text", "Gemma3ForCausalLM", ATTENTION_BIAS},
    {"phi3", "phi3", "Phi3ForCausalLM", PHI},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", ATTENTION_BIAS | MLP_BIAS | SLIDING_SWITCH},
    {"deepseek_v3", "deepseek_v3", "DeepseekV3ForCausalLM", LATENT | DEEPSEEK},
    {"DeepseekV3ForCausalLM", "deepseek_v3", "DeepseekV3ForCausalLM", LATENT | DEEPSEEK},
    {"deepseek_v2", "deepseek_v2", "DeepseekV2ForCausalLM", LATENT | DEEPSEEK},
    {"kimi_k2", "kimi_k2", "DeepseekV3ForCausalLM", LATENT | DEEPSEEK},
    {"kimi_linear", "kimi_linear", "KimiLinearForCausalLM", LATENT},
    {"kimi-linear", "kimi_linear", "KimiLinearForCausalLM", LATENT},
    {"kimi_k3", "kimi_k3", "KimiK3ForConditionalGeneration", LATENT | K3},
    {"kimi-k3", "kimi_k3", "KimiK3ForConditionalGeneration", LATENT | K3},
};

static const class *find_class(const csn_arch *a) {
    csn_str name = a->arch_name;
    if (csn_str_is(name, "llama") && a->sliding_all) { /* GGUF tells mistral by its window alone */
        name = CSN_STR("mistral");
    }
    if (csn_str_is(name, "deepseek2")) { /* and V2 from V3 by its router */
        name = a->moe.router_sigmoid ? CSN_STR("deepseek_v3") : CSN_STR("deepseek_v2");
    }
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (csn_str_is(name, classes[i].arch_name)) {
            return &classes[i];
        }
    }
    return NULL;
}

double csn_hf_latent_eps(const csn_cmf *c) {
    const class *k = find_class(&c->arch);
    return k != NULL && (k->keys & LATENT) != 0 && (k->keys & K3) == 0 ? CSN_LATENT_EPS : 0;
}

static bool has_tensor(const csn_cmf *c, const char *name) {
    return csn_directory_find(&c->dir, csn_str_from(name)) != NULL;
}

/* Neurons that were cut out leave layers of their own widths. */
static bool has_cut_layers(const csn_cmf *c) {
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        if (csn_str_ends(t->name, CSN_STR("mlp.gate_proj.weight")) && t->shape.n_dims == 2 &&
            t->shape.dim[0] != c->arch.intermediate_size) {
            return true;
        }
    }
    return false;
}

/* ---- where rope_freq_factors come from: the file tells what they are ---- */

/* The numbers of Llama 3.1 and 3.2; the factor is that of the slowest frequency. */
static const double llama3_low = 1.0, llama3_high = 4.0, llama3_original = 8192.0;

static double last_factor(const csn_arch *a) {
    return a->rope_freq_factors[a->n_rope_freq_factors - 1];
}

static bool is_linear(const csn_arch *a) {
    for (uint32_t i = 0; i < a->n_rope_freq_factors; i++) {
        if (a->rope_freq_factors[i] != last_factor(a)) {
            return false;
        }
    }
    return true;
}

static bool is_llama3(const csn_arch *a) {
    enum { MAX_FACTORS = 512 };
    double want[MAX_FACTORS];
    uint32_t n = a->n_rope_freq_factors;
    if (n > MAX_FACTORS) {
        return false;
    }
    csn_rope_llama3(a->rope_theta, 2 * n, last_factor(a), llama3_low, llama3_high, llama3_original,
                    want);
    for (uint32_t i = 0; i < n; i++) { /* GGUF holds them as f32 */
        if (fabs(want[i] - a->rope_freq_factors[i]) > 1e-5 * want[i]) {
            return false;
        }
    }
    return true;
}

const char *csn_hf_config_gap(const csn_cmf *c) {
    const csn_arch *a = &c->arch;
    const class *k = find_class(a);
    if (k == NULL) {
        return "an arch_name that no class of transformers is known for";
    }
    if ((k->keys & LATENT) != 0) {
        const char *gap = csn_hf_latent_gap(c, k->model_type);
        return gap != NULL ? gap : has_cut_layers(c) ? "layers of different FFN widths" : NULL;
    }
    for (uint32_t i = 0; i < a->n_layer_types; i++) {
        if (a->layer_types[i] != CSN_LAYER_FULL_ATTENTION &&
            a->layer_types[i] != CSN_LAYER_SLIDING_ATTENTION) {
            return "a kind of layer that these classes do not have";
        }
    }
    if (a->n_rope_freq_factors > 0 && !is_linear(a) && !is_llama3(a)) {
        return "divisors of the rotary frequencies, whose origin the file does not tell";
    }
    bool is_phi = (find_class(a)->keys & PHI) != 0;
    if ((!is_phi && (a->longrope.present || a->partial_rotary_factor != 1.0f)) ||
        a->local_partial_rotary_factor != 0) {
        return "rotary embeddings of another family";
    }
    if (a->mla.present || a->linear_core.present || a->attn_res_block_size != 0 ||
        a->hidden_act == CSN_ACT_SITU || a->mtp.present || a->has_g3n ||
        a->attention_heads_per_layer != NULL || a->head_clusters != 0 || a->attn_v_norm ||
        a->global_head_dim != 0 || a->logit_multiplier != 1.0f) {
        return "blocks of another family";
    }
    if (a->num_loops > 1) {
        return "layers that run several times";
    }
    if (a->moe.present &&
        (a->moe.router_sigmoid || a->moe.router_resonance || a->moe.has_scaling)) {
        return "a router of another family";
    }
    return has_cut_layers(c) ? "layers of different FFN widths" : NULL;
}

bool csn_hf_config_is_fused(const csn_cmf *c) {
    const class *k = find_class(&c->arch);
    return k != NULL && (k->keys & PHI) != 0;
}

/* 0 is none. */
static void key_cap(csn_jw *w, const char *key, double v) {
    csn_jw_key(w, csn_str_from(key));
    if (v != 0) {
        csn_jw_f64(w, v);
    } else {
        csn_jw_null(w);
    }
}

/* Phi's, whose older readers want these three keys and no other where no other is needed. */
static void put_longrope(csn_jw *w, const csn_arch *a) {
    double original = a->longrope.original_max_position_embeddings;
    double scale = csn_rope_longrope_scale(a->max_position_embeddings / original, original);
    csn_jw_put_u64(w, "original_max_position_embeddings",
                   a->longrope.original_max_position_embeddings);
    csn_jw_key(w, CSN_STR("rope_scaling"));
    csn_jw_object(w);
    csn_jw_put_str(w, "type", CSN_STR("longrope"));
    csn_jw_put_f64s(w, "short_factor", a->longrope.short_factor, a->longrope.n);
    csn_jw_put_f64s(w, "long_factor", a->longrope.long_factor, a->longrope.n);
    if (a->longrope.attention_factor != (float)scale) {
        csn_jw_put_f32(w, "attention_factor", a->longrope.attention_factor);
    }
    csn_jw_object_end(w);
}

static void put_rope(csn_jw *w, const csn_arch *a) {
    csn_jw_put_f64(w, "rope_theta", a->rope_theta);
    if (a->partial_rotary_factor != 1.0f) {
        csn_jw_put_f32(w, "partial_rotary_factor", a->partial_rotary_factor);
    }
    if (a->longrope.present) {
        put_longrope(w, a);
        return;
    }
    if (a->rope_local_base_freq != 0) {
        csn_jw_put_f64(w, "rope_local_base_freq", a->rope_local_base_freq);
    }
    if (!a->yarn.present && a->n_rope_freq_factors == 0) {
        return;
    }
    csn_jw_key(w, CSN_STR("rope_scaling"));
    csn_jw_object(w);
    if (!a->yarn.present) {
        csn_jw_put_str(w, "rope_type", csn_str_from(is_linear(a) ? "linear" : "llama3"));
        csn_jw_put_f64(w, "factor", last_factor(a));
        if (!is_linear(a)) {
            csn_jw_put_f64(w, "low_freq_factor", llama3_low);
            csn_jw_put_f64(w, "high_freq_factor", llama3_high);
            csn_jw_put_u64(w, "original_max_position_embeddings", (uint32_t)llama3_original);
        }
        csn_jw_object_end(w);
        return;
    }
    csn_jw_put_str(w, "rope_type", CSN_STR("yarn"));
    csn_arch_put_yarn(a, w);
    csn_jw_put_bool(w, "truncate", !a->yarn.untruncated);
    csn_jw_object_end(w);
}

static void put_layers(csn_jw *w, const csn_arch *a, bool has_switch) {
    bool slides = false;
    for (uint32_t i = 0; i < a->n_layer_types; i++) {
        slides |= a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION;
    }
    if (!a->sliding_all &&
        (csn_str_is(a->arch_name, "llama") || csn_str_is(a->arch_name, "gemma") ||
         csn_str_is(a->arch_name, "phi3"))) {
        return;
    }
    csn_jw_key(w, CSN_STR("sliding_window")); /* null where there is none: absent is 4096 in some */
    if (a->sliding_window != 0) {
        csn_jw_u64(w, a->sliding_window);
    } else {
        csn_jw_null(w);
    }
    if (a->sliding_all || csn_str_is(a->arch_name, "mistral")) { /* a list makes it a ministral */
        return;
    }
    if (has_switch) {
        csn_jw_put_bool(w, "use_sliding_window", slides);
    }
    csn_jw_key(w, CSN_STR("layer_types"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        bool is_local = csn_arch_is_local(a, i);
        csn_jw_str(w, is_local ? CSN_STR("sliding_attention") : CSN_STR("full_attention"));
    }
    csn_jw_array_end(w);
    if (a->no_rope != NULL) { /* 1 where a layer rotates: the key's name says the contrary */
        csn_jw_key(w, CSN_STR("no_rope_layers"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < a->n_layers; i++) {
            csn_jw_u64(w, a->no_rope[i] ? 0 : 1);
        }
        csn_jw_array_end(w);
    }
}

static void put_moe(csn_jw *w, const csn_cmf *c) {
    const csn_arch *a = &c->arch;
    if (!a->moe.present) {
        return;
    }
    csn_jw_put_u64(w, "num_experts", a->moe.n_experts);
    csn_jw_put_u64(w, "num_experts_per_tok", a->moe.top_k);
    csn_jw_put_u64(w, "moe_intermediate_size", a->moe.moe_intermediate_size);
    csn_jw_put_bool(w, "norm_topk_prob", a->moe.norm_topk_prob);
    if (a->moe.has_shared) { /* Qwen2-MoE, whose biases are a choice as well */
        csn_jw_put_u64(w, "shared_expert_intermediate_size",
                       a->moe.shared_expert_intermediate_size);
        csn_jw_put_bool(w, "qkv_bias", has_tensor(c, "model.layers.0.self_attn.q_proj.bias"));
    }
    csn_jw_put_u64(w, "decoder_sparse_step", 1);
    csn_jw_key(w, CSN_STR("mlp_only_layers")); /* those without a router */
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        if (!csn_hf_has_router(c, i)) {
            csn_jw_u64(w, i);
        }
    }
    csn_jw_array_end(w);
}

/* null where there is none: a class has ids of its own for what is left out, and a vocabulary that
 * ends below its pad_token_id does not load. */
static void put_id(csn_jw *w, const char *key, int32_t id) {
    csn_jw_key(w, csn_str_from(key));
    if (id >= 0) {
        csn_jw_u64(w, (uint32_t)id);
    } else {
        csn_jw_null(w);
    }
}

static void put_ids(csn_jw *w, const csn_chat_bundle *chat) {
    put_id(w, "bos_token_id", chat->bos_token_id);
    put_id(w, "pad_token_id", chat->pad_token_id);
    if (chat->n_eos > 0) {
        csn_jw_key(w, CSN_STR("eos_token_id"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < chat->n_eos; i++) {
            csn_jw_u64(w, (uint64_t)chat->eos_token_ids[i]);
        }
        csn_jw_array_end(w);
    }
}

/* What stands around all of a class's own keys. */
static void put_class(csn_jw *w, const class *k) {
    csn_jw_key(w, CSN_STR("architectures"));
    csn_jw_array(w);
    csn_jw_str(w, csn_str_from(k->class_name));
    csn_jw_array_end(w);
    csn_jw_put_str(w, "model_type", csn_str_from(k->model_type));
}

static void put_sizes(csn_jw *w, const csn_arch *a, bool is_latent) {
    static const char *const acts[] = {[CSN_ACT_SILU] = "silu",
                                       [CSN_ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                       [CSN_ACT_SITU] = "situ"};
    const char *act = acts[a->hidden_act];
    csn_jw_put_u64(w, "vocab_size", a->vocab_size);
    csn_jw_put_u64(w, "hidden_size", a->hidden_size);
    csn_jw_put_u64(w, "intermediate_size", a->intermediate_size);
    csn_jw_put_u64(w, "num_hidden_layers", a->n_layers);
    csn_jw_put_u64(w, "num_attention_heads", a->n_heads);
    csn_jw_put_u64(w, "num_key_value_heads", a->n_kv_heads);
    if (!is_latent) {
        csn_jw_put_u64(w, "head_dim", a->head_dim);
    }
    csn_jw_put_u64(w, "max_position_embeddings", a->max_position_embeddings);
    csn_jw_put_str(w, "hidden_act", csn_str_from(act));
    if (a->norm_style == CSN_NORM_GEMMA) {
        csn_jw_put_str(w, "hidden_activation", csn_str_from(act));
    }
    csn_jw_put_f64(w, "rms_norm_eps", a->rms_norm_eps);
    csn_jw_put_bool(w, "tie_word_embeddings", a->tie_word_embeddings);
}

/* transformers takes a whole number alone, and not 256.0. */
static void put_scalar(csn_jw *w, double scalar) {
    if (scalar == floor(scalar) && scalar <= UINT32_MAX) {
        csn_jw_put_u64(w, "query_pre_attn_scalar", (uint64_t)scalar);
    } else {
        csn_jw_put_f64(w, "query_pre_attn_scalar", scalar);
    }
}

static void put_ordinary(csn_jw *w, const csn_cmf *c, const class *k) {
    const csn_arch *a = &c->arch;
    if ((k->keys & ATTENTION_BIAS) != 0) {
        csn_jw_put_bool(w, "attention_bias", has_tensor(c, "model.layers.0.self_attn.q_proj.bias"));
    }
    if ((k->keys & MLP_BIAS) != 0) {
        csn_jw_put_bool(w, "mlp_bias", has_tensor(c, "model.layers.0.mlp.gate_proj.bias"));
    }
    put_layers(w, a, (k->keys & SLIDING_SWITCH) != 0);
    if (a->query_pre_attn_scalar != 0) {
        put_scalar(w, a->query_pre_attn_scalar);
        key_cap(w, "attn_logit_softcapping", a->attn_logit_softcapping);
        key_cap(w, "final_logit_softcapping", a->final_logit_softcapping);
    }
    put_moe(w, c);
}

void csn_hf_config_write(const csn_cmf *c, const char *dtype, csn_jw *w) {
    const class *k = find_class(&c->arch);
    bool is_latent = (k->keys & LATENT) != 0;
    bool is_nested = (k->keys & K3) != 0; /* a text model within one of text and images */
    csn_jw_object(w);
    put_class(w, k);
    if (is_nested) {
        csn_jw_key(w, CSN_STR("text_config"));
        csn_jw_object(w);
        csn_jw_put_str(w, "model_type", CSN_STR("kimi_linear")); /* as the release has it */
    }
    put_sizes(w, &c->arch, is_latent);
    put_rope(w, &c->arch);
    if (is_latent) {
        csn_hf_put_latent(c, (k->keys & DEEPSEEK) != 0, is_nested, w);
    } else {
        put_ordinary(w, c, k);
    }
    if (is_nested) {
        csn_jw_object_end(w);
    }
    put_ids(w, &c->chat);
    csn_jw_put_str(w, "dtype", csn_str_from(dtype));
    csn_jw_put_str(w, "torch_dtype", csn_str_from(dtype));
    csn_jw_object_end(w);
}

/* ---- names ---- */

/* True if the name is the pattern with numbers in its holes. */
static bool matches(const char *pattern, csn_str name, uint32_t ret[2]) {
    size_t at = 0;
    for (int n = 0; *pattern != '\0';) {
        if (pattern[0] != '{') {
            if (at >= name.len || name.ptr[at++] != *pattern++) {
                return false;
            }
            continue;
        }
        uint64_t number;
        size_t end = at;
        while (end < name.len && name.ptr[end] >= '0' && name.ptr[end] <= '9') {
            end++;
        }
        if (n == 2 || !csn_str_to_u64(csn_str_make(name.ptr + at, end - at), &number) ||
            number > UINT32_MAX) {
            return false;
        }
        ret[n++] = (uint32_t)number;
        at = end;
        pattern += 2;
    }
    return at == name.len;
}

static const csn_name_row *find_row(const csn_family *family, csn_str name, uint32_t numbers[2]) {
    for (size_t i = 0; family->tables[i] != NULL; i++) {
        for (size_t k = 0; k < family->tables[i]->n; k++) {
            const csn_name_row *row = &family->tables[i]->rows[k];
            if (matches(row->name, name, numbers)) {
                return row;
            }
        }
    }
    return NULL;
}

caisson_status csn_hf_name(const csn_cmf *c, csn_str name, csn_arena *arena, csn_str *ret,
                           caisson_error *err) {
    const class *k = find_class(&c->arch);
    uint32_t numbers[2] = {0};
    *ret = name;
    if (k == NULL || (k->keys & LATENT) == 0) { /* the others have our names */
        return CAISSON_OK;
    }
    const csn_family *family;
    CSN_TRY(csn_family_find(csn_str_from(k->model_type), false, &family, err));
    const csn_name_row *row = find_row(family, name, numbers);
    csn_buf theirs = CSN_BUF_INIT(1 << 16);
    csn_buf whole = CSN_BUF_INIT(1 << 16);
    caisson_status status = csn_buf_str(&theirs, name, err);
    if (status == CAISSON_OK && row != NULL && row->hf != NULL) {
        status = csn_convert_row_name(row->hf, numbers[0], numbers[1], &theirs, err);
    }
    if (status == CAISSON_OK) {
        status = csn_buf_printf(&whole, err, "%s%.*s", (k->keys & K3) != 0 ? "language_model." : "",
                                CSN_STR_ARGS(csn_buf_view(&theirs)));
    }
    if (status == CAISSON_OK) {
        status = csn_arena_str(arena, csn_buf_view(&whole), ret, err);
    }
    csn_buf_free(&theirs);
    csn_buf_free(&whole);
    return status;
}

csn_shape csn_hf_shape(const csn_cmf *c, const csn_tensor *t) {
    const class *k = find_class(&c->arch);
    bool is_kimi = k != NULL && k->keys == LATENT;
    if (is_kimi && csn_str_ends(t->name, CSN_STR(".A_log")) && t->shape.n_dims == 1) {
        return (csn_shape){.n_dims = 4, .dim = {1, 1, t->shape.dim[0], 1}};
    }
    return t->shape;
}
