/* SPDX-License-Identifier: Apache-2.0 */
/* `config` of the manifest, the release's config.json in one form (warp facts 2.4), as csn_arch.
 *
 * Some flags are true by their presence, whatever their value: that is how the existing engine
 * reads them, and how its converter writes them. What the engine passes over although it changes
 * the result (another activation, another router) is refused here. */
#include "caisson/limits.h"
#include "format/warp/config_internal.h"

#define F(member, key, type) CSN_JFIELD(struct csn_warp_raw, member, key, type, CSN_JF_NULLABLE)
static const csn_jfield raw_fields[] = {
    F(n_layers, "num_hidden_layers", CSN_JT_U32),
    F(hidden, "hidden_size", CSN_JT_U32),
    F(vocab, "vocab_size", CSN_JT_U32),
    F(n_heads, "num_attention_heads", CSN_JT_U32),
    F(n_experts, "num_experts", CSN_JT_U32),
    F(top_k, "num_experts_per_token", CSN_JT_U32),
    F(n_shared, "num_shared_experts", CSN_JT_U32),
    F(expert_width, "moe_intermediate_size", CSN_JT_U32),
    F(ffn_width, "intermediate_size", CSN_JT_U32),
    F(first_moe_layer, "first_k_dense_replace", CSN_JT_U32),
    F(kv_lora, "kv_lora_rank", CSN_JT_U32),
    F(q_lora, "q_lora_rank", CSN_JT_U32),
    F(qk_nope, "qk_nope_head_dim", CSN_JT_U32),
    F(qk_rope, "qk_rope_head_dim", CSN_JT_U32),
    F(v_head, "v_head_dim", CSN_JT_U32),
    F(latent, "routed_expert_hidden_size", CSN_JT_U32),
    F(attn_res_block, "attn_res_block_size", CSN_JT_U32),
    F(n_group, "n_group", CSN_JT_U32),
    F(kimi_n_group, "num_expert_group", CSN_JT_U32),
    F(topk_group, "topk_group", CSN_JT_U32),
    F(max_position_embeddings, "max_position_embeddings", CSN_JT_U32),
    F(model_max_length, "model_max_length", CSN_JT_U32),
    F(routed_scaling, "routed_scaling_factor", CSN_JT_F64_AS_F32),
    F(eps, "rms_norm_eps", CSN_JT_F64_AS_F32),
    F(rope_theta, "rope_theta", CSN_JT_F64_AS_F32),
    F(situ_beta, "activation_situ_beta", CSN_JT_F64_AS_F32),
    F(situ_linear_beta, "activation_situ_linear_beta", CSN_JT_F64_AS_F32),
    CSN_JFIELD(struct csn_warp_raw, mla_use_nope, "mla_use_nope", CSN_JT_BOOL,
               0), /* null is refused */
    F(hidden_act, "hidden_act", CSN_JT_STR),
    F(scoring_func, "scoring_func", CSN_JT_STR),
    F(router_func, "moe_router_activation_func", CSN_JT_STR),
    F(rope_scaling, "rope_scaling", CSN_JT_OBJECT),
    F(rope_parameters, "rope_parameters", CSN_JT_OBJECT),
    F(kda, "linear_attn_config", CSN_JT_OBJECT),
};
#undef F

