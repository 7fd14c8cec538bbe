/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/tensor.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/size.h"
#include "convert/source_synth.h"
#include "convert/source_warp.h"
#include "model/math.h"
#include "store/rows.h"

enum { F8_BLOCK = 128, CHECK_GRAIN = 4096 };

typedef struct piece {
    csn_matrix m; /* `n_rows` rows of the source, from row `row0` of ours on */
    uint64_t row0, n_rows, cols;
    uint64_t cut_row; /* row of the tensor that `out` begins with */
    uint32_t permute;
    float add;
    bool is_log;
    const float *scales; /* [..][n_scale_cols], of the source's rows */
    uint64_t scale_row0, n_scale_cols;
    const csn_warp_view *warp;
    float *out;        /* the whole tensor */
    atomic_ullong bad; /* smallest index of a value that is not finite, + 1; 0 = none */
} piece;

/* Where a row of the source goes. llama.cpp stores the rows of a head as pairs (2i, 2i + 1) that
 * rotate together; ours, as in Hugging Face files, are (i, i + head_dim / 2). */
static uint64_t our_row(uint64_t row, uint32_t head_dim) {
    if (head_dim == 0) {
        return row;
    }
    uint64_t head = row / head_dim, in_head = row % head_dim;
    return head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
}

static void note_bad(piece *p, uint64_t at) {
    unsigned long long seen = atomic_load(&p->bad);
    while ((seen == 0 || at + 1 < seen) && !atomic_compare_exchange_weak(&p->bad, &seen, at + 1)) {
    }
}

static void decode_rows(void *ctx, unsigned i_thread, unsigned n_threads) {
    piece *p = ctx;
    uint64_t r0, r1;
    csn_share(p->n_rows, 1, i_thread, n_threads, &r0, &r1);
    for (uint64_t r = r0; r < r1; r++) {
        uint64_t row = our_row(p->row0 + r, p->permute);
        float *out = p->out + row * p->cols;
        p->m.dtype->decode(&p->m, r * p->cols, p->cols, out);
        if (p->scales != NULL) {
            const float *s = p->scales + (p->scale_row0 + r) / F8_BLOCK * p->n_scale_cols;
            for (uint64_t i = 0; i < p->cols; i++) {
                out[i] *= s[i / F8_BLOCK];
            }
        }
        for (uint64_t i = 0; p->is_log && i < p->cols; i++) {
            bool is_decay = isfinite(out[i]) && out[i] < 0.0f; /* else no number: refused below */
            out[i] = is_decay ? (float)csn_f64_log(-(double)out[i]) : NAN;
        }
        if (p->add != 0.0f) {
            for (uint64_t i = 0; i < p->cols; i++) {
                out[i] += p->add;
            }
        }
        for (uint64_t i = 0; i < p->cols; i++) {
            if (!isfinite(out[i])) {
                note_bad(p, row * p->cols + i);
                break;
            }
        }
    }
}

/* A small tensor, whole, as f32 in fresh memory. */
static caisson_status read_whole(const csn_source *s, const csn_tensor *t, float **ret,
                                 caisson_error *err) {
    uint64_t n;
    csn_buf bytes = CSN_BUF_INIT(1 << 30);
    if (!csn_shape_count(&t->shape, &n) || t->nbytes > bytes.max) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = t->name, .what = "scales are too large");
    }
    float *out;
    CSN_TRY(CSN_NEW((size_t)n, &out, err));
    caisson_status status = csn_buf_reserve(&bytes, (size_t)t->nbytes, err);
    if (status == CAISSON_OK) {
        status =
            csn_file_read_at(s->files[t->i_file], t->offset, bytes.ptr, (size_t)t->nbytes, err);
    }
    if (status == CAISSON_OK) {
        csn_matrix m = csn_matrix_make(t->dtype, &t->shape, bytes.ptr, t->nbytes);
        t->dtype->decode(&m, 0, n, out);
    }
    csn_buf_free(&bytes);
    if (status != CAISSON_OK) {
        csn_free(out);
        return status;
    }
    *ret = out;
    return CAISSON_OK;
}

