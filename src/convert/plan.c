/* SPDX-License-Identifier: Apache-2.0 */
/* From a family's tables and the source's directory to a list of tensors. */
#include "convert/plan.h"

#include "base/size.h"

typedef struct planner {
    const csn_source *s;
    csn_arena *arena;
    csn_convert_plan *plan;
    bool *used;         /* [s->dir->n] */
    const char *prefix; /* Hugging Face: what stands in front of our names */
    bool skips_model;   /* ... in place of our "model." */
    bool has_full_gate; /* the layer at hand has Kimi Delta Attention's gate in one matrix */
    int router_biases, output_gates; /* layers have them or not: 1, 0; -1: none was met */
    caisson_error *err;
} planner;

uint64_t csn_convert_dim(const csn_arch *a, csn_dim d) {
    switch (d) {
    case CSN_DIM_VOCAB: return a->vocab_size;
    case CSN_DIM_HIDDEN: return a->hidden_size;
    case CSN_DIM_Q: return (uint64_t)a->n_heads * a->head_dim;
    case CSN_DIM_KV: return (uint64_t)a->n_kv_heads * a->head_dim;
    case CSN_DIM_FFN: return a->intermediate_size;
    case CSN_DIM_HEAD: return a->head_dim;
    case CSN_DIM_ONE: return 1;
    case CSN_DIM_EXPERTS: return a->moe.n_experts;
    case CSN_DIM_EXPERT_FFN: return a->moe.moe_intermediate_size;
    case CSN_DIM_SHARED_FFN: return a->moe.shared_expert_intermediate_size;
    case CSN_DIM_LATENT:
        return a->moe.routed_expert_hidden_size != 0 ? a->moe.routed_expert_hidden_size
                                                     : a->hidden_size;
    case CSN_DIM_Q_LORA: return a->mla.q_lora_rank;
    case CSN_DIM_MLA_Q:
        return (uint64_t)a->n_heads * (a->mla.qk_nope_head_dim + a->mla.qk_rope_head_dim);
    case CSN_DIM_MLA_V: return (uint64_t)a->n_heads * a->mla.v_head_dim;
    case CSN_DIM_KV_LORA: return a->mla.kv_lora_rank;
    case CSN_DIM_KV_A: return (uint64_t)a->mla.kv_lora_rank + a->mla.qk_rope_head_dim;
    case CSN_DIM_KV_B: return (uint64_t)a->n_heads * (a->mla.qk_nope_head_dim + a->mla.v_head_dim);
    case CSN_DIM_KDA: return (uint64_t)a->linear_n_value_heads * a->linear_value_head_dim;
    case CSN_DIM_KDA_HEAD: return a->linear_value_head_dim;
    case CSN_DIM_KDA_HEADS: return a->linear_n_value_heads;
    case CSN_DIM_KDA_CONV: return a->linear_conv_kernel_dim;
    case CSN_DIM_NONE: break;
    }
    return 0;
}

/* Which instance of a row. */
typedef struct place {
    uint32_t layer, expert;
} place;

caisson_status csn_convert_row_name(const char *pattern, uint32_t layer, uint32_t expert,
                                    csn_buf *ret, caisson_error *err) {
    const uint32_t numbers[] = {layer, expert};
    ret->len = 0;
    for (int i = 0; i < 2; i++) {
        const char *hole = strstr(pattern, "{}");
        if (hole == NULL) {
            break;
        }
        CSN_TRY(csn_buf_printf(ret, err, "%.*s%u", (int)(hole - pattern), pattern, numbers[i]));
        pattern = hole + 2;
    }
    return csn_buf_str(ret, csn_str_from(pattern), err);
}

/* The name of a row at one place, in the arena. */
static caisson_status name_for(planner *p, const char *pattern, place at, csn_str *ret) {
    csn_buf b = CSN_BUF_INIT(1024);
    caisson_status status = csn_convert_row_name(pattern, at.layer, at.expert, &b, p->err);
    if (status == CAISSON_OK) {
        status = csn_arena_str(p->arena, csn_buf_view(&b), ret, p->err);
    }
    csn_buf_free(&b);
    return status;
}

