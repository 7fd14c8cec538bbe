/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi-Linear (layers of Kimi Delta Attention between layers of latent attention that do not
 * rotate) and Kimi K3, which adds latent experts, gates, SiTU and attention residuals (warp facts
 * 2.4 and 3.1). */
#include "convert/family.h"

#define LAYER "model.layers.{}."
#define H CSN_DIM_HIDDEN
#define F CSN_DIM_EXPERT_FFN
#define S CSN_DIM_SHARED_FFN
#define L CSN_DIM_LATENT
#define C CSN_DIM_KDA
#define D CSN_DIM_KDA_HEAD
#define ONE_D CSN_DIM_NONE
#define OPT CSN_ROW_OPTIONAL
#define ROW(name, hf, gguf, rows, cols, flags)                                                     \
    CSN_NAME_ROW(LAYER name, LAYER hf, gguf, rows, cols, flags)
#define BLK "blk.{}."
#define KDA(name, gguf, rows, cols, flags)                                                         \
    ROW("kda_attn." name, "self_attn." name, gguf, rows, cols, CSN_ROW_KDA | (flags))
#define MOE(name, hf, gguf, rows, cols, flags)                                                     \
    ROW("mlp." name, "block_sparse_moe." hf, gguf, rows, cols, flags)

static const csn_name_row kda_rows[] = {
    KDA("q_proj.weight", BLK "attn_q.weight", C, H, 0),
    KDA("k_proj.weight", BLK "attn_k.weight", C, H, 0),
    KDA("v_proj.weight", BLK "attn_v.weight", C, H, 0),
    KDA("q_conv1d.weight", BLK "ssm_conv1d_q.weight", C, CSN_DIM_KDA_CONV, CSN_ROW_ANY_SHAPE),
    KDA("k_conv1d.weight", BLK "ssm_conv1d_k.weight", C, CSN_DIM_KDA_CONV, CSN_ROW_ANY_SHAPE),
    KDA("v_conv1d.weight", BLK "ssm_conv1d_v.weight", C, CSN_DIM_KDA_CONV, CSN_ROW_ANY_SHAPE),
    KDA("f_a_proj.weight", BLK "ssm_f_a.weight", D, H, 0),
    KDA("f_b_proj.weight", BLK "ssm_f_b.weight", C, D, 0),
    KDA("b_proj.weight", BLK "ssm_beta.weight", CSN_DIM_KDA_HEADS, H, 0),
    KDA("g_proj.weight", NULL, C, H, OPT), /* or the two of low rank */
    KDA("g_a_proj.weight", BLK "ssm_g_a.weight", D, H, OPT),
    KDA("g_b_proj.weight", BLK "ssm_g_b.weight", C, D, OPT),
    KDA("A_log", BLK "ssm_a", CSN_DIM_KDA_HEADS, ONE_D, CSN_ROW_ANY_SHAPE | CSN_ROW_LOG),
    KDA("dt_bias", BLK "ssm_dt.bias", C, ONE_D, CSN_ROW_ANY_SHAPE),
    KDA("o_norm.weight", BLK "ssm_norm.weight", D, ONE_D, 0),
    KDA("o_proj.weight", BLK "attn_output.weight", H, C, 0),
};
static const csn_name_table kda_names = CSN_NAME_TABLE(kda_rows);

static const csn_name_row moe_rows[] = {
    MOE("gate.weight", "gate.weight", BLK "ffn_gate_inp.weight", CSN_DIM_EXPERTS, H,
        CSN_ROW_ROUTER | CSN_ROW_MIXTURE),
    MOE("expert_bias", "gate.e_score_correction_bias", BLK "exp_probs_b.bias", CSN_DIM_EXPERTS,
        ONE_D, CSN_ROW_MIXTURE | OPT),
    MOE("routed_expert_down_proj.weight", "routed_expert_down_proj.weight", NULL, L, H,
        CSN_ROW_MIXTURE | OPT),
    MOE("routed_expert_up_proj.weight", "routed_expert_up_proj.weight", NULL, H, L,
        CSN_ROW_MIXTURE | OPT),
    MOE("routed_expert_norm.weight", "routed_expert_norm.weight", NULL, L, ONE_D,
        CSN_ROW_MIXTURE | OPT),
    MOE("experts.{}.gate_proj.weight", "experts.{}.w1.weight", BLK "ffn_gate_exps.weight", F, L,
        CSN_ROW_EXPERT),
    MOE("experts.{}.up_proj.weight", "experts.{}.w3.weight", BLK "ffn_up_exps.weight", F, L,
        CSN_ROW_EXPERT),
    MOE("experts.{}.down_proj.weight", "experts.{}.w2.weight", BLK "ffn_down_exps.weight", L, F,
        CSN_ROW_EXPERT),
    MOE("shared_expert.gate_proj.weight", "shared_experts.gate_proj.weight",
        BLK "ffn_gate_shexp.weight", S, H, CSN_ROW_MIXTURE | OPT),
    MOE("shared_expert.up_proj.weight", "shared_experts.up_proj.weight", BLK "ffn_up_shexp.weight",
        S, H, CSN_ROW_MIXTURE | OPT),
    MOE("shared_expert.down_proj.weight", "shared_experts.down_proj.weight",
        BLK "ffn_down_shexp.weight", H, S, CSN_ROW_MIXTURE | OPT),
};
static const csn_name_table moe_names = CSN_NAME_TABLE(moe_rows);

