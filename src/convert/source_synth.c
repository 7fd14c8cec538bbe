/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/source_synth.h"

#include "base/alloc.h"
#include "convert/warp_names.h"

enum { PIECE = 1 << 16 }; /* values that share a stream of random numbers */

typedef struct lister {
    csn_source *s;
    const csn_synth_size *size;
    const csn_warp_words *words;
    csn_directory *dir;
    uint32_t cap;
    caisson_error *err;
} lister;

/* Whether a tensor that may be missing is there. */
static bool wants(const lister *l, const csn_name_row *row, csn_str name) {
    const csn_arch *a = &l->s->arch;
    uint32_t layer;
    if (csn_str_is(name, "lm_head.weight")) {
        return !a->tie_word_embeddings;
    }
    if ((row->flags & CSN_ROW_OPTIONAL) == 0) {
        return true;
    }
    if (a->mla.present) {
        bool is_of_sigmoid = csn_str_ends(name, CSN_STR("expert_bias"));
        return csn_warp_row_find(l->words, name, &layer) != NULL &&
               (a->moe.router_sigmoid || !is_of_sigmoid);
    }
    bool of_qkv = csn_str_ends(name, CSN_STR("q_proj.bias")) ||
                  csn_str_ends(name, CSN_STR("k_proj.bias")) ||
                  csn_str_ends(name, CSN_STR("v_proj.bias"));
    return !csn_str_ends(name, CSN_STR(".bias")) || (of_qkv && l->size->has_bias);
}

static csn_shape shape_of(const lister *l, const csn_name_row *row) {
    uint64_t rows = csn_convert_dim(&l->s->arch, row->rows);
    uint64_t cols = csn_convert_dim(&l->s->arch, row->cols);
    if (row->of_rows[0] != CSN_DIM_NONE) {
        rows = 0;
        for (int i = 0; i < 3; i++) {
            rows += csn_convert_dim(&l->s->arch, row->of_rows[i]);
        }
    }
    if (row->cols == CSN_DIM_NONE) {
        return (csn_shape){1, {rows}};
    }
    return row->cols == CSN_DIM_KDA_CONV ? (csn_shape){3, {rows, 1, cols}}
                                         : (csn_shape){2, {rows, cols}};
}

static caisson_status add(lister *l, const csn_name_row *row, uint32_t layer, uint32_t expert,
                          csn_buf *name) {
    CSN_TRY(csn_convert_row_name(row->name, layer, expert, name, l->err));
    if (!wants(l, row, csn_buf_view(name))) {
        return CAISSON_OK;
    }
    if (row->hf != NULL) {
        CSN_TRY(csn_convert_row_name(row->hf, layer, expert, name, l->err));
    }
    if (l->dir->n == l->cap) {
        l->cap = l->cap == 0 ? 1024 : 2 * l->cap;
        CSN_TRY(CSN_GROW(&l->dir->tensors, l->cap, l->err));
    }
    csn_tensor *t = &l->dir->tensors[l->dir->n];
    *t = (csn_tensor){.dtype = csn_dtype_by_name(CSN_STR("f32")), .shape = shape_of(l, row)};
    CSN_TRY(t->dtype->nbytes(&t->shape, &t->nbytes, l->err));
    CSN_TRY(csn_arena_str(&l->s->arena, csn_buf_view(name), &t->name, l->err));
    l->dir->n++;
    return CAISSON_OK;
}

static caisson_status add_row(lister *l, const csn_name_row *row, uint32_t layer, csn_buf *name) {
    const csn_arch *a = &l->s->arch;
    bool is_kda = layer < a->n_layer_types && a->layer_types[layer] == CSN_LAYER_KDA;
    bool is_mixture = a->moe.present && layer >= l->words->first_dense;
    bool is_listed = row->before[0] != CSN_DIM_NONE; /* with the first rows of its source */
    if (is_listed || !csn_convert_row_is_there(row, is_mixture, is_kda)) {
        return CAISSON_OK;
    }
    uint32_t n = (row->flags & CSN_ROW_EXPERT) != 0 ? a->moe.n_experts : 1;
    for (uint32_t e = 0; e < n; e++) {
        CSN_TRY(add(l, row, layer, e, name));
    }
    return CAISSON_OK;
}

/* Layer by layer, so that what is written lies as in other models. */
static caisson_status list_tensors(lister *l, csn_buf *name) {
    const csn_name_table *const *tables = l->s->family->tables;
    for (uint32_t layer = 0; layer <= l->s->arch.n_layers; layer++) { /* the last: of the model */
        for (size_t i = 0; tables[i] != NULL; i++) {
            for (size_t k = 0; k < tables[i]->n; k++) {
                const csn_name_row *row = &tables[i]->rows[k];
                bool of_layer = strstr(row->name, "{}") != NULL;
                if (of_layer && layer < l->s->arch.n_layers) {
                    CSN_TRY(add_row(l, row, layer, name));
                } else if (!of_layer && layer == l->s->arch.n_layers) {
                    CSN_TRY(add(l, row, 0, 0, name));
                }
            }
        }
    }
    return csn_directory_index(l->dir, &l->s->arena, l->err);
}