/* Our spelling -> that of this checkpoint. */
static caisson_status hf_name(planner *p, csn_str name, csn_str *ret) {
    csn_buf b = CSN_BUF_INIT(1024);
    csn_str rest = name, model = CSN_STR("model.");
    if (p->skips_model && csn_str_starts(name, model)) {
        rest = csn_str_make(name.ptr + model.len, name.len - model.len);
    } else if (p->prefix[0] != '\0' && !csn_str_starts(name, model)) {
        *ret = name; /* lm_head: its own rules, see find_source */
        return CAISSON_OK;
    }
    caisson_status status = csn_buf_printf(&b, p->err, "%s%.*s", p->prefix, CSN_STR_ARGS(rest));
    if (status == CAISSON_OK) {
        status = csn_arena_str(p->arena, csn_buf_view(&b), ret, p->err);
    }
    csn_buf_free(&b);
    return status;
}

/* Finds out how this checkpoint spells "model.": plain, inside a larger model, or not at all. */
static void find_prefix(planner *p) {
    static const struct {
        const char *embed, *prefix;
        bool skips_model;
    } forms[] = {
        {"model.embed_tokens.weight", "", false},
        {"language_model.model.embed_tokens.weight", "language_model.", false},
        {"model.language_model.embed_tokens.weight", "model.language_model.", true},
        {"embed_tokens.weight", "", true},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (csn_directory_find(p->s->dir, csn_str_from(forms[i].embed)) != NULL) {
            p->prefix = forms[i].prefix;
            p->skips_model = forms[i].skips_model;
            return;
        }
    }
}

/* A matrix of a dense layer under the family's other name for it. */
static caisson_status find_ffn(planner *p, const csn_name_row *row, place at, csn_str *ret_name,
                               const csn_tensor **ret) {
    static const char mlp[] = ".mlp.";
    const char *hole = strstr(row->name, mlp);
    csn_buf b = CSN_BUF_INIT(1024);
    csn_str name = {0};
    caisson_status status = csn_buf_printf(&b, p->err, "%.*s.%s.%s", (int)(hole - row->name),
                                           row->name, p->s->family->ffn_alias, hole + strlen(mlp));
    if (status == CAISSON_OK) {
        status = name_for(p, b.ptr, at, &name);
    }
    csn_buf_free(&b);
    CSN_TRY(status);
    CSN_TRY(hf_name(p, name, &name));
    *ret = csn_directory_find(p->s->dir, name);
    *ret_name = *ret != NULL ? name : *ret_name;
    return CAISSON_OK;
}

static caisson_status find_source(planner *p, const csn_name_row *row, place at, csn_str *ret_name,
                                  const csn_tensor **ret) {
    if (p->s->gguf != NULL) {
        *ret = NULL;
        if (row->gguf == NULL) {
            return CAISSON_OK;
        }
        CSN_TRY(name_for(p, row->gguf, at, ret_name));
        *ret = csn_directory_find(p->s->dir, *ret_name);
        return CAISSON_OK;
    }
    CSN_TRY(name_for(p, row->hf != NULL ? row->hf : row->name, at, ret_name));
    csn_str ours = *ret_name;
    CSN_TRY(hf_name(p, ours, ret_name));
    *ret = csn_directory_find(p->s->dir, *ret_name);
    if (*ret == NULL && (row->flags & CSN_ROW_FFN) != 0 && p->s->family->ffn_alias != NULL) {
        CSN_TRY(find_ffn(p, row, at, ret_name, ret));
    }
    if (*ret == NULL && csn_str_is(ours, "lm_head.weight")) {
        *ret = csn_directory_find(p->s->dir, CSN_STR("language_model.lm_head.weight"));
    }
    return CAISSON_OK;
}

