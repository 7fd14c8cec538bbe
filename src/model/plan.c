/* SPDX-License-Identifier: Apache-2.0 */
/* From arch and the directory to a plan. Three kinds of refusal, each by name: a tensor that is
 * missing, a shape that contradicts arch or a sibling, and an arch feature or a tensor that this
 * engine does not execute - nothing that would change the result is passed over in silence. */
#include "model/plan.h"

#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "model/blocks/blocks.h"
#include "model/plan_internal.h"

csn_str csn_plan_name(struct csn_maker *m, uint32_t i_layer, const char *suffix) {
    int n = snprintf(m->name, sizeof(m->name), "model.layers.%u.%s", i_layer, suffix);
    return csn_str_make(m->name, n > 0 ? (size_t)n : 0);
}

bool csn_plan_has(const struct csn_maker *m, csn_str name) {
    return csn_directory_find(m->dir, name) != NULL;
}

/* *ret_name: the entry that is read, in the directory's memory; of a blend the backbone's. *ret is
 * written where skills stand in for it (*ret_found). */
static caisson_status find_entry(struct csn_maker *m, csn_str name, bool *ret_found,
                                 csn_matrix *ret, csn_str *ret_name, caisson_error *err) {
    const csn_tensor *t = csn_directory_find(m->dir, name);
    if (t == NULL) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory", .tensor = name,
                        .what = "the model needs a tensor that is not in the file");
    }
    m->used[t - m->dir->tensors] = true;
    *ret_name = t->name;
    *ret_found = false;
    return m->n_parts > 0 ? csn_plan_from_skills(m, t, ret_found, ret, ret_name, err) : CAISSON_OK;
}

static caisson_status get_entry(struct csn_maker *m, csn_str name, csn_plan_get_fn get,
                                csn_matrix *ret, csn_str *ret_name, caisson_error *err) {
    bool found;
    CSN_TRY(find_entry(m, name, &found, ret, ret_name, err));
    return found ? CAISSON_OK : get(m->store, *ret_name, ret, err);
}

csn_weight csn_weight_make(const csn_matrix *m, csn_str name) {
    return (csn_weight){.m = *m,
                        .name = name,
                        .rows = m->rows,
                        .f32 = csn_kernel_matmul_f32(m),
                        .i8 = csn_kernel_matmul_i8(m),
                        .scale_x = csn_kernel_scale_x(m),
                        .i8_exact = csn_kernel_matmul_i8_exact(m),
                        .i8_rows = csn_kernel_matmul_i8_rows(m)};
}

/* What a product reads of a matrix: beside the first part of its payload what was unpacked, which
 * for dtypes without such a part is about as large as what it stands for. */
static uint64_t bytes_read(const csn_matrix *m) {
    return m->unpacked == NULL || m->dtype->bytes_of_32 == 0
               ? m->nbytes
               : m->rows * (m->cols / 32 * m->dtype->bytes_of_32) + m->dtype->unpacked_nbytes(m);
}

caisson_status csn_plan_weight(struct csn_maker *m, csn_str name, uint64_t rows, uint64_t cols,
                               csn_weight *ret, caisson_error *err) {
    csn_matrix mat;
    csn_str entry;
    CSN_TRY(get_entry(m, name, csn_store_weight, &mat, &entry, err));
    if (mat.cols != cols) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                        .what = "columns differ from what the model's description needs",
                        CSN_VALUES(cols, mat.cols));
    }
    if (rows != 0 ? mat.rows != rows : mat.rows == 0 || mat.rows > INT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                        .what = "rows differ from what the model's description needs",
                        CSN_VALUES(rows, mat.rows));
    }
    *ret = csn_weight_make(&mat, entry);
    m->plan->bytes_per_token += bytes_read(&mat);
    return CAISSON_OK;
}