static caisson_status check_ranges(const struct csn_warp_raw *r, caisson_error *err) {
    uint32_t max_top_k = r->n_experts < 64 ? r->n_experts : 64;
    bool is_moe = r->n_experts > 0;
    const struct {
        const char *key;
        uint32_t value, min, max;
    } counts[] = {
        {"num_hidden_layers", r->n_layers, 1, CSN_WARP_MAX_LAYERS},
        {"hidden_size", r->hidden, 1, 1 << 20},
        {"vocab_size", r->vocab, 1, CAISSON_MAX_TOKENS},
        {"num_attention_heads", r->n_heads, 1, 1 << 16},
        {"num_experts", r->n_experts, 0, 1 << 16}, /* a record has 16 bits for its number */
        {"num_experts_per_token", r->top_k, is_moe, is_moe ? max_top_k : UINT32_MAX},
        {"num_shared_experts", r->n_shared, 0, 64},
        {"moe_intermediate_size", r->expert_width, is_moe, 1 << 20},
        {"intermediate_size", r->ffn_width, 0, 1 << 24},
        {"first_k_dense_replace", r->first_moe_layer, 0, r->n_layers},
        {"routed_expert_hidden_size", r->latent, 0, 1 << 20},
        {"kv_lora_rank", r->kv_lora, 0, 1 << 20},
        {"q_lora_rank", r->q_lora, 0, 1 << 20},
        {"qk_nope_head_dim", r->qk_nope, 0, 1 << 16},
        {"qk_rope_head_dim", r->qk_rope, 0, 1 << 16},
        {"v_head_dim", r->v_head, 0, 1 << 16},
        {"attn_res_block_size", r->attn_res_block, 0, r->n_layers},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint32_t v = counts[i].value;
        if (v < counts[i].min || v > counts[i].max) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(counts[i].key),
                            .what = "out of range",
                            CSN_VALUES(v < counts[i].min ? counts[i].min : counts[i].max, v));
        }
    }
    if (!(r->eps > 0 && r->eps < 1)) {
        return csn_warp_refuse(err, CAISSON_E_PARSE, "rms_norm_eps", "out of range",
                               CSN_STR("above 0, below 1"), (csn_str){0});
    }
    if (!((float)r->rope_theta > 0)) {
        return csn_warp_refuse(err, CAISSON_E_PARSE, "rope_theta", "out of range",
                               CSN_STR("above 0"), (csn_str){0});
    }
    return CAISSON_OK;
}

/* The existing engine takes anything else for SiLU. */
static caisson_status read_act(const struct csn_warp_raw *r, csn_arch *a, caisson_error *err) {
    if (csn_str_is(r->hidden_act, "situ")) {
        a->hidden_act = CSN_ACT_SITU;
        a->has_situ_beta = a->has_situ_linear_beta = true;
        a->activation_situ_beta = r->situ_beta;
        a->activation_situ_linear_beta = r->situ_linear_beta;
        if (!((float)r->situ_beta > 0)) { /* a divisor */
            return csn_warp_refuse(err, CAISSON_E_PARSE, "activation_situ_beta", "out of range",
                                   CSN_STR("above 0"), (csn_str){0});
        }
    } else if (r->hidden_act.len > 0 && !csn_str_is(r->hidden_act, "silu")) {
        return csn_warp_refuse(err, CAISSON_E_UNSUPPORTED, "hidden_act", "unknown activation",
                               CSN_STR("silu or situ"), r->hidden_act);
    }
    return CAISSON_OK;
}

/* DeepSeek's (and Kimi-Linear's) choice among groups of experts is part of the model, although the
 * existing engine does without. */
static caisson_status read_groups(const struct csn_warp_raw *r, const csn_log *log, csn_arch *a,
                                  caisson_error *err) {
    uint32_t n_group = r->n_group > 1 ? r->n_group : r->kimi_n_group;
    if (n_group <= 1) {
        return CAISSON_OK;
    }
    if (r->n_experts % n_group != 0 || r->topk_group < 1 || r->topk_group > n_group ||
        r->top_k > r->n_experts / n_group * r->topk_group) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("n_group"),
                        .what = "groups of experts that make no sense",
                        CSN_VALUES(r->n_experts, n_group));
    }
    a->moe.n_group = n_group;
    a->moe.topk_group = r->topk_group;
    CSN_WARN(log,
             "experts are chosen from %u of %u groups, as config says; the existing engine "
             "chooses from all",
             r->topk_group, n_group);
    return CAISSON_OK;
}

