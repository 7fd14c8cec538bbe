/* SPDX-License-Identifier: Apache-2.0 */
/* The table of dtypes, finding a row, and what the files of this folder share. */
#include "quant/quant_internal.h"

#include <stdio.h>

const csn_dtype *const csn_dtypes[] = {
    /* CMF, in order of id */
    &csn_dtype_f32, &csn_dtype_f16, &csn_dtype_bf16, &csn_dtype_q8_row, &csn_dtype_q4_block,
    &csn_dtype_mix8_4, &csn_dtype_u8, &csn_dtype_q4_col, &csn_dtype_vbit, &csn_dtype_q8_2f,
    &csn_dtype_vbit_ro, &csn_dtype_q4_tiled, &csn_dtype_q1, &csn_dtype_q1s, &csn_dtype_q1t,
    &csn_dtype_q4tp, &csn_dtype_q2tp,
    /* other containers: WARP, GGUF, safetensors */
    &csn_dtype_q8g, &csn_dtype_q4g, &csn_dtype_q3g, &csn_dtype_q4_0, &csn_dtype_q4_1,
    &csn_dtype_q5_0, &csn_dtype_q5_1, &csn_dtype_q8_0, &csn_dtype_q2_k, &csn_dtype_q3_k,
    &csn_dtype_q4_k, &csn_dtype_q5_k, &csn_dtype_q6_k, &csn_dtype_iq4_nl, &csn_dtype_iq4_xs,
    &csn_dtype_mxfp4, &csn_dtype_f8_e4m3, &csn_dtype_f8_e5m2,
    /* known by name and size only (foreign.c) */
    &csn_dtype_q8_1, &csn_dtype_q8_k, &csn_dtype_iq2_xxs, &csn_dtype_iq2_xs, &csn_dtype_iq3_xxs,
    &csn_dtype_iq1_s, &csn_dtype_iq3_s, &csn_dtype_iq2_s, &csn_dtype_i8, &csn_dtype_i16,
    &csn_dtype_i32, &csn_dtype_i64, &csn_dtype_f64, &csn_dtype_iq1_m, &csn_dtype_tq1_0,
    &csn_dtype_tq2_0, &csn_dtype_nvfp4, &csn_dtype_q1_0, &csn_dtype_bool8, &csn_dtype_u8_raw,
    &csn_dtype_u16, &csn_dtype_u32, &csn_dtype_u64, &csn_dtype_f8_e8m0, NULL};

static bool same_word(csn_str a, const char *b) {
    size_t n = strlen(b);
    if (a.len != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = a.ptr[i];
        if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != b[i]) {
            return false;
        }
    }
    return true;
}

const csn_dtype *csn_dtype_by_name(csn_str name) {
    static const struct {
        const char *alias;
        const csn_dtype *dtype;
    } aliases[] = {{"q8", &csn_dtype_q8_row},
                   {"q8f", &csn_dtype_q8_2f},
                   {"q4", &csn_dtype_q4_block},
                   {"q4t", &csn_dtype_q4_tiled}};
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        if (same_word(name, csn_dtypes[i]->name)) {
            return csn_dtypes[i];
        }
    }
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (same_word(name, aliases[i].alias)) {
            return aliases[i].dtype;
        }
    }
    return NULL;
}

const csn_dtype *csn_dtype_by_cmf(unsigned id) {
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        if (csn_dtypes[i]->cmf_id != CSN_NO_ID && (unsigned)csn_dtypes[i]->cmf_id == id) {
            return csn_dtypes[i];
        }
    }
    return NULL;
}

const csn_dtype *csn_dtype_by_gguf(unsigned id) {
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        if (csn_dtypes[i]->gguf_id != CSN_NO_ID && (unsigned)csn_dtypes[i]->gguf_id == id) {
            return csn_dtypes[i];
        }
    }
    return NULL;
}

const csn_dtype *csn_dtype_by_warp(unsigned fmt) {
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        if (csn_dtypes[i]->warp_fmt != CSN_NO_ID && (unsigned)csn_dtypes[i]->warp_fmt == fmt) {
            return csn_dtypes[i];
        }
    }
    return NULL;
}

const csn_dtype *csn_dtype_by_safetensors(csn_str name) {
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        if (csn_dtypes[i]->safetensors != NULL && csn_str_is(name, csn_dtypes[i]->safetensors)) {
            return csn_dtypes[i];
        }
    }
    return NULL;
}

bool csn_shape_eq(const csn_shape *a, const csn_shape *b) {
    bool same = a->n_dims == b->n_dims;
    for (uint32_t i = 0; same && i < a->n_dims; i++) {
        same = a->dim[i] == b->dim[i];
    }
    return same;
}

bool csn_shape_count(const csn_shape *s, uint64_t *ret) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        if (!csn_mul(n, s->dim[i], &n)) {
            return false;
        }
    }
    *ret = n;
    return true;
}