/* The source as a matrix whose rows are whole numbers of bytes: a vector is one column when its
 * elements have bytes of their own, else one row. */
static void source_grid(const csn_convert_item *item, uint64_t *rows, uint64_t *cols) {
    const csn_shape *shape = &item->source->shape;
    *rows = csn_convert_source_rows(item->source);
    *cols = shape->n_dims > 1 ? shape->dim[shape->n_dims - 1] : 1;
    if ((shape->n_dims == 1 && item->permute == 0) || item->is_flat) {
        *rows = 1;
        *cols = 1;
        for (uint32_t i = 0; i < shape->n_dims; i++) {
            *cols *= shape->dim[i]; /* counted when the plan was made */
        }
    }
}

static caisson_status fail_if_bad(piece *p, const csn_tensor *t, caisson_error *err) {
    if (atomic_load(&p->bad) != 0) {
        char element[48];
        (void)snprintf(element, sizeof(element), "element %llu",
                       p->cut_row * p->cols + atomic_load(&p->bad) - 1);
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "data", .tensor = t->name,
                        .what = p->is_log ? "a decay is not below 0"
                                          : "a weight is not a finite number",
                        .got = csn_str_from(element));
    }
    return CAISSON_OK;
}

static caisson_status read_pieces(const csn_source *s, const csn_convert_item *item, csn_pool *pool,
                                  csn_buf *buf, const csn_tensor_watch *watch, piece *p,
                                  caisson_error *err) {
    const csn_tensor *t = item->source;
    uint64_t rows, n_rows, row_bytes;
    source_grid(item, &rows, &p->cols);
    row_bytes = t->nbytes / rows; /* rows >= 1: dims were checked against arch */
    if (row_bytes == 0 || t->nbytes % rows != 0) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = t->name,
                        .what = "a rotated vector in a block dtype is not supported",
                        .got = csn_str_from(t->dtype->name));
    }
    n_rows = rows == 1 ? 1 : item->shape.dim[0];
    uint64_t step = row_bytes < CSN_PIECE_BYTES ? CSN_PIECE_BYTES / row_bytes : 1;
    for (uint64_t r = 0; r < n_rows; r += step) {
        uint64_t n = n_rows - r < step ? n_rows - r : step;
        size_t bytes = (size_t)(n * row_bytes);
        buf->len = 0;
        CSN_TRY(csn_buf_reserve(buf, bytes, err));
        CSN_TRY(csn_file_read_at(s->files[t->i_file], t->offset + (item->row0 + r) * row_bytes,
                                 buf->ptr, bytes, err));
        p->m = (csn_matrix){.dtype = t->dtype,
                            .data = (const uint8_t *)buf->ptr,
                            .nbytes = bytes,
                            .rows = n,
                            .cols = p->cols};
        p->row0 = r;
        p->n_rows = n;
        p->scale_row0 = item->row0 + r;
        csn_pool_run(pool, decode_rows, p);
        CSN_TRY(fail_if_bad(p, t, err));
        CSN_TRY(watch->fn(watch->ctx, bytes, err));
    }
    return CAISSON_OK;
}

caisson_status csn_tensor_read_payload(const csn_source *s, const csn_tensor *t,
                                       const csn_tensor_watch *watch, csn_buf *ret,
                                       caisson_error *err) {
    ret->len = 0;
    if (t->nbytes > ret->max) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = t->name, .what = "tensor is too large");
    }
    CSN_TRY(csn_buf_reserve(ret, (size_t)t->nbytes, err));
    ret->len = (size_t)t->nbytes;
    if (ret->len > 0) {
        CSN_TRY(csn_file_read_at(s->files[t->i_file], t->offset, ret->ptr, ret->len, err));
    }
    uint32_t i = (uint32_t)(t - s->dir->tensors);
    CSN_TRY(csn_cmf_check_tensor(s->cmf, i, csn_buf_view(ret).ptr, err));
    return watch->fn(watch->ctx, t->nbytes, err);
}

