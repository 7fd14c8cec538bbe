/* SPDX-License-Identifier: Apache-2.0 */
/* Trunk, then layer by layer: codebooks from a sample of some experts, then every expert coded with
 * them into its record. A killed conversion goes on behind the last tensor or bank that is whole.
 */
#include "convert/to_warp.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/size.h"
#include "convert/tensor.h"
#include "convert/vq_encode.h"
#include "convert/warp_arch.h"
#include "convert/warp_names.h"
#include "convert/warp_text.h"

enum {
    SAMPLE_EXPERTS = 12,
    SAMPLE_VECTORS = 300000,
    FIRST_SEED = 1234,
    ROWS_VALUES = 4 << 20 /* of a matrix of the trunk that are in memory at once */
};

typedef struct job {
    csn_fs *fs;
    const char *source_path, *target;
    const csn_convert_options *o;
    csn_source *source;
    csn_convert_plan items;
    csn_warp_words words;
    csn_warp_plan plan;
    csn_convert_item *trunk;          /* [plan.n_trunk], as plan.trunk */
    const csn_convert_item **experts; /* [plan.n_layers][kinds][n_experts] */
    csn_warp_writer *writer;
    csn_arena arena;
    csn_pool *pool;
    csn_buf config, fingerprint, piece, encoded;
    float *x; /* [n_x] the largest matrix of an expert */
    uint64_t n_done, n_total;
    caisson_error *err;
} job;

static caisson_status tell(void *ctx, uint64_t n_bytes, caisson_error *err) {
    job *j = ctx;
    j->n_done += n_bytes;
    uint64_t done = j->n_done < j->n_total ? j->n_done : j->n_total;
    return csn_progress_tell(j->o->progress, "convert", done, j->n_total, err);
}

/* ---- what goes where ---- */

static int by_name(const void *a, const void *b) {
    return csn_str_cmp(((const csn_convert_item *)a)->name, ((const csn_convert_item *)b)->name);
}

/* The item under WARP's name, with the type that it will have there. */
static caisson_status add_trunk(job *j, const csn_convert_item *item, csn_str cmf_name) {
    uint32_t layer = 0;
    const csn_warp_row *row = csn_warp_row_find(&j->words, cmf_name, &layer);
    csn_buf name = CSN_BUF_INIT(256);
    if (row == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = item->name,
                        .what = "WARP has no place for this tensor");
    }
    csn_convert_item *out = &j->trunk[j->plan.n_trunk];
    *out = *item;
    out->to = csn_warp_row_dtype(row, &item->shape, j->o->trunk_bits == 8 ? 8 : 4);
    caisson_status status = csn_buf_str(&name, j->plan.prefix, j->err);
    if (status == CAISSON_OK && (row->needs & CSN_WARP_OF_MODEL) == 0) {
        status = csn_buf_printf(&name, j->err, "model.layers.%u.", layer);
    }
    if (status == CAISSON_OK) {
        status = csn_buf_str(&name, csn_str_from(row->name), j->err);
    }
    if (status == CAISSON_OK) {
        status = csn_arena_str(&j->arena, csn_buf_view(&name), &out->name, j->err);
        j->plan.n_trunk++;
    }
    csn_buf_free(&name);
    return status;
}

static const csn_convert_item **expert_place(job *j, uint32_t i_layer, unsigned kind, uint32_t e) {
    return &j->experts[((size_t)i_layer * CSN_WARP_N_KINDS + kind) * j->plan.n_experts + e];
}

static caisson_status place_items(job *j) {
    uint32_t n_layers = j->plan.n_layers, first = j->words.first_dense;
    size_t n_experts = (size_t)n_layers * CSN_WARP_N_KINDS * j->plan.n_experts;
    CSN_TRY(CSN_ARENA_NEW(&j->arena, n_experts, &j->experts, j->err));
    CSN_TRY(CSN_ARENA_NEW(&j->arena, (size_t)j->items.n + 1, &j->trunk, j->err));
    for (uint32_t i = 0; i < j->items.n; i++) {
        const csn_convert_item *item = &j->items.items[i];
        uint32_t layer, e;
        unsigned kind;
        if (!csn_warp_expert_of(item->name, &layer, &e, &kind)) {
            CSN_TRY(add_trunk(j, item, item->name));
        } else if (layer < first || layer - first >= n_layers || e >= j->plan.n_experts) {
            return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .section = "directory",
                            .tensor = item->name, .what = "an expert that the model does not have");
        } else {
            *expert_place(j, layer - first, kind, e) = item;
        }
        if (j->source->arch.tie_word_embeddings &&
            csn_str_is(item->name, "model.embed_tokens.weight")) { /* WARP's head is its own */
            CSN_TRY(add_trunk(j, item, CSN_STR("lm_head.weight")));
        }
    }
    for (size_t i = 0; i < n_experts; i++) {
        if (j->experts[i] == NULL) {
            return CSN_FAIL(j->err, CAISSON_E_MISSING, .section = "directory",
                            .what = "an expert is not in the source (layer, expert)",
                            CSN_VALUES(first + i / CSN_WARP_N_KINDS / j->plan.n_experts,
                                       i % j->plan.n_experts));
        }
    }
    qsort(j->trunk, j->plan.n_trunk, sizeof(*j->trunk), by_name);
    return CAISSON_OK;
}