const char *csn_shape_text(const csn_shape *s, char *buf, size_t n) {
    size_t at = 0;
    if (n == 0) {
        return buf;
    }
    for (uint32_t i = 0; i < s->n_dims && at < n; i++) {
        int k = snprintf(buf + at, n - at, "%s%" PRIu64, i == 0 ? "[" : ", ", s->dim[i]);
        at += k > 0 ? (size_t)k : 0;
    }
    if (at < n) {
        (void)snprintf(buf + at, n - at, s->n_dims == 0 ? "[]" : "]");
    }
    return buf;
}

void csn_shape_matrix(const csn_shape *s, uint64_t *rows, uint64_t *cols) {
    *rows = s->n_dims == 0 ? 1 : s->dim[0];
    *cols = 1;
    for (uint32_t i = 1; i < s->n_dims; i++) {
        *cols *= s->dim[i]; /* a checked shape; a zero dim elsewhere may let this wrap: see below */
    }
    if (*rows == 0) {
        *cols = 0; /* no elements: the product of the rest was never checked */
    }
}

uint32_t csn_row_parts(const csn_dtype *d, uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    uint32_t n = 0;
    if (d->row_parts != NULL) {
        return d->row_parts(cols, ret);
    }
    if (cols % CSN_GROUP != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < CSN_ROW_PARTS; i++) {
        const csn_payload_part *p = &d->parts[i];
        uint64_t of_row = cols / CSN_GROUP * p->of_32 + p->of_row;
        if (of_row != 0 || p->of_col != 0) {
            ret[n++] = (csn_row_part){of_row != 0 ? of_row : cols * p->of_col, p->of_col != 0};
        }
    }
    return n;
}

csn_matrix csn_matrix_make(const csn_dtype *d, const csn_shape *s, const void *data,
                           uint64_t nbytes) {
    csn_matrix m = {.dtype = d, .data = data, .nbytes = nbytes};
    csn_shape_matrix(s, &m.rows, &m.cols);
    return m;
}

caisson_status csn_fail_nbytes(caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "the shape's size does not fit in 64 bits");
}

caisson_status csn_shape_count_or_fail(const csn_shape *s, uint64_t *ret, caisson_error *err) {
    return csn_shape_count(s, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

caisson_status csn_shape_need_groups(const csn_shape *s, const char *what, caisson_error *err) {
    if (s->n_dims != 2 || s->dim[1] % CSN_GROUP != 0) {
        char text[160];
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = what,
                        CSN_TEXTS(CSN_STR("[rows, cols], cols a multiple of 32"),
                                  csn_str_from(csn_shape_text(s, text, sizeof(text)))));
    }
    return CAISSON_OK;
}

struct split {
    csn_encode_job *job;
    csn_encode_fn fn;
    uint64_t n_units;
};

static void run_share(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct split *s = ctx;
    uint64_t u0;
    uint64_t u1;
    csn_share(s->n_units, 1, i_thread, n_threads, &u0, &u1);
    if (u0 < u1) {
        s->fn(s->job, u0, u1);
    }
}

void csn_encode_split(csn_pool *pool, csn_encode_job *job, csn_encode_fn fn, uint64_t n_units) {
    csn_pool_run(pool, run_share, &(struct split){job, fn, n_units});
}

caisson_status csn_encode_room(csn_encode_job *job, uint64_t nbytes, csn_buf *out,
                               caisson_error *err) {
    out->len = 0;
    if (nbytes > SIZE_MAX) {
        return csn_fail_nbytes(err);
    }
    CSN_TRY(csn_buf_reserve(out, (size_t)nbytes, err));
    out->len = (size_t)nbytes;
    job->out = (uint8_t *)out->ptr;
    return CAISSON_OK;
}

caisson_status csn_encode_begin(const csn_dtype *d, const float *x, const csn_shape *shape,
                                const csn_encode_options *options, csn_buf *out,
                                csn_encode_job *ret, caisson_error *err) {
    uint64_t nbytes;
    *ret = (csn_encode_job){.dtype = d, .x = x, .options = options};
    csn_shape_matrix(shape, &ret->rows, &ret->cols);
    ret->n = ret->rows * ret->cols;
    if (d->nbytes == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(d->nbytes(shape, &nbytes, err));
    return csn_encode_room(ret, nbytes, out, err);
}

caisson_status csn_encoded_nbytes(const csn_dtype *d, const csn_shape *shape,
                                  const csn_encode_options *options, uint64_t *ret,
                                  caisson_error *err) {
    return d->nbytes != NULL ? d->nbytes(shape, ret, err)
                             : d->about_nbytes(shape, options, ret, err);
}

caisson_status csn_encode_end(const csn_encode_job *job, caisson_error *err) {
    if (atomic_load_explicit(&job->has_inf, memory_order_relaxed)) {
        const char *largest = job->largest;
        return CSN_FAIL(err, CAISSON_E_BOUNDS,
                        .what = largest != NULL ? "a value is too large for this dtype"
                                                : "a value is too large for the f16 of this dtype",
                        CSN_TEXTS(csn_str_from(largest != NULL ? largest : "at most 65504"),
                                  csn_str_from(job->dtype->name)));
    }
    return CAISSON_OK;
}