caisson_status csn_plan_vector(struct csn_maker *m, csn_str name, uint64_t n, float add,
                               const float **ret, caisson_error *err) {
    csn_matrix mat;
    csn_str entry;
    CSN_TRY(get_entry(m, name, csn_store_matrix, &mat, &entry, err));
    uint64_t have;
    if (!csn_mul(mat.rows, mat.cols, &have) || have != n) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                        .what = "elements differ from what the model's description needs",
                        CSN_VALUES(n, mat.rows * mat.cols));
    }
    float *v;
    CSN_TRY(CSN_ARENA_NEW(m->arena, (size_t)n, &v, err));
    if (!csn_store_is_dry(m->store)) {
        mat.dtype->decode(&mat, 0, n, v);
    }
    for (uint64_t i = 0; add != 0.0f && i < n; i++) {
        v[i] += add;
    }
    m->plan->bytes_per_token += mat.nbytes;
    *ret = v;
    return CAISSON_OK;
}

static caisson_status get_norm(struct csn_maker *m, csn_str name, uint64_t n, const float **ret,
                               caisson_error *err) {
    return csn_plan_vector(m, name, n, m->arch->norm_style == CSN_NORM_GEMMA ? 1.0f : 0.0f, ret,
                           err);
}

static caisson_status refuse(caisson_error *err, const char *key, const char *what) {
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "header", .tensor = csn_str_from(key),
                    .what = what);
}

static double situ_beta(const csn_arch *a) {
    return a->has_situ_beta ? a->activation_situ_beta : 1.0;
}

static csn_vec_act act_of(const csn_arch *a) {
    static const csn_vec_act_kind kinds[] = {[CSN_ACT_SILU] = CSN_VEC_SILU,
                                             [CSN_ACT_GELU_TANH] = CSN_VEC_GELU_TANH,
                                             [CSN_ACT_SITU] = CSN_VEC_SITU};
    return (csn_vec_act){.kind = kinds[a->hidden_act],
                         .beta = (float)situ_beta(a),
                         .linear_beta =
                             a->has_situ_linear_beta ? (float)a->activation_situ_linear_beta : 0};
}

/* What does not go together with latent attention and with attention residuals. */
static caisson_status check_latent(const csn_arch *a, caisson_error *err) {
    if (a->mla.present && (a->sliding_window != 0 || a->longrope.present ||
                           a->attention_heads_per_layer != NULL || a->attn_v_norm)) {
        return refuse(err, "mla",
                      "latent attention runs without windows, longrope, norms of values and with "
                      "one number of heads");
    }
    if (a->attn_res_block_size != 0 &&
        (a->num_loops != 1 || (a->n_layers - 1) / a->attn_res_block_size >= CSN_MAX_RES_BLOCKS)) {
        return refuse(err, "caisson.attn_res_block_size",
                      "attention residuals run in one pass and few blocks");
    }
    return CAISSON_OK;
}

/* Features of arch that this engine does not execute. */
static caisson_status check_arch(const csn_arch *a, caisson_error *err) {
    for (uint32_t i = 0; i < a->n_layer_types && i < a->n_layers; i++) {
        if (a->layer_types[i] == CSN_LAYER_LINEAR_ATTENTION ||
            a->layer_types[i] == CSN_LAYER_SHORT_CONV) {
            return refuse(err, "layer_types", "this build runs layers of attention and KDA only");
        }
    }
    if (a->moe.present && a->moe.router_resonance) {
        return refuse(err, "moe.router_resonance", "this build routes by softmax or sigmoid only");
    }
    CSN_TRY(check_latent(a, err));
    if (a->has_g3n) {
        return refuse(err, "g3n", "this build does not run this stack");
    }
    if (a->head_clusters != 0) {
        return refuse(err, "head_clusters", "this build does not run clustered heads");
    }
    if (a->global_head_dim != 0 || a->n_global_kv_heads != 0 ||
        a->global_partial_rotary_factor != 0.0f) {
        return refuse(err, "global_head_dim",
                      "this build does not run global layers of another geometry");
    }
    if (a->hidden_act == CSN_ACT_SITU && !((float)situ_beta(a) > 0.0f)) {
        return refuse(err, "activation_situ_beta", "SiTU divides by it: it must be above 0");
    }
    return CAISSON_OK;
}