/* Experts must have the shapes that one record a layer says. */
static caisson_status check_experts(job *j) {
    csn_warp_layout l;
    CSN_TRY(csn_warp_layout_make(j->plan.coding, j->plan.expert_width, j->plan.expert_hidden, &l,
                                 j->err));
    for (uint32_t i = 0; i < j->plan.n_layers; i++) {
        for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
            for (uint32_t e = 0; e < j->plan.n_experts; e++) {
                const csn_convert_item *item = *expert_place(j, i, k, e);
                const csn_shape want = {2, {l.rows[k], l.cols[k]}};
                if (!csn_shape_eq(&item->shape, &want)) {
                    return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .section = "directory",
                                    .tensor = item->name,
                                    .what = "experts of different shapes in one model");
                }
            }
        }
    }
    return CAISSON_OK;
}

/* Size and time of last change of each file: what two runs must share so that one may go on where
 * the other stopped. A terabyte is not read twice for it. */
static caisson_status make_fingerprint(job *j) {
    csn_buf *f = &j->fingerprint;
    CSN_TRY(csn_buf_printf(f, j->err, "to_warp 1 %u", j->o->trunk_bits));
    for (uint32_t i = 0; i < j->source->n_files; i++) {
        csn_file_stamp s;
        CSN_TRY(j->source->files[i]->ops->stamp(j->source->files[i], &s, j->err));
        CSN_TRY(csn_buf_printf(f, j->err, " %" PRIu64 ":%" PRId64 ":%" PRIu64, s.size,
                               s.modified_ns, s.inode));
    }
    return CAISSON_OK;
}

static caisson_status make_plan(job *j) {
    csn_warp_plan *p = &j->plan;
    const csn_warp_words *c = &j->words;
    csn_warp_plan_tensor *tensors;
    uint32_t *layers;
    p->coding = j->o->expert_quant.len > 0 ? csn_warp_coding_by_name(j->o->expert_quant)
                                           : &csn_warp_codings[0];
    if (p->coding == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_ARG, .what = "no such coding of experts",
                        CSN_TEXTS(CSN_STR("vq3r, vq2r or vq4p"), j->o->expert_quant));
    }
    p->n_layers = c->n_layers - c->first_dense;
    p->n_experts = c->n_experts;
    p->expert_width = c->expert_width;
    p->expert_hidden = c->latent_size != 0 ? c->latent_size : c->hidden_size;
    p->arch = csn_str_from(c->model_type);
    p->prefix = c->outer_class != NULL ? CSN_STR("language_model.") : CSN_STR("");
    CSN_TRY(place_items(j));
    CSN_TRY(check_experts(j));
    CSN_TRY(CSN_ARENA_NEW(&j->arena, (size_t)p->n_layers + 1, &layers, j->err));
    for (uint32_t i = 0; i < p->n_layers; i++) {
        layers[i] = c->first_dense + i;
    }
    CSN_TRY(CSN_ARENA_NEW(&j->arena, (size_t)p->n_trunk + 1, &tensors, j->err));
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        const csn_convert_item *t = &j->trunk[i];
        tensors[i] = (csn_warp_plan_tensor){t->name, t->to, t->shape};
    }
    p->layers = layers;
    p->trunk = tensors;
    csn_jw w = csn_jw_begin(&j->config, j->err);
    w.pretty = true;
    csn_warp_words_write(c, &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_warp_check_config(csn_buf_view(&j->config), j->err)); /* not after the work */
    CSN_TRY(make_fingerprint(j));
    p->config = csn_buf_view(&j->config);
    p->fingerprint = csn_buf_view(&j->fingerprint);
    return CAISSON_OK;
}

/* ---- the trunk ---- */