/* A small tensor of which only the number of elements is known. */
static caisson_status check_count(planner *p, const csn_name_row *row, const csn_tensor *t,
                                  csn_convert_item *item) {
    const csn_arch *a = &p->s->arch;
    uint64_t cols = row->cols == CSN_DIM_NONE ? 1 : csn_convert_dim(a, row->cols);
    uint64_t need = csn_convert_dim(a, row->rows) * cols;
    uint64_t n = 0;
    (void)csn_shape_count(&t->shape, &n);
    bool is_matrix = row->cols != CSN_DIM_NONE;
    if (n < need || n > INT32_MAX || (is_matrix && p->s->gguf != NULL && n != need)) {
        return CSN_FAIL(p->err, CAISSON_E_PARSE, .section = "directory", .tensor = t->name,
                        .what = "not as many elements as the model's configuration needs",
                        CSN_VALUES(need, n));
    }
    item->is_flat = true;
    item->shape = !is_matrix           ? (csn_shape){.n_dims = 1, .dim = {n}}
                  : p->s->gguf != NULL ? (csn_shape){.n_dims = 3, .dim = {n / cols, 1, cols}}
                                       : t->shape;
    return CAISSON_OK;
}

static caisson_status fail_shape(planner *p, const csn_tensor *t, const csn_shape *want) {
    char need[96], have[96];
    return CSN_FAIL(p->err, CAISSON_E_PARSE, .section = "directory", .tensor = t->name,
                    .what = "shape contradicts the model's configuration",
                    CSN_TEXTS(csn_str_from(csn_shape_text(want, need, sizeof(need))),
                              csn_str_from(csn_shape_text(&t->shape, have, sizeof(have)))));
}

static caisson_status need_source_decoder(planner *p, const csn_tensor *t) {
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(p->err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = t->name,
                        .what = "dtype cannot be decoded", .got = csn_str_from(t->dtype->name));
    }
    return CAISSON_OK;
}

/* Shapes in ggml end in dimensions of 1, which a file may give or not. */
static bool is_same_in_ggml(const csn_shape *a, const csn_shape *b) {
    uint32_t n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims;
    for (uint32_t i = 1; i <= n; i++) {
        uint64_t x = i <= a->n_dims ? a->dim[a->n_dims - i] : 1;
        uint64_t y = i <= b->n_dims ? b->dim[b->n_dims - i] : 1;
        if (x != y) {
            return false;
        }
    }
    return true;
}