/* The biases that are there. q, k and v: all three or none (facts 15.1). */
static caisson_status add_bias(struct csn_maker *m, uint32_t i, const char *suffix, csn_weight *w,
                               caisson_error *err) {
    csn_str name = csn_plan_name(m, i, suffix);
    if (!csn_plan_has(m, name)) {
        return CAISSON_OK;
    }
    return csn_plan_vector(m, name, w->m.rows, 0.0f, &w->bias, err);
}

static caisson_status add_biases(struct csn_maker *m, uint32_t i, csn_layer *l,
                                 caisson_error *err) {
    CSN_TRY(add_bias(m, i, "self_attn.q_proj.bias", &l->q, err));
    CSN_TRY(add_bias(m, i, "self_attn.k_proj.bias", &l->k, err));
    CSN_TRY(add_bias(m, i, "self_attn.v_proj.bias", &l->v, err));
    CSN_TRY(add_bias(m, i, "self_attn.o_proj.bias", &l->o, err));
    if (l->moe == NULL) {
        CSN_TRY(add_bias(m, i, "mlp.gate_proj.bias", &l->gate, err));
        CSN_TRY(add_bias(m, i, "mlp.up_proj.bias", &l->up, err));
        CSN_TRY(add_bias(m, i, "mlp.down_proj.bias", &l->down, err));
    }
    bool all = l->q.bias != NULL && l->k.bias != NULL && l->v.bias != NULL;
    if (!all && (l->q.bias != NULL || l->k.bias != NULL || l->v.bias != NULL)) {
        const char *first = l->q.bias == NULL   ? "self_attn.q_proj.bias"
                            : l->k.bias == NULL ? "self_attn.k_proj.bias"
                                                : "self_attn.v_proj.bias";
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory",
                        .tensor = csn_plan_name(m, i, first),
                        .what = "a layer has biases for some of q, k and v, but not for this one");
    }
    return CAISSON_OK;
}

/* Without a sandwich, post_attention_layernorm is the norm before the FFN; with one
 * (pre_feedforward_layernorm is there) it applies to the attention's output. */
static caisson_status plan_norms(struct csn_maker *m, uint32_t i, csn_layer *l,
                                 caisson_error *err) {
    uint64_t hidden = m->plan->hidden;
    CSN_TRY(
        get_norm(m, csn_plan_name(m, i, "input_layernorm.weight"), hidden, &l->input_norm, err));
    if (!csn_plan_has(m, csn_plan_name(m, i, "pre_feedforward_layernorm.weight"))) {
        return get_norm(m, csn_plan_name(m, i, "post_attention_layernorm.weight"), hidden,
                        &l->pre_ffn_norm, err);
    }
    CSN_TRY(get_norm(m, csn_plan_name(m, i, "pre_feedforward_layernorm.weight"), hidden,
                     &l->pre_ffn_norm, err));
    CSN_TRY(get_norm(m, csn_plan_name(m, i, "post_attention_layernorm.weight"), hidden,
                     &l->post_attn_norm, err));
    return get_norm(m, csn_plan_name(m, i, "post_feedforward_layernorm.weight"), hidden,
                    &l->post_ffn_norm, err);
}