static caisson_status read_moe(const csn_jval *config, const struct csn_warp_raw *r,
                               const csn_log *log, csn_arch *a, caisson_error *err) {
    const csn_str scoring[] = {r->scoring_func, r->router_func};
    for (size_t i = 0; i < 2; i++) { /* the existing engine scores with the sigmoid, always */
        if (scoring[i].len > 0 && !csn_str_is(scoring[i], "sigmoid")) {
            return csn_warp_refuse(
                err, CAISSON_E_UNSUPPORTED, i == 0 ? "scoring_func" : "moe_router_activation_func",
                "routers score by the sigmoid in this format", CSN_STR("sigmoid"), scoring[i]);
        }
    }
    a->moe.present = true;
    a->moe.n_experts = r->n_experts;
    a->moe.top_k = r->top_k;
    a->moe.moe_intermediate_size = r->expert_width;
    /* of one expert the sum is its own weight: it keeps its score */
    a->moe.norm_topk_prob = csn_warp_has_flag(config, "moe_renormalize") && r->top_k > 1;
    a->moe.router_sigmoid = true;
    a->moe.has_scaling = true;
    a->moe.routed_scaling_factor = r->routed_scaling;
    a->moe.has_shared = true;
    a->moe.shared_expert_intermediate_size = r->expert_width * (r->n_shared > 0 ? r->n_shared : 1);
    a->moe.routed_expert_hidden_size = r->latent;
    a->moe.has_latent_norm = r->latent > 0 && csn_warp_has_flag(config, "latent_moe_use_norm");
    return read_groups(r, log, a, err);
}

/* The name of the whole release, where the text's config is only a part of it, wins. */
static caisson_status read_arch_name(csn_warp *w, const csn_jval *outer, const csn_jval *config,
                                     caisson_error *err) {
    csn_str name = {0};
    const csn_jval *list = csn_jval_get(csn_jval_get(config, "_outer"), "architectures");
    list = list != NULL ? list : csn_jval_get(outer, "architectures");
    list = list != NULL ? list : csn_jval_get(config, "architectures");
    csn_jiter it = csn_jval_iter(list);
    if (csn_jiter_next(&it)) {
        (void)csn_jval_str(it.value, &name);
    }
    name = csn_str_find(name, CSN_STR("KimiK3"), 0) != SIZE_MAX       ? CSN_STR("kimi-k3")
           : csn_str_find(name, CSN_STR("KimiLinear"), 0) != SIZE_MAX ? CSN_STR("kimi-linear")
           : name.len == 0                                            ? CSN_STR("unknown")
                                                                      : name;
    return csn_arena_str(&w->arena, name, &w->arch.arch_name, err);
}

/* A number above 0, or a list of such; 0 and null say nothing. */
static caisson_status read_eos(csn_warp *w, const csn_jval *v, caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    size_t n = kind == CSN_JSON_ARRAY ? csn_jval_len(v) : 1;
    csn_chat_bundle *chat = &w->chat;
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL || n == 0) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(&w->arena, n, &chat->eos_token_ids, err));
    csn_jiter it = csn_jval_iter(v);
    for (size_t i = 0; i < n; i++) {
        uint64_t id;
        if (kind == CSN_JSON_ARRAY) {
            (void)csn_jiter_next(&it);
            v = it.value;
        }
        if (!csn_jval_u64(v, &id) || id >= w->arch.vocab_size) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("eos_token_id"),
                            .what = "not a token of the vocabulary",
                            .want = CSN_STR("an integer below vocab_size"));
        }
        if (id > 0) {
            chat->eos_token_ids[chat->n_eos++] = (int32_t)id;
        }
    }
    return CAISSON_OK;
}

/* Counts only where the tokenizer's files do not say it. */
static int32_t read_bos(const csn_warp *w, const csn_jval *v) {
    uint64_t id;
    return csn_jval_u64(v, &id) && id < w->arch.vocab_size ? (int32_t)id : -1;
}

static uint32_t context_length(const struct csn_warp_raw *r, const csn_arch *a) {
    uint32_t n = r->max_position_embeddings > 0 ? r->max_position_embeddings : r->model_max_length;
    if (n == 0 && a->yarn.present) {
        double scaled = (double)a->yarn.factor * a->yarn.original_max_position_embeddings;
        n = scaled < (double)INT32_MAX ? (uint32_t)scaled : INT32_MAX;
    }
    return n > 0 ? n : 4096;
}