/* Required where the configuration has attn_res_block_size: the plan of the engine asks. */
static const csn_name_row res_rows[] = {
    CSN_NAME_ROW("model.output_attn_res_norm.weight", NULL, NULL, H, ONE_D,
                 OPT | CSN_ROW_ANY_SHAPE),
    CSN_NAME_ROW("model.output_attn_res_proj.weight", NULL, NULL, H, ONE_D,
                 OPT | CSN_ROW_ANY_SHAPE),
    ROW("self_attention_res_norm.weight", "self_attention_res_norm.weight", NULL, H, ONE_D,
        OPT | CSN_ROW_ANY_SHAPE),
    ROW("self_attention_res_proj.weight", "self_attention_res_proj.weight", NULL, H, ONE_D,
        OPT | CSN_ROW_ANY_SHAPE),
    ROW("mlp_res_norm.weight", "mlp_res_norm.weight", NULL, H, ONE_D, OPT | CSN_ROW_ANY_SHAPE),
    ROW("mlp_res_proj.weight", "mlp_res_proj.weight", NULL, H, ONE_D, OPT | CSN_ROW_ANY_SHAPE),
};
static const csn_name_table res_names = CSN_NAME_TABLE(res_rows);

static const csn_config_defaults defaults = {
    .vocab_size = 163840,
    .hidden_size = 2304,
    .intermediate_size = 9216,
    .n_layers = 27,
    .n_heads = 32,
    .max_position_embeddings = 1048576,
    .rms_norm_eps = 1e-5,
};

/* kda_layers counts from 1; the other layers are latent attention. */
static caisson_status read_kda_layers(const csn_jval *list, csn_config *c, csn_arch *a,
                                      caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        uint64_t layer = 0;
        if (!csn_jval_u64(it.value, &layer) || layer == 0 || layer > a->n_layers) {
            return csn_config_refuse(c, "linear_attn_config", "a number is no layer", err);
        }
        a->layer_types[layer - 1] = CSN_LAYER_KDA;
    }
    return CAISSON_OK;
}

/* The release's form: one object. */
static caisson_status read_linear_attn(const csn_jval *object, csn_config *c, csn_arena *arena,
                                       csn_arch *a, caisson_error *err) {
    csn_config k;
    CSN_TRY(csn_config_init(&k, object, "linear_attn_config", arena, err));
    CSN_TRY(csn_config_u32(&k, "num_heads", &a->linear_n_value_heads, err));
    CSN_TRY(csn_config_u32(&k, "head_dim", &a->linear_value_head_dim, err));
    CSN_TRY(csn_config_u32(&k, "short_conv_kernel_size", &a->linear_conv_kernel_dim, err));
    CSN_TRY(csn_config_f64(&k, "gate_lower_bound", &a->kda_gate_lower_bound, err));
    a->has_kda_gate_lower_bound = csn_jval_get(object, "gate_lower_bound") != NULL;
    bool is_full_rank; /* the tensors say it too */
    CSN_TRY(csn_config_bool(&k, "use_full_rank_gate", &is_full_rank, err));
    (void)csn_config_get(&k, "full_attn_layers"); /* those that kda_layers does not name */
    CSN_TRY(read_kda_layers(csn_config_get(&k, "kda_layers"), c, a, err));
    return csn_config_end(&k, false, err);
}

/* transformers' form: keys beside the others. It writes layer_types next to the release's form,
 * too: then both say the same. */