static caisson_status plan_full_attention(struct csn_maker *m, uint32_t i, csn_layer *l,
                                          caisson_error *err) {
    const csn_arch *a = m->arch;
    uint64_t hidden = m->plan->hidden;
    l->n_heads =
        a->attention_heads_per_layer != NULL ? a->attention_heads_per_layer[i] : a->n_heads;
    l->n_kv_heads = a->n_kv_heads;
    l->head_dim = a->head_dim;
    uint64_t q_rows = (uint64_t)l->n_heads * l->head_dim;
    uint64_t kv_rows = (uint64_t)l->n_kv_heads * l->head_dim;
    if (q_rows > INT32_MAX / 4 || l->n_heads % l->n_kv_heads != 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header",
                        .tensor = CSN_STR("attention_heads_per_layer"),
                        .what = "query heads are not a multiple of key heads",
                        CSN_VALUES(l->n_kv_heads, l->n_heads));
    }
    csn_str q_name = csn_plan_name(m, i, "self_attn.q_proj.weight");
    const csn_tensor *q = csn_directory_find(m->dir, q_name);
    if (q != NULL && q->shape.n_dims > 0 && q->shape.dim[0] == 2 * q_rows) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = q_name,
                        .what = "this build does not run attention with an output gate",
                        CSN_VALUES(q_rows, 2 * q_rows));
    }
    CSN_TRY(csn_plan_weight(m, q_name, q_rows, hidden, &l->q, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.k_proj.weight"), kv_rows, hidden,
                            &l->k, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.v_proj.weight"), kv_rows, hidden,
                            &l->v, err));
    CSN_TRY(csn_plan_weight(m, csn_plan_name(m, i, "self_attn.o_proj.weight"), hidden, q_rows,
                            &l->o, err));
    csn_str name = csn_plan_name(m, i, "self_attn.q_norm.weight");
    if (csn_plan_has(m, name)) {
        CSN_TRY(get_norm(m, name, l->head_dim, &l->q_norm, err));
    }
    name = csn_plan_name(m, i, "self_attn.k_norm.weight");
    if (csn_plan_has(m, name)) {
        CSN_TRY(get_norm(m, name, l->head_dim, &l->k_norm, err));
    }
    l->window = csn_arch_is_local(a, i) ? a->sliding_window : 0;
    l->first[0] = &l->q;
    l->first[1] = &l->k;
    l->first[2] = &l->v;
    csn_plan_widen(&m->plan->max_q, q_rows);
    csn_plan_widen(&m->plan->max_kv, kv_rows);
    return csn_rope_plan(a, i, m->arena, m->plan, &l->i_rope, err);
}

static caisson_status plan_attention(struct csn_maker *m, uint32_t i, csn_layer *l,
                                     caisson_error *err) {
    const csn_arch *a = m->arch;
    if (i < a->n_layer_types && a->layer_types[i] == CSN_LAYER_KDA) {
        return csn_kda_plan(m, i, l, err);
    }
    return a->mla.present ? csn_mla_plan(m, i, l, err) : plan_full_attention(m, i, l, err);
}

/* Norm weights times projection: the score of a vector is their product with v / rms(v). */
static caisson_status get_res(struct csn_maker *m, csn_str norm, csn_str proj, const float **ret,
                              caisson_error *err) {
    uint64_t n = m->plan->hidden;
    const float *a;
    const float *b;
    float *w;
    CSN_TRY(csn_plan_vector(m, norm, n, 0.0f, &a, err));
    CSN_TRY(csn_plan_vector(m, proj, n, 0.0f, &b, err));
    CSN_TRY(CSN_ARENA_NEW(m->arena, (size_t)n, &w, err));
    for (uint64_t i = 0; i < n; i++) {
        w[i] = a[i] * b[i];
    }
    *ret = w;
    return CAISSON_OK;
}

static caisson_status get_layer_res(struct csn_maker *m, uint32_t i, const char *prefix,
                                    const float **ret, caisson_error *err) {
    char norm[160];
    char proj[160];
    (void)snprintf(norm, sizeof(norm), "model.layers.%u.%s_norm.weight", i, prefix);
    (void)snprintf(proj, sizeof(proj), "model.layers.%u.%s_proj.weight", i, prefix);
    return get_res(m, csn_str_from(norm), csn_str_from(proj), ret, err);
}