static caisson_status check_shape(planner *p, const csn_name_row *row, place at,
                                  const csn_tensor *t, csn_convert_item *item) {
    const csn_arch *a = &p->s->arch;
    if ((row->flags & CSN_ROW_ANY_SHAPE) != 0) {
        return check_count(p, row, t, item);
    }
    csn_shape want = {.n_dims = row->cols == CSN_DIM_NONE ? 1 : 2,
                      .dim = {csn_convert_dim(a, row->rows), csn_convert_dim(a, row->cols)}};
    item->shape = want;
    if (row->of_rows[0] != CSN_DIM_NONE) {
        want.dim[0] = 0;
        for (int i = 0; i < 3; i++) {
            want.dim[0] += csn_convert_dim(a, row->of_rows[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        item->row0 += csn_convert_dim(a, row->before[i]);
    }
    if ((row->flags & CSN_ROW_EXPERT) != 0 && p->s->gguf != NULL) { /* all experts in one */
        item->row0 += at.expert * want.dim[0];
        want = (csn_shape){.n_dims = 3, .dim = {a->moe.n_experts, want.dim[0], want.dim[1]}};
    }
    if (csn_shape_eq(&t->shape, &want)) {
        return CAISSON_OK;
    }
    if (p->s->gguf != NULL && is_same_in_ggml(&t->shape, &want)) {
        csn_tensor *same;
        CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &same, p->err));
        *same = *t;
        same->shape = want;
        item->source = same;
        return CAISSON_OK;
    }
    return fail_shape(p, t, &want);
}

static bool is_f8(const csn_dtype *d) {
    return d->safetensors != NULL && strncmp(d->safetensors, "F8_", 3) == 0;
}

static caisson_status find_scale(planner *p, csn_convert_item *item) {
    csn_buf b = CSN_BUF_INIT(1024);
    csn_str name = item->source->name;
    CSN_TRY(csn_buf_printf(&b, p->err, "%.*s_scale_inv", CSN_STR_ARGS(name)));
    item->scale = csn_directory_find(p->s->dir, csn_buf_view(&b));
    caisson_status status = CAISSON_OK;
    if (item->scale == NULL && p->s->has_f8_blocks && is_f8(item->source->dtype)) {
        status =
            CSN_FAIL(p->err, CAISSON_E_MISSING, .section = "directory", .tensor = csn_buf_view(&b),
                     .what = "scales of a matrix of an fp8 checkpoint are not in the source");
    }
    csn_buf_free(&b);
    if (item->scale == NULL) {
        return status;
    }
    p->used[item->scale - p->s->dir->tensors] = true;
    const csn_shape *w = &item->source->shape, *sc = &item->scale->shape;
    if (!p->s->has_f8_blocks || !is_f8(item->source->dtype) || w->n_dims != 2 || sc->n_dims != 2 ||
        !item->scale->dtype->is_float || sc->dim[0] != (w->dim[0] + 127) / 128 ||
        sc->dim[1] != (w->dim[1] + 127) / 128) {
        return CSN_FAIL(p->err, CAISSON_E_UNSUPPORTED, .section = "directory",
                        .tensor = item->scale->name,
                        .what = "scales are not one a block of 128 x 128 of an fp8 checkpoint");
    }
    return CAISSON_OK;
}

/* kv_b_proj as llama.cpp keeps it today: the keys' rows of each head turned, and the values'. */
static caisson_status find_split_kv_b(planner *p, place at, csn_convert_item *item,
                                      const csn_tensor **ret) {
    static const char *const patterns[] = {"blk.{}.attn_k_b.weight", "blk.{}.attn_v_b.weight"};
    const csn_arch *a = &p->s->arch;
    const csn_shape want[] = {{3, {a->n_heads, a->mla.kv_lora_rank, a->mla.qk_nope_head_dim}},
                              {3, {a->n_heads, a->mla.v_head_dim, a->mla.kv_lora_rank}}};
    const csn_tensor *t[2];
    for (int i = 0; i < 2; i++) {
        csn_str name;
        CSN_TRY(name_for(p, patterns[i], at, &name));
        t[i] = csn_directory_find(p->s->dir, name);
        if (t[i] == NULL) {
            return CAISSON_OK;
        }
        if (!csn_shape_eq(&t[i]->shape, &want[i])) {
            return fail_shape(p, t[i], &want[i]);
        }
        CSN_TRY(need_source_decoder(p, t[i]));
        p->used[t[i] - p->s->dir->tensors] = true;
    }
    item->values = t[1];
    *ret = t[0];
    return CAISSON_OK;
}

/* True if the configuration says whether there is the bias of this row: *ret. */
static bool tells_bias(const planner *p, const csn_name_row *row, bool *ret) {
    csn_str name = csn_str_from(row->name);
    bool of_mlp = strstr(row->name, ".mlp.") != NULL;
    csn_biases which = of_mlp ? p->s->mlp_bias : p->s->attention_bias;
    if (which == CSN_BIASES_AS_FOUND || !csn_str_ends(name, CSN_STR("_proj.bias"))) {
        return false;
    }
    *ret = which == CSN_BIASES_ALL ||
           (which == CSN_BIASES_QKV && !csn_str_ends(name, CSN_STR("o_proj.bias")));
    return true;
}

/* True if the configuration says whether there is the tensor of an optional row, or, where it does
 * not, an earlier layer: *ret. Without it another model would run, or none. */
static bool tells(planner *p, const csn_name_row *row, bool is_there, bool *ret) {
    const csn_arch *a = &p->s->arch;
    csn_str name = csn_str_from(row->name);
    bool has_hidden_rows = row->rows == CSN_DIM_HIDDEN;
    csn_dim other = has_hidden_rows ? row->cols : row->rows;
    int *layers = csn_str_ends(name, CSN_STR("mlp.expert_bias"))           ? &p->router_biases
                  : csn_str_ends(name, CSN_STR("self_attn.g_proj.weight")) ? &p->output_gates
                                                                           : NULL;
    if ((row->flags & CSN_ROW_OPTIONAL) == 0 || tells_bias(p, row, ret)) {
        return (row->flags & CSN_ROW_OPTIONAL) != 0;
    }
    if (layers != NULL) {
        *layers = *layers < 0 ? is_there : *layers;
        *ret = *layers != 0;
    } else if (csn_str_ends(name, CSN_STR("kda_attn.g_proj.weight"))) {
        p->has_full_gate = is_there;
        return false;
    } else if (csn_str_ends(name, CSN_STR("kda_attn.g_a_proj.weight")) ||
               csn_str_ends(name, CSN_STR("kda_attn.g_b_proj.weight"))) {
        *ret = !p->has_full_gate;
    } else if (row->cols == CSN_DIM_Q_LORA || other == CSN_DIM_Q_LORA) {
        *ret = a->mla.q_lora_rank != 0;
    } else if (other == CSN_DIM_MLA_Q) {
        *ret = a->mla.q_lora_rank == 0;
    } else if (other == CSN_DIM_SHARED_FFN) {
        *ret = a->moe.has_shared;
    } else if (other == CSN_DIM_LATENT) {
        *ret = row->cols == CSN_DIM_NONE ? a->moe.has_latent_norm
                                         : a->moe.routed_expert_hidden_size != 0;
    } else if (csn_str_ends(name, CSN_STR("_res_norm.weight")) ||
               csn_str_ends(name, CSN_STR("_res_proj.weight"))) {
        *ret = a->attn_res_block_size != 0;
    } else {
        return false;
    }
    return true;
}

static caisson_status add(planner *p, const csn_name_row *row, place at) {
    csn_convert_item *item = &p->plan->items[p->plan->n];
    csn_str source_name = {0};
    const csn_tensor *t;
    *item = (csn_convert_item){0};
    CSN_TRY(name_for(p, row->name, at, &item->name));
    CSN_TRY(find_source(p, row, at, &source_name, &t));
    if (t == NULL && (row->flags & CSN_ROW_KV_B) != 0 && p->s->gguf != NULL) {
        CSN_TRY(find_split_kv_b(p, at, item, &t));
    }
    bool is_head = csn_str_is(item->name, "lm_head.weight");
    bool is_needed = (row->flags & CSN_ROW_OPTIONAL) == 0;
    if (is_head) {
        is_needed = !p->s->arch.tie_word_embeddings;
    } else if (tells(p, row, t != NULL, &is_needed) && !is_needed && t != NULL && t->nbytes != 0) {
        return CSN_FAIL(p->err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = t->name,
                        .what = "a tensor that the model does not have by its configuration or its "
                                "other layers");
    }
    if (t == NULL) {
        if (!is_needed) {
            return CAISSON_OK;
        }
        return CSN_FAIL(p->err, CAISSON_E_MISSING, .section = "directory", .tensor = source_name,
                        .what = "tensor that the model needs is not in the source");
    }
    p->used[t - p->s->dir->tensors] = true;
    if (is_head && p->s->arch.tie_word_embeddings) {
        return CAISSON_OK; /* the configuration ties it: the embedding is the head */
    }
    CSN_TRY(need_source_decoder(p, t));
    item->source = t;
    if (item->values != NULL) {
        item->shape = (csn_shape){
            2, {csn_convert_dim(&p->s->arch, row->rows), csn_convert_dim(&p->s->arch, row->cols)}};
    } else {
        CSN_TRY(check_shape(p, row, at, t, item));
    }
    if (t->nbytes ==
        0) { /* of no shared experts, say: two matrices of no rows, one of no columns */
        return is_needed ? CSN_FAIL(p->err, CAISSON_E_UNSUPPORTED, .section = "directory",
                                    .tensor = t->name, .what = "tensor without elements")
                         : CAISSON_OK;
    }
    if (p->s->gguf != NULL) {
        bool turns = (row->flags & CSN_ROW_ROTARY) != 0 && p->s->family->gguf_permutes_rows;
        item->permute = turns ? p->s->arch.head_dim : 0;
        item->is_log = (row->flags & CSN_ROW_LOG) != 0;
        item->add = (row->flags & CSN_ROW_NORM) != 0 && p->s->family->gguf_adds_one ? -1.0f : 0.0f;
    } else {
        CSN_TRY(find_scale(p, item));
    }
    p->plan->n++;
    return CAISSON_OK;
}

/* True for a tensor of layer n_layers or a later one, as this source spells it. */
static bool is_behind_last_layer(const planner *p, csn_str name) {
    csn_str layers = p->s->gguf != NULL ? CSN_STR("blk.") : CSN_STR("layers.");
    size_t skip =
        p->s->gguf != NULL ? 0 : strlen(p->prefix) + (p->skips_model ? 0 : strlen("model."));
    if (name.len < skip) {
        return false;
    }
    csn_str rest = csn_str_make(name.ptr + skip, name.len - skip);
    if (!csn_str_starts(rest, layers)) {
        return false;
    }
    uint64_t i = 0;
    size_t k = layers.len;
    for (; k < rest.len && rest.ptr[k] >= '0' && rest.ptr[k] <= '9' && i < UINT32_MAX; k++) {
        i = i * 10 + (uint64_t)(rest.ptr[k] - '0');
    }
    return k > layers.len && k < rest.len && rest.ptr[k] == '.' && i >= p->s->arch.n_layers;
}

/* Tensors that carry no weights of the language model. */
static bool may_drop(const planner *p, csn_str name) {
    static const char *const gguf[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                       "rope_factors_short.weight", NULL};
    for (size_t i = 0; p->s->gguf != NULL && gguf[i] != NULL; i++) {
        if (csn_str_is(name, gguf[i])) {
            return true; /* read with the metadata */
        }
    }
    for (size_t i = 0; p->s->family->drops != NULL && p->s->family->drops[i] != NULL; i++) {
        if (csn_str_starts(name, csn_str_from(p->s->family->drops[i]))) {
            return true;
        }
    }
    if (p->s->family->drops_next_layers && is_behind_last_layer(p, name)) {
        return true;
    }
    return csn_str_ends(name, CSN_STR("rotary_emb.inv_freq")); /* follows from rope_theta */
}

static caisson_status check_leftover(const planner *p) {
    for (uint32_t i = 0; i < p->s->dir->n; i++) {
        const csn_tensor *t = &p->s->dir->tensors[i];
        if (!p->used[i] && !may_drop(p, t->name)) {
            return CSN_FAIL(p->err, CAISSON_E_UNSUPPORTED, .section = "directory",
                            .tensor = t->name,
                            .what = "the recipe of this family does not know the tensor",
                            .got = p->s->arch.arch_name);
        }
    }
    return CAISSON_OK;
}

static bool is_layer_row(const csn_name_row *row) {
    return strstr(row->name, "{}") != NULL;
}

/* A layer is a mixture of experts when the source has a router for it. */
static caisson_status has_router(planner *p, uint32_t layer, bool *ret) {
    const csn_name_table *const *tables = p->s->family->tables;
    *ret = false;
    for (size_t i = 0; tables[i] != NULL; i++) {
        for (size_t k = 0; k < tables[i]->n; k++) {
            if ((tables[i]->rows[k].flags & CSN_ROW_ROUTER) != 0) {
                csn_str ignored;
                const csn_tensor *t;
                CSN_TRY(find_source(p, &tables[i]->rows[k], (place){layer, 0}, &ignored, &t));
                *ret = *ret || t != NULL;
            }
        }
    }
    return CAISSON_OK;
}

bool csn_convert_row_is_there(const csn_name_row *row, bool is_mixture, bool is_kda) {
    unsigned of_mixture = CSN_ROW_MIXTURE | CSN_ROW_EXPERT;
    unsigned others = (is_mixture ? (unsigned)CSN_ROW_FFN : of_mixture) |
                      (is_kda ? (unsigned)CSN_ROW_MLA : (unsigned)CSN_ROW_KDA);
    return (row->flags & others) == 0;
}

static caisson_status add_layer(planner *p, uint32_t layer) {
    const csn_name_table *const *tables = p->s->family->tables;
    bool is_mixture;
    const csn_arch *a = &p->s->arch;
    bool is_kda = layer < a->n_layer_types && a->layer_types[layer] == CSN_LAYER_KDA;
    CSN_TRY(has_router(p, layer, &is_mixture));
    for (size_t i = 0; tables[i] != NULL; i++) {
        for (size_t k = 0; k < tables[i]->n; k++) {
            const csn_name_row *row = &tables[i]->rows[k];
            if (!is_layer_row(row) || !csn_convert_row_is_there(row, is_mixture, is_kda)) {
                continue;
            }
            uint32_t n = (row->flags & CSN_ROW_EXPERT) != 0 ? p->s->arch.moe.n_experts : 1;
            for (uint32_t e = 0; e < n; e++) {
                CSN_TRY(add(p, row, (place){layer, e}));
            }
        }
    }
    return CAISSON_OK;
}

/* Each item needs a tensor of the source: fused ones give three at most, stacked ones as many as
 * their first dim. */
static uint64_t most_items(const csn_source *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->dir->n; i++) {
        const csn_shape *shape = &s->dir->tensors[i].shape;
        n += 3 + (shape->n_dims == 3 ? shape->dim[0] : 0);
    }
    return n;
}

