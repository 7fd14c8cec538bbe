/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/calibrate.h"

#include <math.h>

#include "base/alloc.h"
#include "engine/window.h"

/* The weights of a forward pass come in the same order each time: the search goes on where the last
 * one ended. */
static csn_columns *find(csn_calibration *c, csn_str name) {
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t i = (c->next + k) % c->n;
        if (csn_str_eq(c->weights[i].name, name)) {
            c->next = i + 1;
            return &c->weights[i];
        }
    }
    return NULL;
}

static csn_columns *add(csn_calibration *c, const csn_weight *w, caisson_error *err) {
    if (c->n == c->capacity) {
        uint32_t capacity = c->capacity != 0 ? 2 * c->capacity : 256;
        csn_columns *more;
        if (CSN_NEW(capacity, &more, err) != CAISSON_OK) {
            return NULL;
        }
        if (c->n > 0) {
            memcpy(more, c->weights, c->n * sizeof(*more));
        }
        csn_free(c->weights);
        c->weights = more;
        c->capacity = capacity;
    }
    csn_columns *added = &c->weights[c->n];
    *added = (csn_columns){.name = w->name, .cols = w->m.cols};
    if (CSN_NEW((size_t)w->m.cols, &added->sum_squares, err) != CAISSON_OK) {
        return NULL;
    }
    c->next = ++c->n;
    return added;
}

struct watch {
    csn_session *session;
    csn_calibration *c;
    caisson_error *err;
};

static void see_input(void *ctx, const csn_weight *w, const float *x, uint64_t x_stride,
                      uint64_t n) {
    const struct watch *watch = ctx;
    csn_calibration *c = watch->c;
    if (c->status != CAISSON_OK) {
        return;
    }
    csn_columns *columns = find(c, w->name);
    if (columns == NULL) {
        columns = add(c, w, watch->err);
    }
    if (columns == NULL) {
        c->status = CAISSON_E_NOMEM;
        return;
    }
    columns->n += n;
    for (uint64_t t = 0; t < n; t++) {
        const float *row = x + t * x_stride;
        for (uint64_t i = 0; i < columns->cols; i++) {
            columns->sum_squares[i] += (double)row[i] * (double)row[i];
        }
    }
}

/* The head reads what its logits are asked for: of every position. */
static caisson_status pass_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    (void)ctx;
    (void)i;
    (void)logits;
    (void)err;
    return CAISSON_OK;
}

static caisson_status run_window(void *ctx, const int32_t *ids, uint32_t n,
                                 const csn_progress *progress, caisson_error *err) {
    const struct watch *w = ctx;
    csn_session_truncate(w->session, 0);
    CSN_TRY(csn_session_eval(w->session, ids, n, true, pass_row, NULL, progress, err));
    if (w->c->status != CAISSON_OK) {
        *err = *w->err;
    }
    return w->c->status;
}

caisson_status csn_calibrate(csn_session *s, const int32_t *ids, uint64_t n, int32_t bos,
                             const csn_progress *progress, csn_calibration *ret,
                             caisson_error *err) {
    csn_calibration c = {0};
    caisson_error full;
    struct watch watch = {s, &c, &full};
    const csn_tap tap = {.input = see_input, .ctx = &watch};
    csn_session_set_tap(s, &tap);
    caisson_status status = csn_windows_run(ids, n, bos, csn_session_n_ctx(s), "calibrate",
                                            progress, run_window, &watch, err);
    csn_session_set_tap(s, NULL);
    csn_session_truncate(s, 0);
    if (status != CAISSON_OK) {
        csn_calibration_done(&c);
        return status;
    }
    *ret = c;
    return CAISSON_OK;
}

void csn_calibration_done(csn_calibration *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        csn_free(c->weights[i].sum_squares);
    }
    csn_free(c->weights);
    *c = (csn_calibration){0};
}

const csn_columns *csn_calibration_find(const csn_calibration *c, csn_str name) {
    for (uint32_t i = 0; i < c->n; i++) {
        if (csn_str_eq(c->weights[i].name, name)) {
            return &c->weights[i];
        }
    }
    return NULL;
}

void csn_columns_rms(const csn_columns *w, float *out) {
    for (uint64_t i = 0; i < w->cols; i++) {
        out[i] = w->n == 0 ? 0.0f : (float)sqrt(w->sum_squares[i] / (double)w->n);
    }
}