static void report(job *j, const csn_convert_item *item, const char *to, uint64_t nbytes,
                   double error) {
    if (j->o->on_tensor == NULL) {
        return;
    }
    uint64_t n = 0;
    (void)csn_shape_count(&item->shape, &n);
    csn_convert_report r = {.name = item->name,
                            .source_name = item->source->name,
                            .from = item->source->dtype->name,
                            .to = to,
                            .shape = item->shape,
                            .nbytes = nbytes,
                            .relative_error = error};
    j->o->on_tensor(j->o->ctx, &r);
}

static caisson_status put_whole(job *j, const csn_convert_item *item, float *x, uint64_t n) {
    const csn_tensor_watch watch = {tell, j};
    double sums[2];
    CSN_TRY(csn_tensor_read_f32(j->source, item, j->pool, &j->piece, &watch, x, j->err));
    CSN_TRY(
        csn_tensor_encode(item->to, &item->shape, x, &j->o->encode, j->pool, &j->encoded, j->err));
    CSN_TRY(csn_tensor_error_sums(item, csn_buf_view(&j->encoded), x, n, j->pool, sums, j->err));
    CSN_TRY(csn_warp_writer_tensor(j->writer, j->encoded.ptr, j->encoded.len, j->err));
    report(j, item, item->to->name, j->encoded.len, csn_tensor_error_of(sums));
    return CAISSON_OK;
}

/* A large matrix, some rows at a time: dtypes of the trunk code each row by itself. */
static caisson_status put_by_rows(job *j, const csn_convert_item *item, float *x, uint64_t step) {
    const csn_tensor_watch watch = {tell, j};
    uint64_t rows = item->shape.dim[0], nbytes = 0;
    double sums[2] = {0, 0};
    for (uint64_t r = 0; r < rows; r += step) {
        csn_convert_item part = *item;
        double of_part[2];
        part.shape.dim[0] = rows - r < step ? rows - r : step;
        part.row0 += r;
        part.cut_row = r;
        CSN_TRY(csn_tensor_read_f32(j->source, &part, j->pool, &j->piece, &watch, x, j->err));
        CSN_TRY(csn_tensor_encode(part.to, &part.shape, x, &j->o->encode, j->pool, &j->encoded,
                                  j->err));
        CSN_TRY(csn_tensor_error_sums(&part, csn_buf_view(&j->encoded), x,
                                      part.shape.dim[0] * part.shape.dim[1], j->pool, of_part,
                                      j->err));
        CSN_TRY(csn_warp_writer_rows(j->writer, r, part.shape.dim[0], j->encoded.ptr,
                                     j->encoded.len, j->err));
        sums[0] += of_part[0];
        sums[1] += of_part[1];
        nbytes += j->encoded.len;
    }
    CSN_TRY(csn_warp_writer_tensor_done(j->writer, j->err));
    report(j, item, item->to->name, nbytes, csn_tensor_error_of(sums));
    return CAISSON_OK;
}

/* Rows of a piece; 0: the tensor is read whole. */
static uint64_t rows_at_once(const job *j, const csn_convert_item *item) {
    uint64_t unit = csn_tensor_row_unit(j->source, item);
    if (unit == 0 || item->shape.dim[0] <= ROWS_VALUES / item->shape.dim[1]) {
        return 0;
    }
    uint64_t n_units = ROWS_VALUES / item->shape.dim[1] / unit;
    return n_units > 0 ? n_units * unit : unit;
}

static caisson_status put_tensor(job *j, const csn_convert_item *item) {
    csn_convert_item part = *item; /* what is in memory at once */
    uint64_t n, step = rows_at_once(j, item);
    float *x;
    part.shape.dim[0] = step > 0 ? step : part.shape.dim[0];
    CSN_TRY(csn_tensor_alloc_f32(&part, &x, &n, j->err));
    caisson_status status = step > 0 ? put_by_rows(j, item, x, step) : put_whole(j, item, x, n);
    csn_free_aligned(x);
    return status;
}

static caisson_status put_trunk(job *j, uint32_t i0) {
    for (uint32_t i = i0; i < j->plan.n_trunk; i++) {
        caisson_status status = put_tensor(j, &j->trunk[i]);
        if (status != CAISSON_OK) {
            csn_error_tensor(j->err, j->trunk[i].name);
            return status;
        }
    }
    csn_buf_free(&j->encoded);
    return CAISSON_OK;
}

/* ---- the experts ---- */

typedef struct bank {
    job *j;
    const csn_warp_layout *layout;
    uint32_t i_layer;
    uint16_t *books;          /* [kinds][stages][entries][8] */
    csn_vq_encoder *encoders; /* [kinds] */
    float *sample;            /* [SAMPLE_VECTORS][8] */
    uint8_t *record;          /* [stride] */
} bank;

