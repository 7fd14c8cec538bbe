/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 2: norms on both sides of attention and FFN, soft-caps, every second layer slides. */
#include "convert/family.h"
#include "convert/families/gemma_internal.h"

static const csn_config_defaults defaults = {
    .vocab_size = 256000,
    .hidden_size = 2304,
    .intermediate_size = 9216,
    .n_layers = 26,
    .n_heads = 8,
    .n_kv_heads = 4,
    .head_dim = 256,
    .max_position_embeddings = 8192,
    .rms_norm_eps = 1e-6,
    .tie_word_embeddings = true,
    .hidden_act = CSN_ACT_GELU_TANH,
    .has_activation = true,
};
enum { WINDOW = 4096, PATTERN = 2, LAYERS_27B = 46 };

/* Absent: the class's default; null: none. */
static caisson_status read_cap(csn_config *c, const char *key, double fallback, double *ret,
                               caisson_error *err) {
    *ret = csn_jval_get(c->object, key) == NULL ? fallback : 0;
    return csn_config_positive(c, key, ret, err);
}

static caisson_status gemma2_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                    caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    bool has_types;
    csn_str cache = {0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    c->mlp_bias = CSN_BIASES_NONE;
    CSN_TRY(csn_config_refuse_true(c, "use_bidirectional_attention", err));
    CSN_TRY(csn_config_str(c, "cache_implementation", &cache, err));
    a->query_pre_attn_scalar = 256;
    CSN_TRY(csn_config_positive(c, "query_pre_attn_scalar", &a->query_pre_attn_scalar, err));
    CSN_TRY(read_cap(c, "attn_logit_softcapping", 50.0, &a->attn_logit_softcapping, err));
    CSN_TRY(read_cap(c, "final_logit_softcapping", 30.0, &a->final_logit_softcapping, err));
    CSN_TRY(csn_gemma_window(c, a, err));
    /* releases have it twice */
    CSN_TRY(csn_config_expect(c, "sliding_window_size", a->sliding_window, err));
    csn_act act = a->hidden_act;
    csn_gemma_common(a);
    a->hidden_act = act;
    CSN_TRY(csn_config_layer_types(c, arena, a, &has_types, err));
    return has_types ? CAISSON_OK : csn_arch_pattern(a, PATTERN, arena, err);
}

static caisson_status gemma2_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    csn_gemma_common(a);
    a->attn_logit_softcapping = 50.0;
    a->final_logit_softcapping = 30.0;
    CSN_TRY(csn_meta_f64(m, "attn_logit_softcapping", &a->attn_logit_softcapping, err));
    CSN_TRY(csn_meta_f64(m, "final_logit_softcapping", &a->final_logit_softcapping, err));
    a->sliding_window = WINDOW;
    CSN_TRY(csn_meta_u32(m, "attention.sliding_window", &a->sliding_window, err));
    /* Not in the file. The 27B model alone divides by the hidden size a head. */
    a->query_pre_attn_scalar =
        a->n_layers == LAYERS_27B ? a->hidden_size / a->n_heads : a->head_dim;
    return csn_arch_pattern(a, PATTERN, arena, err);
}

const csn_family csn_family_gemma2 = {
    .names = (const char *const[]){"gemma2", NULL},
    .gguf_names = (const char *const[]){"gemma2", NULL},
    .read_config = gemma2_config,
    .read_gguf = gemma2_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_sandwich,
                                              &csn_names_biases, NULL},
    .gguf_adds_one = true,
};