caisson_status csn_convert_plan_make(const csn_source *s, const csn_log *log, csn_arena *arena,
                                     csn_convert_plan *ret, caisson_error *err) {
    csn_convert_plan plan = {0};
    if (s->cmf != NULL || s->warp != NULL) {
        return csn_convert_plan_cmf(s, arena, ret, err);
    }
    planner p = {
        .s = s, .arena = arena, .plan = &plan, .prefix = "", .router_biases = -1, .err = err};
    p.output_gates = s->output_gate == CSN_BIASES_AS_FOUND ? -1 : s->output_gate == CSN_BIASES_ALL;
    const csn_name_table *const *tables = s->family->tables;
    (void)log;
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)most_items(s) + 1, &plan.items, err));
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)s->dir->n + 1, &p.used, err));
    if (s->gguf == NULL) {
        find_prefix(&p);
    }
    for (size_t i = 0; tables[i] != NULL; i++) {
        for (size_t k = 0; k < tables[i]->n; k++) {
            if (!is_layer_row(&tables[i]->rows[k])) {
                CSN_TRY(add(&p, &tables[i]->rows[k], (place){0, 0}));
            }
        }
    }
    for (uint32_t layer = 0; layer < s->arch.n_layers; layer++) {
        CSN_TRY(add_layer(&p, layer));
    }
    CSN_TRY(check_leftover(&p));
    *ret = plan;
    return CAISSON_OK;
}

