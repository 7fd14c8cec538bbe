/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the trunk's tensors (warp facts 3.1) as CMF spells them, so that one plan runs both.
 * What lies outside the prefix (vision) keeps its name. */
#include "format/warp/warp_internal.h"

static const struct {
    const char *from, *to; /* of what follows "model.layers.N." */
} renamed[] = {
    {"block_sparse_moe.gate.e_score_correction_bias", "mlp.expert_bias"},
    {"block_sparse_moe.shared_experts.", "mlp.shared_expert."},
    {"block_sparse_moe.", "mlp."},
};

static const char layers[] = "model.layers.";

bool csn_warp_split_name(csn_str name, uint64_t *ret_layer, csn_str *ret_rest) {
    if (!csn_str_starts(name, csn_str_from(layers))) {
        return false;
    }
    size_t begin = sizeof(layers) - 1;
    size_t point = csn_str_find(name, CSN_STR("."), begin);
    if (point == SIZE_MAX ||
        !csn_str_to_u64(csn_str_make(name.ptr + begin, point - begin), ret_layer)) {
        return false;
    }
    *ret_rest = csn_str_make(name.ptr + point + 1, name.len - point - 1);
    return true;
}

caisson_status csn_warp_cmf_name(csn_warp *w, csn_str name, csn_str *ret, caisson_error *err) {
    uint64_t layer;
    csn_str rest;
    *ret = name;
    if (!csn_str_starts(name, w->prefix)) {
        return CAISSON_OK;
    }
    name = csn_str_make(name.ptr + w->prefix.len, name.len - w->prefix.len);
    *ret = name;
    if (!csn_warp_split_name(name, &layer, &rest)) {
        return CAISSON_OK;
    }
    csn_str from = {0}, to = {0};
    bool is_kda = layer < w->arch.n_layer_types && w->arch.layer_types[layer] == CSN_LAYER_KDA;
    if (is_kda && csn_str_starts(rest, CSN_STR("self_attn."))) {
        from = CSN_STR("self_attn.");
        to = CSN_STR("kda_attn.");
    }
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]) && from.len == 0; i++) {
        if (csn_str_starts(rest, csn_str_from(renamed[i].from))) {
            from = csn_str_from(renamed[i].from);
            to = csn_str_from(renamed[i].to);
        }
    }
    if (from.len == 0) {
        return CAISSON_OK;
    }
    char text[CSN_WARP_MAX_NAME + 16]; /* no name grows */
    size_t head = name.len - rest.len;
    memcpy(text, name.ptr, head);
    memcpy(text + head, to.ptr, to.len);
    memcpy(text + head + to.len, rest.ptr + from.len, rest.len - from.len);
    return csn_arena_str(&w->arena, csn_str_make(text, name.len - from.len + to.len), ret, err);
}