static caisson_status read_layer_types(csn_config *c, bool has_object, csn_arch *a,
                                       caisson_error *err) {
    const csn_jval *list = csn_config_get(c, "layer_types");
    if (csn_jval_kind(list) != CSN_JSON_ARRAY || csn_jval_len(list) != a->n_layers) {
        return csn_config_refuse(c, "layer_types", "not one type a layer", err);
    }
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        csn_str s = {0};
        (void)csn_jval_str(it.value, &s);
        bool is_kda = csn_str_is(s, "linear_attention");
        if (!is_kda && !csn_str_is(s, "full_attention")) {
            return csn_config_refuse(c, "layer_types", "kind of layer is not known", err);
        }
        if (has_object && is_kda != (a->layer_types[it.index] == CSN_LAYER_KDA)) {
            return csn_config_refuse(c, "layer_types", "not the layers of linear_attn_config", err);
        }
        a->layer_types[it.index] = is_kda ? CSN_LAYER_KDA : CSN_LAYER_FULL_ATTENTION;
    }
    return CAISSON_OK;
}

/* A size that both forms have. */
static caisson_status read_size(csn_config *c, const char *key, bool has_object, uint32_t *size,
                                caisson_error *err) {
    uint32_t said = *size;
    CSN_TRY(csn_config_u32(c, key, &said, err));
    if (has_object && said != *size) {
        return csn_config_refuse(c, key, "not that of linear_attn_config", err);
    }
    *size = said;
    return CAISSON_OK;
}

static caisson_status read_kda(csn_config *c, csn_arena *arena, csn_arch *a, caisson_error *err) {
    CSN_TRY(csn_arch_full_layers(a, arena, err));
    a->linear_conv_kernel_dim = 4;
    const csn_jval *object = csn_config_get(c, "linear_attn_config");
    if (object != NULL) {
        CSN_TRY(read_linear_attn(object, c, arena, a, err));
    }
    bool has_object = object != NULL;
    if (!has_object || csn_config_get(c, "layer_types") != NULL) {
        CSN_TRY(read_layer_types(c, has_object, a, err));
    }
    CSN_TRY(read_size(c, "linear_num_heads", has_object, &a->linear_n_value_heads, err));
    CSN_TRY(read_size(c, "linear_head_dim", has_object, &a->linear_value_head_dim, err));
    CSN_TRY(read_size(c, "linear_conv_kernel_dim", has_object, &a->linear_conv_kernel_dim, err));
    a->linear_n_key_heads = a->linear_n_value_heads;
    a->linear_key_head_dim = a->linear_value_head_dim;
    if (a->linear_n_value_heads == 0 || a->linear_value_head_dim == 0 ||
        a->linear_conv_kernel_dim == 0) {
        return csn_config_refuse(c, "linear_attn_config", "heads or their dim are missing", err);
    }
    return CAISSON_OK;
}

static caisson_status read_kimi(csn_config *c, double latent_eps, csn_arena *arena, csn_arch *a,
                                caisson_error *err) {
    static const csn_rope_rules rope = {.theta = 10000.0};
    csn_config_defaults d = defaults;
    CSN_TRY(csn_config_u32(c, "model_max_length", &d.max_position_embeddings, err));
    CSN_TRY(csn_config_sizes(c, &d, a, err));
    a->mla.nope = true; /* unless mla_use_nope says the contrary */
    CSN_TRY(csn_config_mla(c, &rope, latent_eps, arena, a, err));
    CSN_TRY(csn_config_need(c, "routed_scaling_factor", NULL, err));
    CSN_TRY(csn_config_grouped_moe(c, true, a, err));
    a->moe.norm_topk_prob = a->moe.norm_topk_prob && a->moe.top_k > 1; /* as these models are run */
    return read_kda(c, arena, a, err);
}

static caisson_status kimi_linear_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                         caisson_error *err) {
    CSN_TRY(csn_config_need(c, "moe_renormalize", "norm_topk_prob", err));
    CSN_TRY(read_kimi(c, CSN_LATENT_EPS, arena, a, err));
    /* transformers has the convolutions follow hidden_act, others run them by silu always */
    return a->hidden_act == CSN_ACT_SILU
               ? CAISSON_OK
               : csn_config_refuse(c, "hidden_act", "the layers of this family are run by silu",
                                   err);
}

