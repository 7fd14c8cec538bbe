/* SPDX-License-Identifier: Apache-2.0 */
/* A WARP directory of random weights. Codes are random bytes, scales are chosen so that a layer
 * keeps the size of its input: what a row of ones would give has variance 1. */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/le.h"
#include "base/size.h"
#include "convert/synth_internal.h"
#include "convert/warp_names.h"
#include "format/warp/writer.h"
#include "quant/half.h"

typedef struct trunk {
    csn_warp_plan_tensor *tensors; /* [n] */
    csn_warp_role *roles;
    uint32_t n;
} trunk;

/* The rows of the model, or those of one layer. */
static caisson_status add_rows(csn_synth_job *j, unsigned has, const char *before, trunk *t) {
    unsigned of_model = has & CSN_WARP_OF_MODEL;
    for (const csn_warp_row *r = csn_warp_rows; r->name != NULL; r++) {
        if ((r->needs & ~has) != 0 || (r->needs & CSN_WARP_OF_MODEL) != of_model) {
            continue;
        }
        csn_warp_plan_tensor *out = &t->tensors[t->n];
        char name[128];
        int len = snprintf(name, sizeof(name), "%s%s%s", j->size->prefix, before, r->name);
        CSN_TRY(csn_arena_str(&j->arena, csn_str_make(name, (size_t)len), &out->name, j->err));
        for (int k = 0; k < 3 && r->dims[k] != CSN_WARP_DIM_NONE; k++) {
            out->shape.dim[out->shape.n_dims++] = csn_warp_row_dim(&j->config, r->dims[k]);
        }
        out->dtype = csn_warp_row_dtype(r, &out->shape, 4);
        t->roles[t->n++] = r->role;
    }
    return CAISSON_OK;
}

static caisson_status list_trunk(csn_synth_job *j, trunk *t) {
    enum { ROWS = 64 }; /* more than the table has */
    const csn_warp_words *c = &j->config;
    size_t most = ((size_t)c->n_layers + 1) * ROWS;
    CSN_TRY(CSN_ARENA_NEW(&j->arena, most, &t->tensors, j->err));
    CSN_TRY(CSN_ARENA_NEW(&j->arena, most, &t->roles, j->err));
    CSN_TRY(add_rows(j, csn_warp_layer_has(c, 0) | CSN_WARP_OF_MODEL, "", t));
    for (uint32_t i = 0; i < c->n_layers; i++) {
        char before[48];
        (void)snprintf(before, sizeof(before), "model.layers.%u.", i);
        CSN_TRY(add_rows(j, csn_warp_layer_has(c, i), before, t));
    }
    return CAISSON_OK;
}

/* ---- values ---- */

csn_synth_scale csn_synth_scale_of(csn_warp_role role, double cols) {
    switch (role) {
    case CSN_WARP_WEIGHT: return (csn_synth_scale){0, (float)sqrt(3 / cols)};
    case CSN_WARP_HEAD: return (csn_synth_scale){0, (float)sqrt(48 / cols)};
    case CSN_WARP_NORM: return (csn_synth_scale){1, 0.25f};
    case CSN_WARP_CONV: return (csn_synth_scale){0, 1};
    case CSN_WARP_A_LOG: return (csn_synth_scale){1.386f, 1.386f}; /* logarithms of 1 to 16 */
    case CSN_WARP_DT_BIAS: return (csn_synth_scale){-4.6f, 2.3f};  /* of which softplus is small */
    case CSN_WARP_SCORE_BIAS: return (csn_synth_scale){0, 0.05f};
    }
    return (csn_synth_scale){0, 0};
}

typedef struct matrix {
    csn_synth_job *j;
    const csn_warp_plan_tensor *tensor;
    uint32_t i_tensor;
    csn_warp_role role;
    uint8_t *out;
    uint64_t n_code_bytes, nbytes;
} matrix;

enum { PIECE = 1 << 20 }; /* of codes: each has a stream of its own */