static caisson_status plan_res(struct csn_maker *m, uint32_t i, csn_layer *l, caisson_error *err) {
    if (m->plan->res_block == 0) {
        return CAISSON_OK;
    }
    CSN_TRY(get_layer_res(m, i, "self_attention_res", &l->attn_res, err));
    return get_layer_res(m, i, "mlp_res", &l->ffn_res, err);
}

static caisson_status plan_ffn(struct csn_maker *m, uint32_t i, csn_layer *l, caisson_error *err) {
    if (csn_plan_has(m, csn_plan_name(m, i, "mlp.gate.weight"))) {
        return csn_moe_plan(m, i, l, err);
    }
    csn_expert ffn;
    CSN_TRY(csn_plan_expert(m, i, "mlp.", m->plan->hidden, &ffn, err));
    l->gate = ffn.gate;
    l->up = ffn.up;
    l->down = ffn.down;
    l->ffn = (uint32_t)ffn.gate.m.rows;
    return CAISSON_OK;
}

static caisson_status plan_embed(struct csn_maker *m, csn_str name, caisson_error *err) {
    csn_rows *embed = &m->plan->embed;
    csn_str entry;
    csn_matrix skills;
    bool found;
    CSN_TRY(find_entry(m, name, &found, &skills, &entry, err));
    if (found) {
        *embed = csn_rows_in_memory(&skills);
    } else {
        CSN_TRY(csn_store_rows(m->store, entry, embed, err));
    }
    if (embed->m.cols != m->plan->hidden || embed->m.rows == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                        .what = "columns differ from hidden_size",
                        CSN_VALUES(m->plan->hidden, embed->m.cols));
    }
    m->plan->bytes_per_token += embed->m.nbytes / embed->m.rows;
    return CAISSON_OK;
}

static caisson_status plan_ends(struct csn_maker *m, caisson_error *err) {
    const csn_arch *a = m->arch;
    csn_plan *p = m->plan;
    csn_str embed = CSN_STR("model.embed_tokens.weight");
    csn_str head = CSN_STR("lm_head.weight");
    CSN_TRY(plan_embed(m, embed, err));
    CSN_TRY(get_norm(m, CSN_STR("model.norm.weight"), p->hidden, &p->final_norm, err));
    if (!csn_plan_has(m, head) && a->tie_word_embeddings) {
        p->head_is_tied = true;
        head = embed;
    }
    CSN_TRY(csn_plan_weight(m, head, 0, p->hidden, &p->head, err));
    if (p->res_block != 0) {
        CSN_TRY(get_res(m, CSN_STR("model.output_attn_res_norm.weight"),
                        CSN_STR("model.output_attn_res_proj.weight"), &p->output_res, err));
    }
    if (p->head.rows > p->vocab) {
        p->head.rows = p->vocab;
    }
    csn_str bias = CSN_STR("lm_head.bias");
    return csn_plan_has(m, bias)
               ? csn_plan_vector(m, bias, p->head.m.rows, 0.0f, &p->head.bias, err)
               : CAISSON_OK;
}

/* Tensors that no block of the plan reads would change the result if they were run: refuse them.
 * What lies outside the backbone and the skills in use (other skills, multi-token prediction,
 * vision) or repeats what is there (transposed copies, frequency buffers) is left alone. */
static caisson_status check_unused(const struct csn_maker *m, caisson_error *err) {
    for (uint32_t i = 0; i < m->dir->n; i++) {
        csn_str name = m->dir->tensors[i].name;
        bool is_skill = csn_plan_is_of_skill(m, name);
        bool backbone = (csn_str_starts(name, CSN_STR("model.")) &&
                         !csn_str_starts(name, CSN_STR("model.mtp."))) ||
                        csn_str_starts(name, CSN_STR("lm_head."));
        if (m->used[i] || !(backbone || is_skill) ||
            csn_str_ends(name, CSN_STR(".down_proj.t.weight")) ||
            csn_str_ends(name, CSN_STR("rotary_emb.inv_freq"))) {
            continue;
        }
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = name,
                        .what = is_skill ? "the skill replaces a tensor that the model does not run"
                                         : "this build does not run the block that this tensor "
                                           "belongs to");
    }
    return CAISSON_OK;
}

