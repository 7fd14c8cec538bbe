/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window of Qwen2 and Qwen3: switched off in every published model, but a config may
 * switch it on, for layers that each class of transformers chooses in its own way. */
#include "convert/family.h"

enum { DEFAULT_WINDOW = 4096, DEFAULT_FIRST_LAYER = 28 };

static bool layer_slides(csn_qwen_window which, uint32_t i, uint32_t max_window_layers) {
    switch (which) {
    case CSN_QWEN_FROM_MAX: return i >= max_window_layers;
    case CSN_QWEN_EVEN_BELOW_MAX: return i % 2 == 0 && i < max_window_layers;
    case CSN_QWEN_ALL: break;
    }
    return true;
}

caisson_status csn_config_qwen_window(csn_config *c, csn_qwen_window which, csn_arena *arena,
                                      csn_arch *a, caisson_error *err) {
    bool is_on = false, has_types;
    uint32_t window = DEFAULT_WINDOW, first = DEFAULT_FIRST_LAYER;
    CSN_TRY(csn_config_bool(c, "use_sliding_window", &is_on, err));
    CSN_TRY(csn_config_u32(c, "sliding_window", &window, err));
    CSN_TRY(csn_config_u32(c, "max_window_layers", &first, err));
    /* Absent means the class's default, null means no window. */
    if (csn_jval_kind(csn_jval_get(c->object, "sliding_window")) == CSN_JSON_NULL) {
        is_on = false;
    }
    CSN_TRY(csn_config_layer_types(c, arena, a, &has_types, err));
    if (!has_types) {
        CSN_TRY(csn_arch_full_layers(a, arena, err));
        for (uint32_t i = 0; is_on && i < a->n_layers; i++) {
            if (layer_slides(which, i, first)) {
                a->layer_types[i] = CSN_LAYER_SLIDING_ATTENTION;
            }
        }
    }
    bool slides = false, all = true;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        bool is_local = a->layer_types[i] == CSN_LAYER_SLIDING_ATTENTION;
        slides = slides || is_local;
        all = all && is_local;
    }
    if (which == CSN_QWEN_ALL && is_on && !all) {
        return csn_config_refuse(c, "layer_types", "all layers of this family slide, or none", err);
    }
    if (slides && window == 0) {
        return csn_config_refuse(c, "sliding_window", "must not be 0", err);
    }
    if (slides && !is_on) {
        return csn_config_refuse(c, "layer_types", "sliding layers without use_sliding_window",
                                 err);
    }
    a->sliding_window = slides ? window : 0;
    return CAISSON_OK;
}