/* Random bytes as codes whose mean is 0: with another mean every token would go the same way, and
 * to the same experts. q8g has no -128; of q4g the code -8 becomes another 0. */
static void centre(const csn_dtype *d, uint8_t *codes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t b = codes[i];
        if (d->warp_fmt == 2) {
            b = b == 0x80 ? 0x81 : b;
        } else {
            b |= (b & 0x0f) == 0 ? 0x08 : 0;
            b |= (b & 0xf0) == 0 ? 0x80 : 0;
        }
        codes[i] = b;
    }
}

static double code_deviation(const csn_dtype *d) {
    return d->warp_fmt == 2 ? sqrt((255.0 * 255.0 - 1) / 12) : sqrt(280.0 / 16);
}

static void fill_codes(void *ctx, unsigned i_thread, unsigned n_threads) {
    matrix *m = ctx;
    uint64_t p0, p1, n_pieces = (m->n_code_bytes + PIECE - 1) / PIECE;
    csn_share(n_pieces, 1, i_thread, n_threads, &p0, &p1);
    for (uint64_t p = p0; p < p1; p++) {
        csn_random r = csn_random_seed(m->j->o->seed, CSN_STR("codes"), m->i_tensor, p);
        uint64_t at = p * PIECE, left = m->n_code_bytes - at;
        size_t n = left < PIECE ? (size_t)left : PIECE;
        csn_random_bytes(&r, m->out + at, n);
        centre(m->tensor->dtype, m->out + at, n);
    }
}

static void fill_quantised(matrix *m) {
    const csn_shape *s = &m->tensor->shape;
    double cols = (double)s->dim[1], gain = m->role == CSN_WARP_HEAD ? 4 : 1;
    double scale = gain / (sqrt(cols) * code_deviation(m->tensor->dtype));
    csn_random r = csn_random_seed(m->j->o->seed, CSN_STR("scales"), m->i_tensor, 0);
    csn_pool_run(m->j->pool, fill_codes, m);
    for (uint64_t at = m->n_code_bytes; at + 2 <= m->nbytes; at += 2) {
        float x = (float)scale * (1 + 0.25f * csn_random_f32(&r));
        csn_put16(m->out + at, csn_half_from_f32(x));
    }
}

static void fill_f32(matrix *m) {
    const csn_shape *s = &m->tensor->shape;
    double cols = (double)s->dim[s->n_dims - 1];
    csn_synth_scale scale = csn_synth_scale_of(m->role, cols);
    csn_random r = csn_random_seed(m->j->o->seed, CSN_STR("values"), m->i_tensor, 0);
    for (uint64_t i = 0; i < m->nbytes / 4; i++) {
        float x = scale.add + scale.times * csn_random_f32(&r);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        csn_put32(m->out + 4 * i, bits);
    }
}

static caisson_status put_trunk(csn_synth_job *j, csn_warp_writer *w, const trunk *t) {
    csn_buf buf = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 0; i < t->n && status == CAISSON_OK; i++) {
        const csn_warp_plan_tensor *p = &t->tensors[i];
        matrix m = {.j = j, .tensor = p, .i_tensor = i, .role = t->roles[i]};
        status = p->dtype->nbytes(&p->shape, &m.nbytes, j->err);
        buf.len = 0;
        if (status == CAISSON_OK) {
            status = csn_buf_reserve(&buf, (size_t)m.nbytes, j->err);
        }
        if (status != CAISSON_OK) {
            break;
        }
        m.out = (uint8_t *)buf.ptr;
        if (p->dtype->is_float) {
            fill_f32(&m);
        } else {
            m.n_code_bytes = m.nbytes - csn_warp_scale_bytes(&p->shape);
            fill_quantised(&m);
        }
        status = csn_warp_writer_tensor(w, m.out, m.nbytes, j->err);
        if (status == CAISSON_OK) {
            status = csn_synth_tell(j, m.nbytes);
        }
    }
    csn_buf_free(&buf);
    return status;
}

/* ---- experts ---- */

enum { MAX_BATCH = 64 };