/* ---- dtypes (facts 3.4) ---- */

bool csn_glob(csn_str pattern, csn_str name) {
    size_t i = 0, k = 0, star = SIZE_MAX, mark = 0;
    while (k < name.len) {
        if (i < pattern.len && pattern.ptr[i] == '*') {
            star = i++;
            mark = k;
        } else if (i < pattern.len && (pattern.ptr[i] == '?' || pattern.ptr[i] == name.ptr[k])) {
            i++;
            k++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            k = ++mark;
        } else {
            return false;
        }
    }
    while (i < pattern.len && pattern.ptr[i] == '*') {
        i++;
    }
    return i == pattern.len;
}

static caisson_status need_encoder(const csn_dtype *d, csn_str name, caisson_error *err) {
    if (d->encode == NULL || d->cmf_id == CSN_NO_ID) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = name,
                        .what = "dtype cannot be written by this build",
                        .got = csn_str_from(d->name));
    }
    return CAISSON_OK;
}

static caisson_status need_decoder(const csn_convert_item *item, caisson_error *err) {
    if (item->source->dtype->decode == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = item->name,
                        .what = "dtype cannot be decoded by this build",
                        .got = csn_str_from(item->source->dtype->name));
    }
    return CAISSON_OK;
}

static const csn_dtype *dtype(const char *name) {
    return csn_dtype_by_name(csn_str_from(name));
}

