/* SPDX-License-Identifier: Apache-2.0 */
/* Indices stage by stage, each the nearest entry to what the stages before leave. */
#include "convert/vq_encode.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/le.h"
#include "convert/vq_scale.h"

void csn_vq_encoder_init(csn_vq_encoder *e, const csn_warp_coding *coding, const uint16_t *books) {
    e->coding = coding;
    for (uint32_t s = 0; s < coding->stages; s++) {
        for (uint32_t i = 0; i < coding->entries * CSN_VQ_DIM; i++) {
            e->entry[s][i / CSN_VQ_DIM][i % CSN_VQ_DIM] = csn_half_to_f32(*books++);
        }
        csn_vq_search_init(&e->search[s], e->entry[s][0], coding->entries);
    }
}

/* One row at work. */
typedef struct scratch {
    float *left, *sum; /* [cols] what is still to be coded; what is coded, over the scale */
    uint8_t *index;    /* [stages][cols / 8] */
} scratch;

typedef struct job {
    const csn_vq_encoder *e;
    csn_vq_nearest_fn nearest;
    const float *x;
    uint32_t rows, cols;
    uint8_t *index, *scale;
    csn_vq_error *errors; /* [rows] */
    scratch *scratch;     /* [threads] */
    atomic_bool has_inf;
} job;

static void put_indices(const job *j, uint32_t row, const scratch *s) {
    const csn_warp_coding *coding = j->e->coding;
    uint32_t nv = j->cols / CSN_VQ_DIM, per = coding->is_packed ? 3 : coding->stages;
    for (uint32_t v = 0; v < nv; v++) {
        uint64_t at = ((uint64_t)(row / CSN_VQ_BLOCK) * nv + v) * CSN_VQ_BLOCK + row % CSN_VQ_BLOCK;
        uint8_t *out = j->index + at * per;
        if (coding->is_packed) {
            uint32_t w = 0;
            for (uint32_t k = 0; k < coding->stages; k++) {
                w |= (uint32_t)s->index[k * nv + v] << 6 * k;
            }
            csn_put16(out, (uint16_t)w);
            out[2] = (uint8_t)(w >> 16);
        } else {
            for (uint32_t k = 0; k < coding->stages; k++) {
                out[k] = s->index[k * nv + v];
            }
        }
    }
}

/* E(scale) = whole - 2 scale xq + scale^2 qq for the indices that were found. */
static double error_of(double whole, double xq, double qq, uint16_t scale) {
    double s = (double)csn_half_to_f32(scale);
    return whole - 2 * s * xq + s * s * qq;
}

static uint16_t best_scale(const float *x, const float *q, uint32_t n, uint16_t scale,
                           csn_vq_error *ret) {
    double xx = 0, xq = 0, qq = 0;
    for (uint32_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)q[i];
        xx += a * a;
        xq += a * b;
        qq += b * b;
    }
    double lost = error_of(xx, xq, qq, scale);
    if (xq > 0 && xq / qq <= 65504) {
        uint16_t other = csn_half_from_f32((float)(xq / qq));
        double less = error_of(xx, xq, qq, other);
        if (less < lost) {
            lost = less;
            scale = other;
        }
    }
    *ret = (csn_vq_error){lost > 0 ? lost : 0, xx};
    return scale;
}

static void encode_row(job *j, uint32_t row, scratch *s) {
    const float *x = j->x + (uint64_t)row * j->cols;
    uint32_t nv = j->cols / CSN_VQ_DIM;
    uint16_t scale = csn_vq_scale(x, j->cols);
    float divisor = csn_vq_divisor(scale);
    if ((scale & 0x7c00) == 0x7c00) {
        atomic_store(&j->has_inf, true);
        return;
    }
    for (uint32_t i = 0; i < j->cols; i++) {
        s->left[i] = x[i] / divisor;
        s->sum[i] = 0;
    }
    for (uint32_t k = 0; k < j->e->coding->stages; k++) {
        uint8_t *index = s->index + (size_t)k * nv;
        j->nearest(&j->e->search[k], s->left, nv, index);
        for (uint32_t v = 0; v < nv; v++) {
            const float *entry = j->e->entry[k][index[v]];
            for (uint32_t d = 0; d < CSN_VQ_DIM; d++) {
                s->left[v * CSN_VQ_DIM + d] -= entry[d];
                s->sum[v * CSN_VQ_DIM + d] += entry[d];
            }
        }
    }
    put_indices(j, row, s);
    csn_put16(j->scale + 2 * (size_t)row, best_scale(x, s->sum, j->cols, scale, &j->errors[row]));
}

static void encode_rows(void *ctx, unsigned i_thread, unsigned n_threads) {
    job *j = ctx;
    uint64_t r0, r1;
    csn_share(j->rows, CSN_VQ_BLOCK, i_thread, n_threads, &r0, &r1);
    for (uint64_t r = r0; r < r1; r++) {
        encode_row(j, (uint32_t)r, &j->scratch[i_thread]);
    }
}

static caisson_status make_scratch(job *j, unsigned n, caisson_error *err) {
    uint32_t nv = j->cols / CSN_VQ_DIM;
    CSN_TRY(CSN_NEW(n, &j->scratch, err));
    for (unsigned i = 0; i < n; i++) {
        CSN_TRY(CSN_NEW(j->cols, &j->scratch[i].left, err));
        CSN_TRY(CSN_NEW(j->cols, &j->scratch[i].sum, err));
        CSN_TRY(CSN_NEW((size_t)nv * j->e->coding->stages, &j->scratch[i].index, err));
    }
    return CSN_NEW(j->rows, &j->errors, err);
}

static void free_scratch(job *j, unsigned n) {
    for (unsigned i = 0; i < n && j->scratch != NULL; i++) {
        csn_free(j->scratch[i].left);
        csn_free(j->scratch[i].sum);
        csn_free(j->scratch[i].index);
    }
    csn_free(j->scratch);
    csn_free(j->errors);
}

caisson_status csn_vq_encode(const csn_vq_encoder *e, const float *x, uint32_t rows, uint32_t cols,
                             csn_pool *pool, uint8_t *index, uint8_t *scale, csn_vq_error *ret,
                             caisson_error *err) {
    job j = {.e = e,
             .nearest = csn_kernel_vq_nearest(),
             .x = x,
             .rows = rows,
             .cols = cols,
             .index = index,
             .scale = scale};
    const csn_vq_books books = {.stages = e->coding->stages,
                                .entries = e->coding->entries,
                                .is_packed = e->coding->is_packed};
    unsigned n = csn_pool_n_threads(pool);
    uint64_t n_bytes = 0;
    if (!csn_vq_index_nbytes(&books, rows, cols, CSN_VQ_BLOCK, &n_bytes)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED,
                        .what = "vectors of 8 weights need rows of a multiple of 8",
                        CSN_VALUES(CSN_VQ_DIM, cols));
    }
    caisson_status status = make_scratch(&j, n, err);
    if (status == CAISSON_OK) {
        memset(index, 0, (size_t)n_bytes); /* rows that fill the last block up */
        csn_pool_run(pool, encode_rows, &j);
        if (atomic_load(&j.has_inf)) {
            status = CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "data",
                              .what = "a weight that the scale of a row cannot hold (binary16)");
        }
    }
    *ret = (csn_vq_error){0};
    for (uint32_t r = 0; r < rows && status == CAISSON_OK; r++) {
        ret->lost += j.errors[r].lost;
        ret->whole += j.errors[r].whole;
    }
    free_scratch(&j, n);
    return status;
}
