/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3: a llama in which some layers (every fourth, unless the config lists them) do not rotate
 * queries and keys. */
#include "convert/family.h"

enum { INTERVAL = 4 };

static const csn_config_defaults defaults = {
    .vocab_size = 128256,
    .hidden_size = 2048,
    .intermediate_size = 11008,
    .n_layers = 36,
    .n_heads = 16,
    .n_kv_heads = 4,
    .max_position_embeddings = 32768,
    .rms_norm_eps = 1e-6,
    .tie_word_embeddings = true,
};

static caisson_status every_nth(csn_arch *a, uint32_t interval, csn_arena *arena,
                                caisson_error *err) {
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers, &a->no_rope, err));
    for (uint32_t i = 0; i < a->n_layers; i++) {
        a->no_rope[i] = (i + 1) % interval == 0;
    }
    return CAISSON_OK;
}

/* no_rope_layers: one number a layer, 1 where it rotates (the key's name says the contrary). */
static caisson_status read_no_rope(csn_config *c, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    uint32_t interval = INTERVAL;
    const csn_jval *list = csn_config_get(c, "no_rope_layers");
    CSN_TRY(csn_config_u32(c, "no_rope_layer_interval", &interval, err));
    if (interval == 0) {
        return csn_config_refuse(c, "no_rope_layer_interval", "must not be 0", err);
    }
    CSN_TRY(every_nth(a, interval, arena, err));
    if (csn_jval_kind(list) == CSN_JSON_ABSENT || csn_jval_kind(list) == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    if (csn_jval_kind(list) != CSN_JSON_ARRAY || csn_jval_len(list) != a->n_layers) {
        return csn_config_refuse(c, "no_rope_layers", "not a list of one number a layer", err);
    }
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        uint64_t rotates = 2;
        if (!csn_jval_u64(it.value, &rotates) || rotates > 1) {
            return csn_config_refuse(c, "no_rope_layers", "not a list of 0 and 1", err);
        }
        a->no_rope[it.index] = rotates == 0;
    }
    return CAISSON_OK;
}

/* With use_sliding_window the layers that do not rotate slide. */
static caisson_status read_window(csn_config *c, csn_arena *arena, csn_arch *a,
                                  caisson_error *err) {
    bool is_on = false, has_types, slides = false;
    uint32_t window = 0;
    CSN_TRY(csn_config_bool(c, "use_sliding_window", &is_on, err));
    CSN_TRY(csn_config_u32(c, "sliding_window", &window, err));
    (void)csn_config_get(c, "max_window_layers"); /* Qwen's: the release has it, nobody reads it */
    CSN_TRY(csn_config_layer_types(c, arena, a, &has_types, err));
    if (!has_types) {
        CSN_TRY(csn_arch_full_layers(a, arena, err));
        for (uint32_t i = 0; is_on && window > 0 && i < a->n_layers; i++) {
            a->layer_types[i] =
                a->no_rope[i] ? CSN_LAYER_SLIDING_ATTENTION : CSN_LAYER_FULL_ATTENTION;
        }
    }
    for (uint32_t i = 0; i < a->n_layers; i++) {
        slides = slides || a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION;
    }
    if (slides && (!is_on || window == 0)) {
        return csn_config_refuse(c, "layer_types", "sliding layers without use_sliding_window",
                                 err);
    }
    a->sliding_window = slides ? window : 0;
    return CAISSON_OK;
}

static caisson_status smollm3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                     caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 2000000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    CSN_TRY(csn_config_biases(c, "mlp_bias", false, CSN_BIASES_ALL, &c->mlp_bias, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(read_no_rope(c, arena, a, err));
    return read_window(c, arena, a, err);
}

/* GGUF does not say which layers: llama.cpp knows the interval by the architecture's name. */
static caisson_status smollm3_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    CSN_TRY(every_nth(a, INTERVAL, arena, err));
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_smollm3 = {
    .names = (const char *const[]){"smollm3", NULL},
    .gguf_names = (const char *const[]){"smollm3", NULL},
    .read_config = smollm3_config,
    .read_gguf = smollm3_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm,
                                              &csn_names_biases, NULL},
    .gguf_permutes_rows = true,
};