static caisson_status read_whole_f32(const csn_source *s, const csn_tensor *t, csn_pool *pool,
                                     csn_buf *buf, const csn_tensor_watch *watch, piece *p,
                                     caisson_error *err) {
    CSN_TRY(csn_tensor_read_payload(s, t, watch, buf, err));
    p->m = csn_matrix_make(t->dtype, &t->shape, csn_buf_view(buf).ptr, buf->len);
    p->n_rows = p->m.rows;
    p->cols = p->m.cols;
    csn_pool_run(pool, decode_rows, p);
    return fail_if_bad(p, t, err);
}

static void decode_warp_rows(void *ctx, unsigned i_thread, unsigned n_threads) {
    piece *p = ctx;
    uint64_t r0, r1;
    csn_share(p->n_rows, 1, i_thread, n_threads, &r0, &r1);
    for (uint64_t r = r0; r < r1; r++) {
        float *out = p->out + r * p->cols;
        csn_source_warp_decode(p->warp, r, out);
        for (uint64_t i = 0; i < p->cols; i++) {
            if (!isfinite(out[i])) {
                note_bad(p, r * p->cols + i);
                break;
            }
        }
    }
}

static caisson_status read_warp_f32(const csn_source *s, const csn_tensor *t, csn_pool *pool,
                                    csn_buf *buf, const csn_tensor_watch *watch, piece *p,
                                    caisson_error *err) {
    csn_warp_view rows;
    uint64_t n = 0;
    (void)csn_shape_count(&t->shape, &n);
    CSN_TRY(csn_source_warp_fetch(s, t, buf, err));
    CSN_TRY(csn_source_warp_view(s, t, buf, &rows, err));
    p->warp = &rows;
    p->n_rows = t->shape.dim[0];
    p->cols = n / p->n_rows;
    csn_pool_run(pool, decode_warp_rows, p);
    CSN_TRY(fail_if_bad(p, t, err));
    return watch->fn(watch->ctx, t->nbytes, err);
}

caisson_status csn_tensor_alloc_f32(const csn_convert_item *item, float **ret, uint64_t *ret_n,
                                    caisson_error *err) {
    uint64_t n, n_bytes;
    void *x;
    if (!csn_shape_count(&item->shape, &n) || !csn_mul(n, sizeof(float), &n_bytes) ||
        n_bytes > SIZE_MAX) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .tensor = item->name, .what = "tensor is too large");
    }
    CSN_TRY(csn_alloc_aligned((size_t)n_bytes, &x, err));
    *ret = x;
    *ret_n = n;
    return CAISSON_OK;
}

/* Two stacks of matrices, a head's keys turned and its values, as rows of each head in turn; the
 * item is a number of whole heads. */
static caisson_status read_kv_b(const csn_source *s, const csn_convert_item *item, csn_pool *pool,
                                csn_buf *buf, const csn_tensor_watch *watch, float *out,
                                caisson_error *err) {
    const uint64_t n_latent = item->shape.dim[1];
    const uint64_t n_keys = item->source->shape.dim[2], n_values = item->values->shape.dim[1];
    const uint64_t head0 = item->row0 / (n_keys + n_values);
    const uint64_t n_heads = item->shape.dim[0] / (n_keys + n_values);
    const csn_convert_item halves[2] = {{.source = item->source,
                                         .row0 = head0 * n_latent,
                                         .shape = {2, {n_heads * n_latent, n_keys}}},
                                        {.source = item->values,
                                         .row0 = head0 * n_values,
                                         .shape = {2, {n_heads * n_values, n_latent}}}};
    float *x = NULL;
    CSN_TRY(CSN_NEW((size_t)(n_heads * n_latent * (n_keys + n_values)), &x, err));
    float *values = x + n_heads * n_latent * n_keys;
    piece keys_piece = {.out = x};
    piece values_piece = {.out = values};
    caisson_status status = read_pieces(s, &halves[0], pool, buf, watch, &keys_piece, err);
    if (status == CAISSON_OK) {
        status = read_pieces(s, &halves[1], pool, buf, watch, &values_piece, err);
    }
    for (uint64_t h = 0; h < n_heads && status == CAISSON_OK; h++) {
        float *rows = out + h * (n_keys + n_values) * n_latent;
        for (uint64_t i = 0; i < n_keys * n_latent; i++) {
            rows[i] = x[(h * n_latent + i % n_latent) * n_keys + i / n_latent];
        }
        memcpy(rows + n_keys * n_latent, values + h * n_values * n_latent,
               (size_t)(n_values * n_latent) * sizeof(float));
    }
    csn_free(x);
    return status;
}

