/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window of Qwen2 and Qwen3: switched off in every published model, but a config may
 * switch it on for the layers from max_window_layers on. */
#include "convert/family.h"

enum { DEFAULT_WINDOW = 4096, DEFAULT_FIRST_LAYER = 28 };

caisson_status csn_config_qwen_window(csn_config *c, csn_arena *arena, csn_arch *a,
                                      caisson_error *err) {
    bool is_on = false, has_types;
    uint32_t window = DEFAULT_WINDOW, first = DEFAULT_FIRST_LAYER;
    CSN_TRY(csn_config_bool(c, "use_sliding_window", &is_on, err));
    CSN_TRY(csn_config_u32(c, "sliding_window", &window, err));
    CSN_TRY(csn_config_u32(c, "max_window_layers", &first, err));
    CSN_TRY(csn_config_layer_types(c, arena, a, &has_types, err));
    if (!has_types) {
        CSN_TRY(csn_arch_full_layers(a, arena, err));
        for (uint32_t i = first; is_on && i < a->n_layers; i++) {
            a->layer_types[i] = CSN_LAYER_SLIDING_ATTENTION;
        }
    }
    bool slides = false;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        slides = slides || a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION;
    }
    if (slides && !is_on) {
        return csn_config_refuse(c, "layer_types", "sliding layers without use_sliding_window",
                                 err);
    }
    a->sliding_window = slides ? window : 0;
    return CAISSON_OK;
}