static caisson_status read_expert(job *j, uint32_t i_layer, unsigned kind, uint32_t e,
                                  caisson_status (*told)(void *, uint64_t, caisson_error *)) {
    const csn_convert_item *item = *expert_place(j, i_layer, kind, e);
    const csn_tensor_watch watch = {told, j};
    caisson_status status =
        csn_tensor_read_f32(j->source, item, j->pool, &j->piece, &watch, j->x, j->err);
    if (status != CAISSON_OK && status != CAISSON_E_CANCELLED) {
        csn_error_tensor(j->err, item->name);
    }
    return status;
}

/* What is read for a sample is read again: it is no progress, but it can be stopped. */
static caisson_status tell_nothing(void *ctx, uint64_t n_bytes, caisson_error *err) {
    (void)n_bytes;
    return tell(ctx, 0, err);
}

static caisson_status train_kind(bank *b, unsigned kind) {
    job *j = b->j;
    const csn_warp_coding *coding = j->plan.coding;
    uint32_t n_experts = j->plan.n_experts, n = 0;
    uint32_t step = n_experts > SAMPLE_EXPERTS ? n_experts / SAMPLE_EXPERTS : 1;
    uint32_t n_sampled = n_experts < SAMPLE_EXPERTS ? n_experts : SAMPLE_EXPERTS;
    for (uint32_t i = 0; i < n_sampled; i++) {
        uint32_t e = i * step, got;
        csn_random r = csn_random_seed(FIRST_SEED + e, CSN_STR("sample"), b->i_layer, kind);
        CSN_TRY(read_expert(j, b->i_layer, kind, e, tell_nothing));
        CSN_TRY(csn_vq_sample(j->x, b->layout->rows[kind], b->layout->cols[kind], &r,
                              SAMPLE_VECTORS / n_sampled, b->sample + (size_t)n * CSN_VQ_DIM, &got,
                              j->err));
        n += got;
    }
    csn_random r = csn_random_seed(FIRST_SEED, CSN_STR("books"), b->i_layer, kind);
    uint16_t *books = b->books + (size_t)kind * coding->stages * coding->entries * CSN_VQ_DIM;
    CSN_TRY(csn_vq_train(b->sample, n, coding, &r, j->pool, books, j->err));
    csn_vq_encoder_init(&b->encoders[kind], coding, books);
    return CAISSON_OK;
}

static caisson_status put_expert(bank *b, uint32_t e) {
    job *j = b->j;
    const csn_warp_layout *l = b->layout;
    memset(b->record, 0, (size_t)l->stride);
    for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
        const csn_convert_item *item = *expert_place(j, b->i_layer, k, e);
        csn_vq_error lost;
        CSN_TRY(read_expert(j, b->i_layer, k, e, tell));
        caisson_status status =
            csn_vq_encode(&b->encoders[k], j->x, l->rows[k], l->cols[k], j->pool,
                          b->record + l->index[k], b->record + l->scale[k], &lost, j->err);
        if (status != CAISSON_OK) {
            csn_error_tensor(j->err, item->name);
            return status;
        }
        uint64_t index_end = k + 1 < CSN_WARP_N_KINDS ? l->index[k + 1] : l->scale[0];
        report(j, item, j->plan.coding->name, index_end - l->index[k] + 2 * (uint64_t)l->rows[k],
               lost.whole > 0 ? sqrt(lost.lost / lost.whole) : 0);
    }
    return csn_warp_writer_expert(j->writer, b->record, j->err);
}

static caisson_status put_bank(bank *b) {
    for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
        CSN_TRY(train_kind(b, k));
    }
    CSN_TRY(csn_warp_writer_books(b->j->writer, b->books, b->j->err));
    for (uint32_t e = 0; e < b->j->plan.n_experts; e++) {
        CSN_TRY(put_expert(b, e));
    }
    return CAISSON_OK;
}

static caisson_status put_banks(job *j, uint32_t i0) {
    const csn_warp_coding *coding = j->plan.coding;
    bank b = {.j = j, .layout = csn_warp_writer_layout(j->writer)};
    size_t n_books = (size_t)CSN_WARP_N_KINDS * coding->stages * coding->entries * CSN_VQ_DIM;
    size_t n_x = (size_t)j->plan.expert_width * j->plan.expert_hidden;
    caisson_status status = CSN_NEW(n_books, &b.books, j->err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(CSN_WARP_N_KINDS, &b.encoders, j->err);
    }
    if (status == CAISSON_OK) {
        status = CSN_NEW((size_t)SAMPLE_VECTORS * CSN_VQ_DIM, &b.sample, j->err);
    }
    if (status == CAISSON_OK) {
        status = csn_alloc_aligned((size_t)b.layout->stride, (void **)&b.record, j->err);
    }
    if (status == CAISSON_OK) {
        status = csn_alloc_aligned(n_x * sizeof(float), (void **)&j->x, j->err);
    }
    for (uint32_t i = i0; i < j->plan.n_layers && status == CAISSON_OK; i++) {
        b.i_layer = i;
        status = put_bank(&b);
    }
    csn_free(b.books);
    csn_free(b.encoders);
    csn_free(b.sample);
    csn_free_aligned(b.record);
    csn_free_aligned(j->x);
    j->x = NULL;
    return status;
}