/* Writers use the tiled formats only for rows of whole groups; others of the 4-bit kind and what
 * they cannot hold fall back to q8_2f. */
static bool fits(const csn_dtype *d, const csn_shape *shape) {
    static const csn_encode_options any = {0};
    uint64_t ignored;
    caisson_error e;
    bool is_tiled = d->group == 32 && d != dtype("q4_block");
    return (!is_tiled || shape->dim[1] % 32 == 0) &&
           csn_encoded_nbytes(d, shape, &any, &ignored, &e) == CAISSON_OK;
}

static bool ends_with_one(csn_str name, const char *const *suffixes) {
    for (; *suffixes != NULL; suffixes++) {
        if (csn_str_ends(name, csn_str_from(*suffixes))) {
            return true;
        }
    }
    return false;
}

/* Small matrices whose errors decide which weights run at all, or grow from token to token. */
static bool stays_f16(csn_str name) {
    static const char *const suffixes[] = {"mlp.gate.weight",          "shared_expert_gate.weight",
                                           "self_attn.g_proj.weight",  "kda_attn.f_a_proj.weight",
                                           "kda_attn.f_b_proj.weight", "kda_attn.b_proj.weight",
                                           "kda_attn.g_a_proj.weight", "kda_attn.g_b_proj.weight",
                                           "_res_proj.weight",         NULL};
    return ends_with_one(name, suffixes);
}