static caisson_status read_prefix(csn_warp *w, const csn_jval *root, bool is_nested,
                                  caisson_error *err) {
    const csn_jval *v = csn_jval_get(root, "tensor_prefix");
    csn_str prefix = {0};
    if (v != NULL && !csn_jval_str(v, &prefix)) {
        return csn_warp_refuse(err, CAISSON_E_PARSE, "tensor_prefix", "not a string",
                               CSN_STR("a string"), (csn_str){0});
    }
    if (prefix.len > CSN_WARP_MAX_PREFIX) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = CSN_STR("tensor_prefix"),
                        .what = "longer than the format allows",
                        CSN_VALUES(CSN_WARP_MAX_PREFIX, prefix.len));
    }
    w->prefix = prefix.len == 0 && is_nested ? CSN_STR("language_model.") : prefix;
    return CAISSON_OK;
}

static caisson_status read_all(csn_warp *w, const csn_log *log, csn_warp_config *ret,
                               caisson_error *err) {
    const csn_jval *root = csn_json_root(w->manifest);
    const csn_jval *outer = csn_jval_get(root, "config");
    const csn_jval *inner = csn_jval_get(outer, "text_config");
    const csn_jval *config = inner != NULL ? inner : outer;
    CSN_TRY(read_prefix(w, root, inner != NULL, err));
    struct csn_warp_raw r = {.routed_scaling = 1, .eps = 1e-5, .rope_theta = 10000, .situ_beta = 1};
    CSN_TRY(csn_jfields_read(config, raw_fields, CSN_N_FIELDS(raw_fields), "", &r, NULL, err));
    CSN_TRY(check_ranges(&r, err));
    csn_arch *a = &w->arch;
    csn_arch_init(a);
    a->n_layers = r.n_layers;
    a->hidden_size = r.hidden;
    a->vocab_size = r.vocab;
    a->intermediate_size = r.ffn_width;
    a->rms_norm_eps = r.eps;
    a->rope_theta = r.rope_theta;
    a->attn_res_block_size = r.attn_res_block;
    CSN_TRY(read_arch_name(w, outer, config, err));
    CSN_TRY(read_act(&r, a, err));
    CSN_TRY(csn_warp_read_kda(&r, &w->arena, a, err));
    CSN_TRY(csn_warp_read_mla(&r, a, err));
    /* ours where there are several */
    const csn_jval *eos = csn_jval_get(config, "caisson.eos_token_ids");
    CSN_TRY(read_eos(w, eos != NULL ? eos : csn_jval_get(config, "eos_token_id"), err));
    w->chat.bos_token_id = read_bos(w, csn_jval_get(config, "bos_token_id"));
    a->max_position_embeddings = context_length(&r, a);
    if (r.n_experts > 0) {
        CSN_TRY(read_moe(config, &r, log, a, err));
    }
    w->expert_width = r.expert_width;
    w->expert_hidden = r.latent > 0 ? r.latent : r.hidden;
    *ret = (csn_warp_config){
        .first_moe_layer = r.first_moe_layer,
        .n_experts = r.n_experts,
        .has_output_gate = csn_warp_has_flag(config, "mla_use_output_gate"),
        .has_full_rank_gate = csn_warp_has_flag(r.kda, "use_full_rank_gate"),
    };
    return CAISSON_OK;
}

caisson_status csn_warp_read_config(csn_warp *w, const csn_log *log, csn_warp_config *ret,
                                    caisson_error *err) {
    caisson_status status = read_all(w, log, ret, err);
    if (status != CAISSON_OK) {
        csn_error_section(err, "config");
    }
    return status;
}

caisson_status csn_warp_check_config(csn_str config, caisson_error *err) {
    csn_warp w = {0};
    csn_warp_config ignored;
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_jw manifest = csn_jw_begin(&text, err);
    csn_jw_object(&manifest);
    csn_jw_key(&manifest, CSN_STR("config"));
    csn_jw_json(&manifest, config);
    csn_jw_object_end(&manifest);
    caisson_status status = csn_jw_end(&manifest);
    if (status == CAISSON_OK) {
        status = csn_json_parse(csn_buf_view(&text), 0, &w.manifest, err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_read_config(&w, NULL, &ignored, err);
    }
    csn_buf_free(&text);
    csn_json_free(w.manifest);
    csn_arena_done(&w.arena);
    return status;
}