/* What K3 has beside Kimi-Linear. Flags count by their presence (warp facts 2.4). */
static caisson_status kimi_k3_config(csn_config *c, csn_arena *arena, csn_arch *a,
                                     caisson_error *err) {
    CSN_TRY(csn_config_u32(c, "attn_res_block_size", &a->attn_res_block_size, err));
    CSN_TRY(csn_config_u32(c, "routed_expert_hidden_size", &a->moe.routed_expert_hidden_size, err));
    a->moe.has_latent_norm = csn_config_get(c, "latent_moe_use_norm") != NULL;
    a->activation_situ_beta = 1.0;
    CSN_TRY(csn_config_f64(c, "activation_situ_beta", &a->activation_situ_beta, err));
    CSN_TRY(csn_config_f64(c, "activation_situ_linear_beta", &a->activation_situ_linear_beta, err));
    CSN_TRY(csn_config_need(c, "mla_use_nope", NULL, err)); /* where it is absent WARP rotates */
    CSN_TRY(read_kimi(c, 0, arena, a, err));                /* as WARP has it */
    c->output_gate =
        csn_config_get(c, "mla_use_output_gate") != NULL ? CSN_BIASES_ALL : CSN_BIASES_NONE;
    a->has_situ_beta = a->hidden_act == CSN_ACT_SITU;
    a->has_situ_linear_beta = a->has_situ_beta;
    if (a->attn_res_block_size > a->n_layers) {
        return csn_config_refuse(c, "attn_res_block_size", "a block is longer than all layers",
                                 err);
    }
    return CAISSON_OK;
}

/* llama.cpp tells the kinds of layers apart by their key-value heads: those of KDA have none. */
static caisson_status gguf_layers(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    static const char key[] = "attention.head_count_kv";
    const csn_gguf_pair *heads = csn_meta_get(m, key);
    if (heads == NULL || heads->type != CSN_GGUF_ARRAY || heads->n != a->n_layers) {
        return csn_meta_refuse(m, key, "not one number a layer", err);
    }
    CSN_TRY(csn_arch_full_layers(a, arena, err));
    for (uint32_t i = 0; i < a->n_layers; i++) {
        int64_t n = -1;
        if (!csn_gguf_item_i64(heads, i, &n) || n < 0) {
            return csn_meta_refuse(m, key, "an entry is no number of heads", err);
        }
        if (n == 0) {
            a->layer_types[i] = CSN_LAYER_KDA;
        }
    }
    return CAISSON_OK;
}

/* There are as many heads of KDA as of latent attention, none of which rotates: the format says
 * neither, llama.cpp takes it so. The shapes of the tensors are held against it. */
static caisson_status kimi_linear_gguf(csn_meta *m, csn_arena *arena, csn_arch *a,
                                       caisson_error *err) {
    CSN_TRY(csn_meta_model(m, a, err));
    CSN_TRY(csn_meta_mla(m, arena, a, err));
    CSN_TRY(csn_meta_grouped_moe(m, true, a, err));
    if (!a->moe.router_sigmoid) {
        return csn_meta_refuse(m, "expert_gating_func", "experts are scored by the sigmoid (2)",
                               err);
    }
    CSN_TRY(gguf_layers(m, arena, a, err));
    CSN_TRY(csn_meta_need_u32(m, "kda.head_dim", &a->linear_value_head_dim, err));
    CSN_TRY(csn_meta_need_u32(m, "ssm.conv_kernel", &a->linear_conv_kernel_dim, err));
    if (a->linear_value_head_dim == 0) {
        return csn_meta_refuse(m, "kda.head_dim", "must not be 0", err);
    }
    if (a->linear_conv_kernel_dim == 0) {
        return csn_meta_refuse(m, "ssm.conv_kernel", "must not be 0", err);
    }
    a->mla.nope = true;
    a->linear_n_value_heads = a->linear_n_key_heads = a->n_heads;
    a->linear_key_head_dim = a->linear_value_head_dim;
    return CAISSON_OK;
}

static const csn_name_table *const tables[] = {
    &csn_names_ends, &csn_names_ffn_norm, &csn_names_mla, &kda_names, &moe_names, &res_names, NULL,
};

const csn_family csn_family_kimi_linear = {
    .names = (const char *const[]){"kimi_linear", NULL},
    .gguf_names = (const char *const[]){"kimi-linear", NULL},
    .read_config = kimi_linear_config,
    .read_gguf = kimi_linear_gguf,
    .tables = tables,
    .ffn_alias = "block_sparse_moe",
};

const csn_family csn_family_kimi_k3 = {
    .names = (const char *const[]){"kimi_k3", NULL},
    .gguf_names = (const char *const[]){NULL}, /* from safetensors alone */
    .read_config = kimi_k3_config,
    .tables = tables,
    .drops = (const char *const[]){"vision_tower.", "mm_projector.", NULL},
    .is_named_outside = true,
};
