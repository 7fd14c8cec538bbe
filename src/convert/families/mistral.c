/* SPDX-License-Identifier: Apache-2.0 */
/* Mistral 7B and its kin: llama with a sliding window over every layer. */
#include "convert/family.h"

static const csn_config_defaults defaults = {
    .vocab_size = 32000,
    .hidden_size = 4096,
    .intermediate_size = 14336,
    .n_layers = 32,
    .n_heads = 32,
    .n_kv_heads = 8,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-6,
};
enum { DEFAULT_WINDOW = 4096 };

static caisson_status mistral_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                     caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    CSN_TRY(csn_config_sizes(c, &defaults, a, err));
    CSN_TRY(csn_config_rope(c, &rope, arena, a, err));
    /* Absent means the class's default, null means no window. */
    if (csn_jval_get(c->object, "sliding_window") == NULL) {
        a->sliding_window = DEFAULT_WINDOW;
    }
    CSN_TRY(csn_config_u32(c, "sliding_window", &a->sliding_window, err));
    a->sliding_all = a->sliding_window != 0;
    return csn_arch_full_layers(a, arena, err);
}

const csn_family csn_family_mistral = {
    .names = (const char *const[]){"mistral", NULL},
    .gguf_names = (const char *const[]){NULL}, /* llama.cpp calls it llama */
    .read_config = mistral_config,
    .tables = (const csn_name_table *const[]){&csn_names_dense, &csn_names_ffn_norm, NULL},
};