/* ---- the whole ---- */

/* Bytes of the source that go into our rows of a tensor. */
static uint64_t source_bytes(const job *j, const csn_convert_item *item) {
    return j->source->cmf != NULL || j->source->warp != NULL
               ? item->source->nbytes
               : item->source->nbytes / csn_convert_source_rows(item->source) * item->shape.dim[0];
}

static void begin_progress(job *j, uint32_t n_tensors, uint32_t n_banks) {
    size_t per_layer = (size_t)CSN_WARP_N_KINDS * j->plan.n_experts;
    for (uint32_t i = 0; i < j->plan.n_trunk; i++) {
        uint64_t n = source_bytes(j, &j->trunk[i]);
        j->n_total += n;
        j->n_done += i < n_tensors ? n : 0;
    }
    for (size_t i = 0; i < j->plan.n_layers * per_layer; i++) {
        uint64_t n = source_bytes(j, j->experts[i]);
        j->n_total += n;
        j->n_done += i < n_banks * per_layer ? n : 0;
    }
    if (n_tensors + n_banks > 0) {
        CSN_INFO(j->o->log, "resuming behind %u of %u tensors and %u of %u banks", n_tensors,
                 j->plan.n_trunk, n_banks, j->plan.n_layers);
    }
}

static caisson_status write_all(job *j) {
    uint32_t n_tensors, n_banks;
    CSN_TRY(csn_warp_writer_new(j->fs, j->target, &j->plan, j->o->overwrite, &j->writer, &n_tensors,
                                &n_banks, j->err));
    begin_progress(j, n_tensors, n_banks);
    caisson_status status = put_trunk(j, n_tensors);
    if (status == CAISSON_OK) {
        status = put_banks(j, n_banks);
    }
    if (status == CAISSON_OK) {
        status =
            csn_warp_text_write(j->fs, j->source, j->source_path, j->writer, j->o->log, j->err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_writer_finish(j->writer, j->err);
    }
    csn_warp_writer_close(j->writer, false);
    return status;
}

static caisson_status run(job *j) {
    CSN_TRY(csn_source_open(j->fs, j->source_path, j->o->log, &j->source, j->err));
    CSN_TRY(csn_convert_plan_make(j->source, j->o->log, &j->arena, &j->items, j->err));
    CSN_TRY(csn_warp_words_from(j->source, &j->items, &j->arena, &j->words, j->err));
    CSN_TRY(make_plan(j));
    if (j->source->cmf != NULL) {
        csn_source_tell_masks(j->source->cmf, "a WARP directory", j->o->log);
    }
    if (j->words.n_group > 1) {
        CSN_WARN(j->o->log,
                 "experts are chosen from %u of %u groups, which the format's engine does "
                 "not know: it chooses from all",
                 j->words.topk_group, j->words.n_group);
    }
    if (j->source->arch.mla.norm_eps != 0) {
        CSN_WARN(j->o->log,
                 "the norms of latents add %g here; the format has one epsilon for all norms, %g",
                 j->source->arch.mla.norm_eps, j->words.rms_norm_eps);
    }
    CSN_TRY(csn_pool_new(j->o->n_threads, &j->pool, j->err));
    return write_all(j);
}

caisson_status csn_convert_to_warp(csn_fs *fs, const char *source, const char *target,
                                   const csn_convert_options *options, caisson_error *err) {
    job j = {.fs = fs, .source_path = source, .target = target, .o = options, .err = err};
    j.config = CSN_BUF_INIT(1 << 20);
    j.fingerprint = CSN_BUF_INIT(1 << 20);
    j.piece = CSN_BUF_INIT(SIZE_MAX / 2);
    j.encoded = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status status = run(&j);
    csn_pool_free(j.pool);
    csn_source_close(j.source);
    csn_buf_free(&j.config);
    csn_buf_free(&j.fingerprint);
    csn_buf_free(&j.piece);
    csn_buf_free(&j.encoded);
    csn_arena_done(&j.arena);
    return status;
}
