/* SPDX-License-Identifier: Apache-2.0 */
#include "model/packed.h"

#include <string.h>

#include "quant/cut.h"

enum {
    GROUP = 32, /* columns that share a scale of activations */
    LANES = 8,  /* group g adds to lane g mod LANES */
    ALIGN = 64
};

struct packer {
    const csn_active *a;
    csn_arena *arena; /* of what is made */
    uint8_t *memory;  /* NULL: only counted */
    uint64_t nbytes;
};

/* One matrix behind those that are there. */
static csn_weight cut_weight(struct packer *p, const csn_weight *w, const csn_cut *cut) {
    csn_matrix m = csn_cut_shape(&w->m, cut);
    if (p->memory != NULL) {
        m = csn_cut_make(&w->m, cut, p->memory + p->nbytes);
    }
    p->nbytes += (m.nbytes + ALIGN - 1) / ALIGN * ALIGN;
    return csn_weight_make(&m, w->name);
}

static caisson_status cut_rows(struct packer *p, const csn_weight *w, const csn_runs *ffn,
                               csn_weight *ret, caisson_error *err) {
    *ret = cut_weight(p, w, &(csn_cut){.rows = ffn->rows, .n_rows = ffn->n_rows});
    if (w->bias != NULL) {
        float *bias;
        CSN_TRY(CSN_ARENA_NEW(p->arena, ffn->n_rows, &bias, err));
        for (uint32_t i = 0; i < ffn->n_rows; i++) {
            bias[i] = w->bias[ffn->rows[i]];
        }
        ret->bias = bias;
    }
    return CAISSON_OK;
}

/* Columns [first, end) that stay: whole groups that hold an active neuron, and in front of each as
 * many others as keep its lane. Returns how many spans. */
static uint64_t find_spans(const csn_runs *ffn, csn_span *spans) {
    const uint64_t unit = (uint64_t)GROUP * LANES;
    uint64_t n = 0;
    for (uint32_t i = 0; i < ffn->n; i++) {
        uint64_t first = ffn->runs[i].first / GROUP * GROUP;
        uint64_t end = ((uint64_t)ffn->runs[i].end + GROUP - 1) / GROUP * GROUP;
        uint64_t last = n > 0 ? spans[n - 1].end : 0;
        uint64_t gap = first > last ? first - last : 0;
        if (n > 0 && gap < unit) {
            spans[n - 1].end = end > last ? end : last;
        } else {
            spans[n++] = (csn_span){first - gap % unit, end};
        }
    }
    return n;
}

/* Where in what is left of down_proj the active neurons are; NULL when that is all of it. */
static caisson_status find_columns(struct packer *p, const csn_runs *ffn, const csn_span *spans,
                                   uint64_t n_cols, const uint32_t **ret, caisson_error *err) {
    uint32_t *at;
    *ret = NULL;
    if (n_cols == ffn->n_rows) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(p->arena, ffn->n_rows, &at, err));
    uint64_t before = 0; /* columns in front of the span */
    for (uint32_t i = 0; i < ffn->n_rows; i++) {
        while (ffn->rows[i] >= spans->end) {
            before += spans->end - spans->first;
            spans++;
        }
        at[i] = (uint32_t)(before + ffn->rows[i] - spans->first);
    }
    *ret = at;
    return CAISSON_OK;
}

static caisson_status cut_columns(struct packer *p, const csn_weight *w, const csn_runs *ffn,
                                  csn_packed_ffn *ret, caisson_error *err) {
    csn_span *spans;
    CSN_TRY(CSN_ARENA_NEW(p->arena, ffn->n, &spans, err));
    const csn_cut cut = {.cols = spans, .n_cols = find_spans(ffn, spans)};
    uint64_t n_cols = csn_cut_shape(&w->m, &cut).cols;
    ret->down = *w;
    if (n_cols < w->m.cols) {
        ret->down = cut_weight(p, w, &cut);
        ret->down.bias = w->bias;
    }
    return find_columns(p, ffn, spans, n_cols, &ret->at, err);
}

static bool is_same(const csn_runs *a, const csn_runs *b) {
    return a != NULL && a->n == b->n && memcmp(a->runs, b->runs, a->n * sizeof(*a->runs)) == 0;
}

static caisson_status pack_visit(struct packer *p, const csn_plan *plan, uint32_t i,
                                 csn_packed_ffn **packed, caisson_error *err) {
    const csn_layer *l = &plan->layers[i % plan->n_layers];
    const csn_runs *ffn = p->a->visits[i].ffn;
    if (ffn == NULL || ffn->n == 0 || !csn_can_cut(&l->gate.m) || !csn_can_cut(&l->up.m) ||
        !csn_can_cut(&l->down.m)) {
        return CAISSON_OK;
    }
    if (i >= plan->n_layers && is_same(p->a->visits[i - plan->n_layers].ffn, ffn)) {
        packed[i] = packed[i - plan->n_layers];
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &packed[i], err));
    CSN_TRY(cut_rows(p, &l->gate, ffn, &packed[i]->gate, err));
    CSN_TRY(cut_rows(p, &l->up, ffn, &packed[i]->up, err));
    return cut_columns(p, &l->down, ffn, packed[i], err);
}

/* All visits; the copies go to p->memory, or are only counted. */
static caisson_status pack(struct packer *p, const csn_plan *plan, csn_packed_ffn ***ret,
                           caisson_error *err) {
    uint32_t n_visits = csn_plan_n_visits(plan);
    CSN_TRY(CSN_ARENA_NEW(p->arena, n_visits, ret, err));
    for (uint32_t i = 0; i < n_visits; i++) {
        CSN_TRY(pack_visit(p, plan, i, *ret, err));
    }
    return CAISSON_OK;
}

caisson_status csn_packed_nbytes(const csn_active *a, const csn_plan *plan, uint64_t *ret,
                                 caisson_error *err) {
    csn_arena arena = {0};
    csn_packed_ffn **packed;
    struct packer p = {.a = a, .arena = &arena};
    caisson_status status = pack(&p, plan, &packed, err);
    csn_arena_done(&arena);
    if (status == CAISSON_OK) {
        *ret = p.nbytes > 0 ? csn_alloc_aligned_nbytes(p.nbytes) : 0;
    }
    return status;
}

caisson_status csn_packed_make(csn_active *a, const csn_plan *plan, caisson_error *err) {
    csn_packed_ffn **packed;
    uint64_t nbytes;
    CSN_TRY(csn_packed_nbytes(a, plan, &nbytes, err));
    if (nbytes == 0) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_alloc_aligned((size_t)nbytes, (void **)&a->packed, err));
    struct packer p = {.a = a, .arena = &a->arena, .memory = a->packed};
    CSN_TRY(pack(&p, plan, &packed, err));
    for (uint32_t i = 0; i < csn_plan_n_visits(plan); i++) {
        a->visits[i].packed = packed[i];
    }
    return CAISSON_OK;
}
