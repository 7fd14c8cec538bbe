/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3, the text model: Gemma 2 without soft-caps, with norms on q and k, five sliding layers
 * to one global, each kind with a RoPE base of its own. The vision tower is left out. */
#include "convert/family.h"
#include "convert/families/gemma_internal.h"

static const csn_config_defaults defaults = {
    .vocab_size = 262208,
    .hidden_size = 2304,
    .intermediate_size = 9216,
    .n_layers = 26,
    .n_heads = 8,
    .n_kv_heads = 4,
    .head_dim = 256,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-6,
    .tie_word_embeddings = true,
    .hidden_act = CSN_ACT_GELU_TANH,
    .has_activation = true,
};
enum { PATTERN = 6, LAYERS_27B = 62 };
static const double global_theta = 1000000.0, local_theta = 10000.0;

static caisson_status gemma3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                    caisson_error *err) {
    const csn_rope_rules rope = {.theta = global_theta, .local_theta = local_theta};
    bool has_types;
    uint32_t pattern = PATTERN;
    csn_str cache = {0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    c->mlp_bias = CSN_BIASES_NONE;
    CSN_TRY(csn_config_refuse_true(c, "use_bidirectional_attention", err));
    CSN_TRY(csn_config_str(c, "cache_implementation", &cache, err));
    a->query_pre_attn_scalar = 256;
    CSN_TRY(csn_config_positive(c, "query_pre_attn_scalar", &a->query_pre_attn_scalar, err));
    /* A key that was left from Gemma 2: transformers does not apply it here, others do. */
    CSN_TRY(csn_config_expect(c, "attn_logit_softcapping", 0, err));
    CSN_TRY(csn_config_positive(c, "final_logit_softcapping", &a->final_logit_softcapping, err));
    CSN_TRY(csn_gemma_window(c, a, err));
    CSN_TRY(csn_config_u32(c, "sliding_window_pattern", &pattern, err));
    csn_act act = a->hidden_act;
    csn_gemma_common(a);
    a->hidden_act = act;
    CSN_TRY(csn_config_layer_types(c, arena, a, &has_types, err));
    if (has_types) { /* what transformers writes beside them is not always their pattern */
        (void)csn_config_get(c, "_sliding_window_pattern");
    } else { /* it does not read it */
        CSN_TRY(csn_config_expect(c, "_sliding_window_pattern", pattern, err));
    }
    if (!has_types && pattern == 0) {
        return csn_config_refuse(c, "sliding_window_pattern", "must not be 0", err);
    }
    return has_types ? CAISSON_OK : csn_arch_pattern(a, pattern, arena, err);
}

static caisson_status gemma3_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t pattern = PATTERN, n_image = 0;
    double cap = 0;
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    csn_gemma_common(a);
    CSN_TRY(csn_meta_f64(m, "attn_logit_softcapping", &cap, err));
    if (cap != 0) {
        return csn_meta_refuse(m, "attn_logit_softcapping", "Gemma 3 has no such cap", err);
    }
    CSN_TRY(csn_meta_f64(m, "final_logit_softcapping", &a->final_logit_softcapping, err));
    CSN_TRY(csn_meta_u32(m, "attention.sliding_window", &a->sliding_window, err));
    CSN_TRY(csn_meta_u32(m, "attention.sliding_window_pattern", &pattern, err));
    CSN_TRY(csn_meta_u32(m, "mm.tokens_per_image", &n_image, err));
    a->rope_local_base_freq = local_theta;
    CSN_TRY(csn_meta_f64(m, "rope.freq_base_swa", &a->rope_local_base_freq, err));
    if (a->rope_local_base_freq <= 0) { /* 0 would read as "the same as elsewhere" */
        return csn_meta_refuse(m, "rope.freq_base_swa", "must be above 0", err);
    }
    /* Not in the file. The 27B model alone divides by the hidden size a head. */
    a->query_pre_attn_scalar =
        a->n_layers == LAYERS_27B ? a->hidden_size / a->n_heads : a->head_dim;
    if (pattern == 0) {
        return csn_meta_refuse(m, "attention.sliding_window_pattern", "must not be 0", err);
    }
    return a->sliding_window == 0 ? csn_arch_full_layers(a, arena, err)
                                  : csn_arch_pattern(a, pattern, arena, err);
}

const csn_family csn_family_gemma3 = {
    .names = (const char *const[]){"gemma3_text", "gemma3", NULL},
    .gguf_names = (const char *const[]){"gemma3", NULL},
    .read_config = gemma3_config,
    .read_gguf = gemma3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_sandwich,
                                              &csn_names_qk_norm, &csn_names_biases, NULL},
    .gguf_adds_one = true,
    .drops = (const char *const[]){"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                   "model.multi_modal_projector.", NULL},
};