typedef struct batch {
    csn_synth_job *j;
    const csn_warp_layout *layout;
    uint32_t layer, expert, n;
    double deviation; /* of a sum of codebook entries */
    uint8_t *records; /* [n][stride] */
} batch;

static void fill_record(const batch *b, uint32_t expert, uint8_t *record) {
    const csn_warp_layout *l = b->layout;
    csn_random r = csn_random_seed(b->j->o->seed, CSN_STR("expert"), b->layer, expert);
    csn_random_bytes(&r, record + l->index[0], (size_t)(l->scale[0] - l->index[0]));
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        double scale = 1 / (sqrt((double)l->cols[k]) * b->deviation);
        for (uint32_t i = 0; i < l->rows[k]; i++) {
            float x = (float)scale * (1.5f + 0.5f * csn_random_f32(&r));
            csn_put16(record + l->scale[k] + 2 * (size_t)i, csn_half_from_f32(x));
        }
    }
    memset(record + l->end, 0, (size_t)(l->stride - l->end));
}

static void fill_records(void *ctx, unsigned i_thread, unsigned n_threads) {
    batch *b = ctx;
    uint64_t e0, e1;
    csn_share(b->n, 1, i_thread, n_threads, &e0, &e1);
    for (uint64_t e = e0; e < e1; e++) {
        fill_record(b, b->expert + (uint32_t)e, b->records + e * b->layout->stride);
    }
}

/* Each stage is half as loud as the one in front of it, as trained ones are. Returns the deviation
 * of a sum of entries. */
static double make_books(csn_synth_job *j, const csn_warp_coding *coding, uint32_t layer,
                         uint16_t *out) {
    double variance = 0;
    csn_random r = csn_random_seed(j->o->seed, CSN_STR("books"), layer, 0);
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        float loud = 1;
        variance = 0;
        for (uint32_t s = 0; s < coding->stages; s++) {
            for (uint32_t i = 0; i < coding->entries * CSN_VQ_DIM; i++) {
                *out++ = csn_warp_book_half(loud * csn_random_f32(&r));
            }
            variance += (double)(loud * loud) / 3;
            loud *= 0.5f;
        }
    }
    return sqrt(variance);
}

static caisson_status put_bank(batch *b, csn_warp_writer *w, const csn_warp_coding *coding,
                               uint32_t batch_size) {
    csn_synth_job *j = b->j;
    uint16_t *books;
    CSN_TRY(CSN_NEW((size_t)CSN_WARP_N_KINDS * coding->stages * coding->entries * CSN_VQ_DIM,
                    &books, j->err));
    b->deviation = make_books(j, coding, b->layer, books);
    caisson_status status = csn_warp_writer_books(w, books, j->err);
    csn_free(books);
    for (b->expert = 0; b->expert < j->config.n_experts && status == CAISSON_OK;
         b->expert += b->n) {
        uint32_t left = j->config.n_experts - b->expert;
        b->n = left < batch_size ? left : batch_size;
        csn_pool_run(j->pool, fill_records, b);
        for (uint32_t i = 0; i < b->n && status == CAISSON_OK; i++) {
            status = csn_warp_writer_expert(w, b->records + i * b->layout->stride, j->err);
        }
        if (status == CAISSON_OK) {
            status = csn_synth_tell(j, b->n * b->layout->stride);
        }
    }
    return status;
}

static caisson_status put_banks(csn_synth_job *j, csn_warp_writer *w, const csn_warp_plan *plan) {
    batch b = {.j = j, .layout = csn_warp_writer_layout(w)};
    unsigned n = csn_pool_n_threads(j->pool);
    uint32_t batch_size = n < MAX_BATCH ? n : MAX_BATCH;
    CSN_TRY(
        csn_alloc_aligned((size_t)(batch_size * b.layout->stride), (void **)&b.records, j->err));
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 0; i < plan->n_layers && status == CAISSON_OK; i++) {
        b.layer = plan->layers[i];
        status = put_bank(&b, w, plan->coding, batch_size);
    }
    csn_free_aligned(b.records);
    return status;
}

