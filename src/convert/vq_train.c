/* SPDX-License-Identifier: Apache-2.0 */
/* Residual k-means. Sums are taken over a fixed number of parts of the sample, one after the other,
 * so that threads change no bit. */
#include <assert.h>

#include "base/alloc.h"
#include "convert/vq_encode.h"
#include "convert/vq_scale.h"
#include "quant/half.h"

enum { N_PARTS = 64, ITERATIONS = 20 };

caisson_status csn_vq_sample(const float *x, uint32_t rows, uint32_t cols, csn_random *r,
                             uint32_t most, float *out, uint32_t *ret_n, caisson_error *err) {
    uint32_t nv = cols / CSN_VQ_DIM, *order;
    uint64_t n = (uint64_t)rows * nv;
    if (n > UINT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "a matrix of too many weights",
                        CSN_VALUES((uint64_t)UINT32_MAX * CSN_VQ_DIM, n * CSN_VQ_DIM));
    }
    CSN_TRY(CSN_NEW((size_t)n, &order, err));
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    *ret_n = n < most ? (uint32_t)n : most;
    for (uint32_t i = 0; i < *ret_n; i++) { /* the first steps of a shuffle */
        uint32_t k = i + csn_random_below(r, (uint32_t)n - i), pick = order[k];
        order[k] = order[i];
        const float *row = x + (uint64_t)(pick / nv) * cols;
        float scale = csn_vq_divisor(csn_vq_scale(row, cols));
        for (int d = 0; d < CSN_VQ_DIM; d++) {
            out[(uint64_t)i * CSN_VQ_DIM + d] = row[pick % nv * CSN_VQ_DIM + d] / scale;
        }
    }
    csn_free(order);
    return CAISSON_OK;
}

typedef struct part_sum {
    double sum[CSN_VQ_MAX_ENTRIES][CSN_VQ_DIM];
    uint32_t n[CSN_VQ_MAX_ENTRIES];
} part_sum;

typedef struct trainer {
    float *x; /* [n][8] what the stages so far leave */
    uint32_t n, entries;
    csn_vq_nearest_fn nearest;
    csn_vq_search search;
    float entry[CSN_VQ_MAX_ENTRIES][CSN_VQ_DIM];
    uint8_t *index;  /* [n] */
    part_sum *parts; /* [N_PARTS] */
} trainer;

static void sum_part(trainer *t, uint64_t i0, uint64_t i1, part_sum *p) {
    memset(p, 0, sizeof(*p));
    t->nearest(&t->search, t->x + i0 * CSN_VQ_DIM, i1 - i0, t->index + i0);
    for (uint64_t i = i0; i < i1; i++) {
        double *sum = p->sum[t->index[i]];
        p->n[t->index[i]]++;
        for (int d = 0; d < CSN_VQ_DIM; d++) {
            sum[d] += (double)t->x[i * CSN_VQ_DIM + d];
        }
    }
}

static void sum_parts(void *ctx, unsigned i_thread, unsigned n_threads) {
    trainer *t = ctx;
    uint64_t p0, p1;
    csn_share(N_PARTS, 1, i_thread, n_threads, &p0, &p1);
    for (uint64_t p = p0; p < p1; p++) {
        sum_part(t, t->n * p / N_PARTS, t->n * (p + 1) / N_PARTS, &t->parts[p]);
    }
}

/* Each entry to the mean of its vectors; one without any stays. */
static void move_entries(trainer *t) {
    for (uint32_t c = 0; c < t->entries; c++) {
        double sum[CSN_VQ_DIM] = {0};
        uint64_t n = 0;
        for (int p = 0; p < N_PARTS; p++) {
            n += t->parts[p].n[c];
            for (int d = 0; d < CSN_VQ_DIM; d++) {
                sum[d] += t->parts[p].sum[c][d];
            }
        }
        for (int d = 0; d < CSN_VQ_DIM && n > 0; d++) {
            t->entry[c][d] = (float)(sum[d] / (double)n);
        }
    }
}

/* Different vectors of the sample, as long as there are enough. */
static caisson_status draw_entries(trainer *t, csn_random *r, caisson_error *err) {
    uint32_t *order;
    CSN_TRY(CSN_NEW(t->n, &order, err));
    for (uint32_t i = 0; i < t->n; i++) {
        order[i] = i;
    }
    for (uint32_t c = 0; c < t->entries && t->n > 0; c++) {
        uint32_t i = c % t->n, k = i + csn_random_below(r, t->n - i), pick = order[k];
        order[k] = order[i];
        order[i] = pick;
        memcpy(t->entry[c], t->x + (uint64_t)pick * CSN_VQ_DIM, sizeof(t->entry[c]));
    }
    csn_free(order);
    return CAISSON_OK;
}

static void subtract_nearest(void *ctx, unsigned i_thread, unsigned n_threads) {
    trainer *t = ctx;
    uint64_t i0, i1;
    csn_share(t->n, 1, i_thread, n_threads, &i0, &i1);
    t->nearest(&t->search, t->x + i0 * CSN_VQ_DIM, i1 - i0, t->index + i0);
    for (uint64_t i = i0; i < i1; i++) {
        for (int d = 0; d < CSN_VQ_DIM; d++) {
            t->x[i * CSN_VQ_DIM + d] -= t->entry[t->index[i]][d];
        }
    }
}

static caisson_status train_stage(trainer *t, csn_random *r, csn_pool *pool, uint16_t *ret,
                                  caisson_error *err) {
    CSN_TRY(draw_entries(t, r, err));
    for (int k = 0; k < ITERATIONS; k++) {
        csn_vq_search_init(&t->search, t->entry[0], t->entries);
        csn_pool_run(pool, sum_parts, t);
        move_entries(t);
    }
    for (uint32_t c = 0; c < t->entries; c++) {
        for (int d = 0; d < CSN_VQ_DIM; d++) {
            uint16_t h = csn_warp_book_half(t->entry[c][d]);
            t->entry[c][d] = csn_half_to_f32(h);
            *ret++ = h;
        }
    }
    csn_vq_search_init(&t->search, t->entry[0], t->entries);
    csn_pool_run(pool, subtract_nearest, t);
    return CAISSON_OK;
}

caisson_status csn_vq_train(float *x, uint32_t n, const csn_warp_coding *coding, csn_random *r,
                            csn_pool *pool, uint16_t *ret, caisson_error *err) {
    trainer *t;
    assert(n > 0);
    CSN_TRY(CSN_NEW(1, &t, err));
    t->x = x;
    t->n = n;
    t->entries = coding->entries;
    t->nearest = csn_kernel_vq_nearest();
    caisson_status status = CSN_NEW(n, &t->index, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(N_PARTS, &t->parts, err);
    }
    for (uint32_t s = 0; s < coding->stages && status == CAISSON_OK; s++) {
        status = train_stage(t, r, pool, ret + (size_t)s * coding->entries * CSN_VQ_DIM, err);
    }
    csn_free(t->parts);
    csn_free(t->index);
    csn_free(t);
    return status;
}