/* Rows of a container of ours, whose payloads have parts. */
static bool find_rows(const csn_source *s, const csn_tensor *t, csn_rows *ret) {
    csn_row_part parts[CSN_ROW_PARTS];
    csn_warp_range ranges[2] = {{t->offset, t->nbytes}};
    bool is_expert = s->warp != NULL && t->i_file > 0; /* coded, and never large */
    if (is_expert || t->shape.n_dims != 2 || csn_row_parts(t->dtype, t->shape.dim[1], parts) == 0) {
        return false;
    }
    if (s->warp != NULL) {
        (void)csn_warp_tensor_ranges(s->warp, (uint32_t)(t - s->dir->tensors), ranges);
    }
    csn_matrix m = csn_matrix_make(t->dtype, &t->shape, NULL, t->nbytes);
    *ret = csn_rows_in_file(&m, t->name, s->files[t->i_file], ranges[0].offset, ranges[0].nbytes,
                            ranges[1].offset);
    return true;
}

/* The hash of a .cmf is of the whole payload: it is checked with the first of the rows. */
static caisson_status read_rows(const csn_source *s, const csn_convert_item *item,
                                const csn_rows *rows, csn_pool *pool, csn_buf *buf,
                                const csn_tensor_watch *watch, piece *p, caisson_error *err) {
    const csn_tensor *t = item->source;
    uint64_t nbytes = csn_rows_nbytes(rows, item->shape.dim[0]);
    if (s->cmf != NULL && item->row0 == 0) {
        CSN_TRY(csn_cmf_check_in_file(s->cmf, (uint32_t)(t - s->dir->tensors), err));
    }
    buf->len = 0;
    CSN_TRY(csn_buf_reserve(buf, (size_t)nbytes, err));
    CSN_TRY(csn_rows_fetch(rows, item->row0, item->shape.dim[0], (uint8_t *)buf->ptr, &p->m, err));
    p->n_rows = p->m.rows;
    p->cols = p->m.cols;
    csn_pool_run(pool, decode_rows, p);
    CSN_TRY(fail_if_bad(p, t, err));
    return watch->fn(watch->ctx, nbytes, err);
}

uint64_t csn_tensor_row_unit(const csn_source *s, const csn_convert_item *item) {
    csn_rows ignored;
    if (s->is_synth || item->permute != 0 || item->is_flat || item->shape.n_dims != 2) {
        return 0;
    }
    if (item->values != NULL) {
        return item->source->shape.dim[2] + item->values->shape.dim[1];
    }
    bool is_ours = s->cmf != NULL || s->warp != NULL;
    return !is_ours || find_rows(s, item->source, &ignored) ? 1 : 0;
}