static caisson_status read_config(csn_source *s, csn_str family, caisson_error *err) {
    csn_config c;
    csn_str ignored;
    CSN_TRY(csn_config_init(&c, csn_json_root(s->config), "config", &s->arena, err));
    CSN_TRY(csn_config_str(&c, "model_type", &ignored, err));
    CSN_TRY(csn_family_find(family, false, &s->family, err));
    s->arch.arch_name = family;
    CSN_TRY(s->family->read_config(&c, &s->arena, &s->arch, err));
    return csn_config_end(&c, true, err);
}

static caisson_status open_all(lister *l, csn_str config) {
    csn_source *s = l->s;
    csn_buf name = CSN_BUF_INIT(1024);
    CSN_TRY(csn_json_parse(config, CSN_JSON_UNIQUE, &s->config, l->err));
    CSN_TRY(read_config(s, csn_str_from(l->size->family), l->err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, 1, &l->dir, l->err));
    s->dir = l->dir; /* whose tensors csn_source_close frees */
    caisson_status status = list_tensors(l, &name);
    csn_buf_free(&name);
    return status;
}

caisson_status csn_source_new_synth(const csn_synth_size *size, const csn_warp_words *words,
                                    csn_str config, uint64_t seed, csn_source **ret,
                                    caisson_error *err) {
    csn_source *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    lister l = {.s = s, .size = size, .words = words, .err = err};
    s->is_synth = true;
    s->synth_seed = seed;
    s->bos_token_id = -1;
    s->pad_token_id = -1;
    csn_arch_init(&s->arch);
    caisson_status status = open_all(&l, config);
    if (status != CAISSON_OK) {
        csn_source_close(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

/* ---- values ---- */

typedef struct filler {
    const csn_source *s;
    uint64_t i_tensor, row0, n;
    csn_synth_scale scale;
    float *out;
} filler;

static csn_warp_role role_of(const csn_source *s, csn_str name) {
    static const struct {
        const char *end;
        csn_warp_role role;
    } ends[] = {{"norm.weight", CSN_WARP_NORM},
                {"layernorm.weight", CSN_WARP_NORM},
                {"lm_head.weight", CSN_WARP_HEAD},
                {"conv1d.weight", CSN_WARP_CONV},
                {"A_log", CSN_WARP_A_LOG},
                {"dt_bias", CSN_WARP_DT_BIAS},
                {"expert_bias", CSN_WARP_SCORE_BIAS},
                {".bias", CSN_WARP_SCORE_BIAS}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (csn_str_ends(name, csn_str_from(ends[i].end))) {
            return ends[i].role;
        }
    }
    bool is_head = s->arch.tie_word_embeddings && csn_str_is(name, "model.embed_tokens.weight");
    return is_head ? CSN_WARP_HEAD : CSN_WARP_WEIGHT;
}

static void fill_pieces(void *ctx, unsigned i_thread, unsigned n_threads) {
    const filler *f = ctx;
    uint64_t p0, p1;
    csn_share((f->n + PIECE - 1) / PIECE, 1, i_thread, n_threads, &p0, &p1);
    for (uint64_t p = p0; p < p1; p++) {
        csn_random r =
            csn_random_seed(f->s->synth_seed, CSN_STR("cmf"), f->i_tensor, f->row0 << 32 | p);
        uint64_t end = (p + 1) * PIECE < f->n ? (p + 1) * PIECE : f->n;
        for (uint64_t i = p * PIECE; i < end; i++) {
            f->out[i] = f->scale.add + f->scale.times * csn_random_f32(&r);
        }
    }
}

void csn_source_synth_fill(const csn_source *s, const csn_convert_item *item, csn_pool *pool,
                           float *out) {
    const csn_shape *shape = &item->shape;
    csn_warp_role role = role_of(s, item->name);
    filler f = {.s = s,
                .i_tensor = (uint64_t)(item->source - s->dir->tensors),
                .row0 = item->row0,
                .scale = csn_synth_scale_of(role, (double)shape->dim[shape->n_dims - 1]),
                .out = out};
    (void)csn_shape_count(shape, &f.n);
    if (s->arch.norm_style == CSN_NORM_GEMMA && role == CSN_WARP_NORM) {
        f.scale.add -= 1.0f; /* such norms are stored without their 1 */
    }
    if (csn_str_is(item->name, "model.embed_tokens.weight")) {
        f.scale.times /= s->arch.embed_multiplier; /* else no layer would change what is said */
    }
    csn_pool_run(pool, fill_pieces, &f);
}
