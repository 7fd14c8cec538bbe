/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 1, and what Gemma 2 and 3 share with it (csn_gemma_common): embeddings times
 * sqrt(hidden_size), norms that multiply by 1 + w. llama.cpp stores 1 + w in a GGUF. */
#include "convert/families/gemma_internal.h"

#include <math.h>

#include "convert/family.h"

enum { WINDOW = 4096 };

void csn_gemma_common(csn_arch *a) {
    a->norm_style = CSN_NORM_GEMMA;
    a->hidden_act = CSN_ACT_GELU_TANH;
    a->embed_multiplier = sqrtf((float)a->hidden_size);
}

caisson_status csn_gemma_window(csn_config *c, csn_arch *a, caisson_error *err) {
    const csn_jval *v = csn_jval_get(c->object, "sliding_window");
    a->sliding_window = v == NULL ? WINDOW : 0;
    CSN_TRY(csn_config_u32(c, "sliding_window", &a->sliding_window, err));
    return a->sliding_window != 0 ? CAISSON_OK
                                  : csn_config_refuse(c, "sliding_window", "must not be 0", err);
}

static const csn_config_defaults defaults = {
    .vocab_size = 256000,
    .hidden_size = 3072,
    .intermediate_size = 24576,
    .n_layers = 28,
    .n_heads = 16,
    .n_kv_heads = 16,
    .head_dim = 256,
    .max_position_embeddings = 8192,
    .rms_norm_eps = 1e-6,
    .tie_word_embeddings = true,
    .hidden_act = CSN_ACT_GELU_TANH,
    .gelu_is_tanh = true,
};

static caisson_status gemma_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    CSN_TRY(csn_config_biases(c, "attention_bias", false, CSN_BIASES_ALL, &c->attention_bias, err));
    c->mlp_bias = CSN_BIASES_NONE;
    CSN_TRY(csn_config_refuse_true(c, "use_bidirectional_attention", err));
    csn_act act = a->hidden_act;
    csn_gemma_common(a);
    a->hidden_act = act;
    return csn_arch_full_layers(a, arena, err);
}

static caisson_status gemma_gguf(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_meta_sizes(m, a, err));
    CSN_TRY(csn_meta_rope(m, arena, a, err));
    csn_gemma_common(a);
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_gemma = {
    .names = (const char *const[]){"gemma", NULL},
    .gguf_names = (const char *const[]){"gemma", NULL},
    .read_config = gemma_config,
    .read_gguf = gemma_gguf,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm,
                                              &csn_names_biases, NULL},
    .gguf_adds_one = true,
};
