/* SPDX-License-Identifier: Apache-2.0 */
/* `config` while it is read, shared by config.c and config_attention.c. */
#ifndef CSN_FORMAT_WARP_CONFIG_INTERNAL_H
#define CSN_FORMAT_WARP_CONFIG_INTERNAL_H

#include "base/json_fields.h"
#include "format/warp/warp_internal.h"

struct csn_warp_raw { /* 0 where a key is absent or null */
    uint32_t n_layers, hidden, vocab, n_heads;
    uint32_t n_experts, top_k, n_shared, expert_width, ffn_width, first_moe_layer;
    uint32_t kv_lora, q_lora, qk_nope, qk_rope, v_head;
    uint32_t latent, attn_res_block, n_group, kimi_n_group, topk_group;
    uint32_t max_position_embeddings, model_max_length;
    double routed_scaling, eps, rope_theta, situ_beta, situ_linear_beta;
    bool mla_use_nope;
    csn_str hidden_act, scoring_func, router_func;
    const csn_jval *rope_scaling, *rope_parameters, *kda;
};

/* True by presence: null and false count as well. */
static inline bool csn_warp_has_flag(const csn_jval *object, const char *key) {
    return csn_jval_get(object, key) != NULL;
}

static inline caisson_status csn_warp_refuse(caisson_error *err, caisson_status code,
                                             const char *key, const char *what, csn_str want,
                                             csn_str got) {
    return CSN_FAIL(err, code, .tensor = csn_str_from(key), .what = what, CSN_TEXTS(want, got));
}

/* Layers' kinds and what KDA layers need. */
caisson_status csn_warp_read_kda(const struct csn_warp_raw *r, csn_arena *arena, csn_arch *a,
                                 caisson_error *err);
/* Latent attention and its rotation; layer types are there. */
caisson_status csn_warp_read_mla(const struct csn_warp_raw *r, csn_arch *a, caisson_error *err);

#endif