/* ---- the whole ---- */

static caisson_status put_files(csn_synth_job *j, csn_warp_writer *w) {
    const csn_synth_text *t = &j->text;
    CSN_TRY(csn_warp_writer_file(w, "tokenizer.model", csn_buf_view(&t->ranks), j->err));
    CSN_TRY(csn_warp_writer_file(w, "specials.json", csn_buf_view(&t->specials), j->err));
    return csn_warp_writer_file(w, "chat.json", csn_buf_view(&t->chat), j->err);
}

static caisson_status write_all(csn_synth_job *j, const csn_warp_plan *plan, const trunk *t) {
    csn_warp_writer *w;
    uint32_t n_tensors, n_banks; /* none are there: it is never resumed */
    CSN_TRY(csn_warp_writer_new(j->fs, j->target, plan, j->o->overwrite, &w, &n_tensors, &n_banks,
                                j->err));
    caisson_status status = put_trunk(j, w, t);
    if (status == CAISSON_OK) {
        status = put_banks(j, w, plan);
    }
    if (status == CAISSON_OK) {
        status = put_files(j, w);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_writer_finish(w, j->err);
    }
    csn_warp_writer_close(w, status != CAISSON_OK);
    return status;
}

static caisson_status count_bytes(csn_synth_job *j, const csn_warp_plan *plan) {
    csn_warp_layout l;
    for (uint32_t i = 0; i < plan->n_trunk; i++) {
        uint64_t n;
        CSN_TRY(plan->trunk[i].dtype->nbytes(&plan->trunk[i].shape, &n, j->err));
        j->n_total += n;
    }
    CSN_TRY(
        csn_warp_layout_make(plan->coding, plan->expert_width, plan->expert_hidden, &l, j->err));
    j->n_total += l.stride * plan->n_experts * plan->n_layers;
    return CAISSON_OK;
}

caisson_status csn_synth_warp(csn_synth_job *j) {
    const csn_warp_words *c = &j->config;
    csn_str name = j->o->quant.len > 0 ? j->o->quant : csn_str_from(csn_warp_codings[0].name);
    csn_warp_plan plan = {.n_experts = c->n_experts,
                          .expert_width = c->expert_width,
                          .expert_hidden = c->latent_size != 0 ? c->latent_size : c->hidden_size,
                          .coding = csn_warp_coding_by_name(name),
                          .arch = csn_str_from(c->model_type),
                          .prefix = csn_str_from(j->size->prefix)}; /* never resumed */
    csn_buf config = CSN_BUF_INIT(1 << 20);
    trunk t = {0};
    uint32_t *layers;
    if (plan.coding == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_ARG, .what = "no such coding of experts",
                        CSN_TEXTS(CSN_STR("vq3r, vq2r or vq4p"), name));
    }
    if (j->fs->ops->exists(j->fs, j->target) && !j->o->overwrite) {
        return CSN_FAIL(j->err, CAISSON_E_EXISTS, .file = j->target,
                        .what = "target exists; say that it may be replaced");
    }
    CSN_TRY(list_trunk(j, &t));
    CSN_TRY(CSN_ARENA_NEW(&j->arena, c->n_layers, &layers, j->err));
    for (uint32_t i = c->first_dense; i < c->n_layers; i++) {
        layers[plan.n_layers++] = i;
    }
    plan.layers = layers;
    plan.trunk = t.tensors;
    plan.n_trunk = t.n;
    CSN_TRY(count_bytes(j, &plan));
    csn_jw w = csn_jw_begin(&config, j->err);
    w.pretty = true;
    csn_warp_words_write(c, &w);
    caisson_status status = csn_jw_end(&w);
    plan.config = csn_buf_view(&config);
    if (status == CAISSON_OK) {
        status = csn_warp_check_config(plan.config, j->err);
    }
    if (status == CAISSON_OK) {
        status = write_all(j, &plan, &t);
    }
    csn_buf_free(&config);
    return status;
}
