/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fit.h"

#include <math.h>

#include "base/base64.h"
#include "quant/half.h"

enum { ITERATIONS = 50 };

static double dot(const double *a, const double *b, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* x = x / |x|; false when there is nothing left of it. */
static bool normalise(double *x, uint32_t n) {
    double length = sqrt(dot(x, x, n));
    for (uint32_t i = 0; length > 1e-12 && i < n; i++) {
        x[i] /= length;
    }
    return length > 1e-12;
}

/* The direction v of the largest spread of the rows r [n][hidden], which are then without it. */
static bool take_direction(double *r, uint32_t n, uint32_t hidden, double *v, double *next) {
    for (uint32_t i = 0; i < hidden; i++) {
        v[i] = 1;
    }
    (void)normalise(v, hidden);
    for (int k = 0; k < ITERATIONS; k++) {
        memset(next, 0, hidden * sizeof(*next));
        for (uint32_t t = 0; t < n; t++) {
            const double *row = r + (uint64_t)t * hidden;
            double p = dot(row, v, hidden);
            for (uint32_t i = 0; i < hidden; i++) {
                next[i] += p * row[i];
            }
        }
        if (!normalise(next, hidden)) {
            return false;
        }
        memcpy(v, next, hidden * sizeof(*v));
    }
    for (uint32_t t = 0; t < n; t++) {
        double *row = r + (uint64_t)t * hidden;
        double p = dot(row, v, hidden);
        for (uint32_t i = 0; i < hidden; i++) {
            row[i] -= p * v[i];
        }
    }
    return true;
}

caisson_status csn_selection_fit(const float *phi, uint32_t n, uint32_t hidden, uint32_t rank,
                                 float *mean, float *basis, uint32_t *ret_rank,
                                 caisson_error *err) {
    double *memory; /* the rows, less their mean; v; next */
    CSN_TRY(CSN_NEW(((size_t)n + 2) * hidden, &memory, err));
    double *v = memory + (size_t)n * hidden;
    for (uint32_t i = 0; i < hidden; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < n; t++) {
            sum += (double)phi[(size_t)t * hidden + i];
        }
        mean[i] = (float)(sum / n);
        for (uint32_t t = 0; t < n; t++) {
            memory[(size_t)t * hidden + i] = (double)phi[(size_t)t * hidden + i] - sum / n;
        }
    }
    rank = rank < n - 1 ? rank : n - 1;
    rank = rank < CSN_FIT_MAX_RANK ? rank : CSN_FIT_MAX_RANK;
    uint32_t k = 0;
    while (k < rank && take_direction(memory, n, hidden, v, v + hidden)) {
        for (uint32_t i = 0; i < hidden; i++) {
            basis[(size_t)k * hidden + i] = (float)v[i];
        }
        k++;
    }
    csn_free(memory);
    *ret_rank = k;
    return CAISSON_OK;
}

static void round_f16(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        x[i] = csn_f16_to_f32(csn_f32_to_f16(x[i]));
    }
}

void csn_selection_measure(csn_cmf_selection *s, const float *phi, uint32_t n, uint32_t hidden) {
    double sum = 0;
    double squares = 0;
    double raw;
    round_f16(s->mean, hidden);
    round_f16(s->basis, (size_t)s->rank * hidden);
    for (uint32_t t = 0; t < n; t++) {
        (void)csn_selection_error(s, phi + (size_t)t * hidden, hidden, &raw);
        sum += raw;
        squares += raw * raw;
    }
    double mean = sum / n;
    double variance = squares / n - mean * mean;
    s->err_mean = (float)mean;
    s->err_std = (float)sqrt(variance > 0 ? variance : 0);
}

static void put_f16(csn_jw *w, csn_str key, const float *x, size_t n) {
    csn_buf bytes = CSN_BUF_INIT(n * 2);
    csn_buf text = CSN_BUF_INIT(csn_base64_len(n * 2));
    caisson_status s = csn_buf_reserve(&bytes, n * 2, w->err);
    for (size_t i = 0; s == CAISSON_OK && i < n; i++) {
        uint16_t h = csn_f32_to_f16(x[i]);
        bytes.ptr[bytes.len++] = (char)(h & 0xff);
        bytes.ptr[bytes.len++] = (char)(h >> 8);
    }
    if (s == CAISSON_OK) {
        s = csn_base64_append(&text, csn_buf_view(&bytes).ptr, bytes.len, w->err);
    }
    csn_jw_key(w, key);
    csn_jw_str(w, csn_buf_view(&text));
    if (s != CAISSON_OK && w->status == CAISSON_OK) {
        w->status = s;
    }
    csn_buf_free(&bytes);
    csn_buf_free(&text);
}

void csn_selection_write(csn_jw *w, const csn_cmf_selection *s, uint32_t hidden) {
    csn_jw_object(w);
    csn_jw_put_str(w, "metric", s->is_unit ? CSN_STR("mse_unit") : CSN_STR("mse"));
    csn_jw_put_u64(w, "phi_layer", s->phi_layer);
    put_f16(w, CSN_STR("mean"), s->mean, hidden);
    put_f16(w, CSN_STR("basis"), s->basis, (size_t)s->rank * hidden);
    csn_jw_put_u64(w, "rank", s->rank);
    csn_jw_put_f32(w, "err_mean", s->err_mean);
    csn_jw_put_f32(w, "err_std", s->err_std);
    if (s->n_holdout > 0) {
        put_f16(w, CSN_STR("holdout"), s->holdout, (size_t)s->n_holdout * hidden);
        csn_jw_put_u64(w, "holdout_n", s->n_holdout);
    }
    csn_jw_object_end(w);
}