bool csn_convert_stays_f32(csn_str name) {
    static const char *const suffixes[] = {"mlp.expert_bias", "kda_attn.A_log", "kda_attn.dt_bias",
                                           NULL};
    return ends_with_one(name, suffixes);
}

/* small: the dtype of what is no weight matrix. */
static const csn_dtype *pick(const csn_convert_item *item, const csn_dtype *quant,
                             const csn_dtype *small) {
    uint64_t n = 0;
    if (quant->is_float) {
        return quant; /* f32, f16, bf16: everything, norms too */
    }
    if (csn_convert_stays_f32(item->name)) {
        return dtype("f32");
    }
    (void)csn_shape_count(&item->shape, &n);
    if (item->shape.n_dims != 2 || n < 32 || stays_f16(item->name)) {
        return small;
    }
    return fits(quant, &item->shape) ? quant : dtype("q8_2f");
}

/* Without a rule. What a .cmf has and nobody can decode, or nothing of it, stays. */
static const csn_dtype *pick_any(const csn_source *s, const csn_convert_item *item,
                                 const csn_dtype *quant) {
    const csn_dtype *from = item->source->dtype;
    if (s->cmf == NULL) {
        return pick(item, quant != NULL ? quant : dtype("q8_row"), dtype("f16"));
    }
    bool stays = quant == NULL || from->decode == NULL || item->source->nbytes == 0;
    return stays ? from : pick(item, quant, from);
}

/* Encoding what has this dtype already could only lose; unless other widths are asked for. */
static bool is_copied(const csn_source *s, const csn_convert_item *item,
                      const csn_convert_options *o) {
    csn_str name = csn_str_from(item->to->name);
    bool is_told = csn_str_starts(name, CSN_STR("vbit"))
                       ? o->encode.mean_bits != 0 || o->bits_over != CSN_BITS_OVER_TENSOR
                       : (csn_str_is(name, "q1s") || csn_str_is(name, "q1t")) &&
                             (o->encode.keep != 0 || o->calibration != NULL);
    return s->cmf != NULL && item->to == item->source->dtype && !is_told;
}

caisson_status csn_convert_plan_dtypes(const csn_source *s, csn_convert_plan *plan,
                                       const csn_convert_options *o, caisson_error *err) {
    if (o->quant != NULL) {
        CSN_TRY(need_encoder(o->quant, (csn_str){0}, err));
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        csn_convert_item *item = &plan->items[i];
        const csn_dtype *rule = NULL;
        for (uint32_t k = 0; k < o->n_rules && rule == NULL; k++) {
            if (csn_glob(o->rules[k].pattern, item->name)) {
                rule = o->rules[k].dtype;
            }
        }
        if (rule != NULL) {
            CSN_TRY(need_encoder(rule, item->name, err));
            CSN_TRY(need_decoder(item, err));
            if (!rule->is_float && (item->shape.n_dims != 2 || !fits(rule, &item->shape))) {
                char text[96];
                return CSN_FAIL(
                    err, CAISSON_E_ARG, .tensor = item->name,
                    .what = "a --tensor rule asks for a dtype that this shape cannot have",
                    CSN_TEXTS(csn_str_from(rule->name),
                              csn_str_from(csn_shape_text(&item->shape, text, sizeof(text)))));
            }
        }
        item->to = rule != NULL ? rule : pick_any(s, item, o->quant);
        item->is_copied = is_copied(s, item, o);
    }
    return CAISSON_OK;
}