caisson_status csn_tensor_read_f32(const csn_source *s, const csn_convert_item *item,
                                   csn_pool *pool, csn_buf *buf, const csn_tensor_watch *watch,
                                   float *out, caisson_error *err) {
    piece p = {.permute = item->permute,
               .add = item->add,
               .is_log = item->is_log,
               .cut_row = item->cut_row,
               .out = out};
    float *scales = NULL;
    csn_rows rows;
    bool is_cut =
        (s->cmf != NULL || s->warp != NULL) && item->shape.dim[0] < item->source->shape.dim[0];
    if (is_cut && find_rows(s, item->source, &rows)) {
        return read_rows(s, item, &rows, pool, buf, watch, &p, err);
    }
    if (s->cmf != NULL) {
        return read_whole_f32(s, item->source, pool, buf, watch, &p, err);
    }
    if (s->warp != NULL) {
        return read_warp_f32(s, item->source, pool, buf, watch, &p, err);
    }
    if (s->is_synth) {
        csn_source_synth_fill(s, item, pool, out);
        return watch->fn(watch->ctx, csn_convert_item_bytes(s, item), err);
    }
    if (item->values != NULL) {
        return read_kv_b(s, item, pool, buf, watch, out, err);
    }
    if (item->scale != NULL) {
        CSN_TRY(read_whole(s, item->scale, &scales, err));
        p.scales = scales;
        p.n_scale_cols = item->scale->shape.dim[1];
    }
    caisson_status status = read_pieces(s, item, pool, buf, watch, &p, err);
    csn_free(scales);
    return status;
}

typedef struct measure {
    csn_matrix m;
    const float *x;
    uint64_t n;
    double *part; /* [n_chunks][2]: sums of (d - x)^2 and of x^2 */
} measure;

static void measure_chunks(void *ctx, unsigned i_thread, unsigned n_threads) {
    measure *me = ctx;
    float d[CHECK_GRAIN];
    uint64_t c0, c1, n_chunks = (me->n + CHECK_GRAIN - 1) / CHECK_GRAIN;
    csn_share(n_chunks, 1, i_thread, n_threads, &c0, &c1);
    for (uint64_t c = c0; c < c1; c++) {
        uint64_t i0 = c * CHECK_GRAIN;
        uint64_t n = me->n - i0 < CHECK_GRAIN ? me->n - i0 : CHECK_GRAIN;
        double num = 0, den = 0;
        me->m.dtype->decode(&me->m, i0, n, d);
        for (uint64_t i = 0; i < n; i++) {
            double x = (double)me->x[i0 + i], e = (double)d[i] - x;
            num += e * e;
            den += x * x;
        }
        me->part[2 * c] = num;
        me->part[2 * c + 1] = den;
    }
}

double csn_tensor_error_of(const double sums[2]) {
    return sums[1] > 0 ? sqrt(sums[0] / sums[1]) : 0;
}

caisson_status csn_tensor_error(const csn_convert_item *item, csn_str bytes, const float *x,
                                uint64_t n, csn_pool *pool, double *ret, caisson_error *err) {
    double sums[2];
    CSN_TRY(csn_tensor_error_sums(item, bytes, x, n, pool, sums, err));
    *ret = csn_tensor_error_of(sums);
    return CAISSON_OK;
}

caisson_status csn_tensor_error_sums(const csn_convert_item *item, csn_str bytes, const float *x,
                                     uint64_t n, csn_pool *pool, double ret[2],
                                     caisson_error *err) {
    uint64_t n_chunks = (n + CHECK_GRAIN - 1) / CHECK_GRAIN;
    measure me = {
        .m = csn_matrix_make(item->to, &item->shape, bytes.ptr, bytes.len), .x = x, .n = n};
    double num = 0, den = 0;
    CSN_TRY(CSN_NEW((size_t)n_chunks * 2, &me.part, err));
    csn_pool_run(pool, measure_chunks, &me);
    for (uint64_t c = 0; c < n_chunks; c++) {
        num += me.part[2 * c];
        den += me.part[2 * c + 1];
    }
    csn_free(me.part);
    ret[0] = num;
    ret[1] = den;
    return CAISSON_OK;
}

static bool has_inf_f16(const float *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if ((csn_f32_to_f16(x[i]) & 0x7c00u) == 0x7c00u) {
            return true;
        }
    }
    return false;
}

caisson_status csn_tensor_encode(const csn_dtype *to, const csn_shape *shape, const float *x,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    uint64_t n = 0;
    (void)csn_shape_count(shape, &n); /* x has so many */
    out->len = 0;
    if (to == csn_dtype_by_name(CSN_STR("f16")) && has_inf_f16(x, n)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "data",
                        .what = "a value that f16 cannot hold");
    }
    return to->encode(x, shape, options, pool, out, err);
}