static caisson_status plan_layer(struct csn_maker *m, uint32_t i, caisson_error *err) {
    csn_plan *plan = m->plan;
    csn_layer *l = &plan->layers[i];
    CSN_TRY(plan_norms(m, i, l, err));
    CSN_TRY(plan_attention(m, i, l, err));
    CSN_TRY(plan_ffn(m, i, l, err));
    CSN_TRY(add_biases(m, i, l, err));
    CSN_TRY(plan_res(m, i, l, err));
    csn_plan_widen(&plan->max_ffn, l->ffn);
    csn_plan_widen(&plan->max_gate, l->ffn);
    if (l->moe != NULL) {
        csn_plan_widen(&plan->max_experts, l->moe->n_experts);
        csn_plan_widen(&plan->max_top_k, l->moe->top_k);
        csn_plan_widen(&plan->max_latent, l->moe->latent != NULL ? l->moe->dim : 0);
    }
    return CAISSON_OK;
}

caisson_status csn_plan_make(csn_store *store, const csn_plan_part *parts, uint32_t n_parts,
                             csn_arena *arena, csn_plan *ret, caisson_error *err) {
    const csn_directory *dir = csn_store_dir(store);
    if (csn_cmf_is_skill_file(csn_store_cmf(store))) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "envelope",
                        .what = "the file is a skill by itself, not a model: it needs its base");
    }
    const csn_arch *a = csn_store_arch(store);
    csn_plan plan = {.hidden = a->hidden_size,
                     .vocab = a->vocab_size,
                     .n_layers = a->n_layers,
                     .n_loops = a->num_loops,
                     .loop_norm = a->loop_final_norm,
                     .norm_eps = (float)a->rms_norm_eps,
                     .attn_softcap = (float)a->attn_logit_softcapping,
                     .final_softcap = (float)a->final_logit_softcapping,
                     .embed_multiplier = a->embed_multiplier,
                     .logit_multiplier = a->logit_multiplier,
                     .v_norm = a->attn_v_norm,
                     .res_block = a->attn_res_block_size,
                     .trunk = csn_store_trunk(store),
                     .act = act_of(a)};
    CSN_TRY(check_arch(a, err));
    double per_head = a->query_pre_attn_scalar > 0 ? a->query_pre_attn_scalar : a->head_dim;
    plan.attn_scale = (float)(1.0 / sqrt(per_head));
    plan.rope_original = a->longrope.present ? a->longrope.original_max_position_embeddings : 0;

    struct csn_maker m = {.store = store,
                          .parts = parts,
                          .n_parts = n_parts,
                          .arch = a,
                          .dir = dir,
                          .arena = arena,
                          .plan = &plan};
    CSN_TRY(CSN_ARENA_NEW(arena, dir->n, &m.used, err));
    CSN_TRY(plan_ends(&m, err));
    /* every layer needs tensors, so a number of layers that the file cannot hold ends here */
    if (a->n_layers > dir->n) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory",
                        .tensor = csn_plan_name(&m, a->n_layers - 1, "input_layernorm.weight"),
                        .what = "more layers than tensors", CSN_VALUES(a->n_layers, dir->n));
    }
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers, &plan.layers, err));
    uint64_t outside = plan.bytes_per_token;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        CSN_TRY(plan_layer(&m, i, err));
    }
    plan.bytes_per_token += (plan.bytes_per_token - outside) * (a->num_loops - 1);
    CSN_TRY(check_unused(&m, err));
    *ret = plan;
    return CAISSON_OK;
}
