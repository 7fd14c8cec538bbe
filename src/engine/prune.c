/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prune.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

struct pruner {
    const csn_plan *plan;
    const csn_arch *arch;
    const csn_calibration *calibration;
    const csn_prune_options *o;
    uint8_t *ffn, *heads, *experts; /* rows of the mask */
    uint64_t n_all, n_off;          /* neurons and experts */
};

struct unit {
    double score;
    uint32_t i;
};

/* The best first; of equals the one in front. */
static int compare(const void *a, const void *b) {
    const struct unit *x = a;
    const struct unit *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->i > y->i) - (x->i < y->i);
}

static void set_bits(uint8_t *bits, uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; i++) {
        bits[i / 8] |= (uint8_t)(1u << (i % 8));
    }
}

/* Sorts n units and marks the items of those that stay, each `width` items of n_items; at least
 * n_least stay. */
static uint64_t keep_best(struct unit *units, uint32_t n, float sparsity, uint32_t n_least,
                          uint64_t width, uint64_t n_items, uint8_t *bits) {
    uint32_t n_keep = n - (uint32_t)lround((double)sparsity * n);
    n_keep = n_keep > n_least ? n_keep : n_least;
    n_keep = n_keep < n ? n_keep : n;
    qsort(units, n, sizeof(*units), compare);
    uint64_t n_kept = 0;
    for (uint32_t k = 0; k < n_keep; k++) {
        uint64_t first = units[k].i * width;
        uint64_t end = first + width < n_items ? first + width : n_items;
        set_bits(bits, first, end);
        n_kept += end - first;
    }
    return n_kept;
}

/* score [cols]: mean square of each input times the sum of squares of its column. */
static caisson_status score_columns(const struct pruner *p, const csn_weight *w, double *score,
                                    caisson_error *err) {
    const csn_columns *c = csn_calibration_find(p->calibration, w->name);
    float *row;
    memset(score, 0, (size_t)w->m.cols * sizeof(*score));
    if (c == NULL || c->n == 0) {
        return CAISSON_OK; /* nothing reached it */
    }
    CSN_TRY(CSN_NEW((size_t)w->m.cols, &row, err));
    for (uint64_t r = 0; r < w->m.rows; r++) {
        w->m.dtype->decode(&w->m, r * w->m.cols, w->m.cols, row);
        for (uint64_t i = 0; i < w->m.cols; i++) {
            score[i] += (double)row[i] * (double)row[i];
        }
    }
    for (uint64_t i = 0; i < w->m.cols; i++) {
        score[i] *= c->sum_squares[i] / (double)c->n;
    }
    csn_free(row);
    return CAISSON_OK;
}

/* Marks of w's input columns, in units of `width`, those that stay. */
static caisson_status prune_columns(struct pruner *p, const csn_weight *w, uint64_t width,
                                    float sparsity, uint8_t *bits, uint64_t *ret_n_kept,
                                    caisson_error *err) {
    double *score = NULL;
    struct unit *units = NULL;
    uint32_t n = (uint32_t)((w->m.cols + width - 1) / width);
    caisson_status status = CSN_NEW((size_t)w->m.cols, &score, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(n, &units, err);
    }
    if (status == CAISSON_OK) {
        status = score_columns(p, w, score, err);
    }
    if (status == CAISSON_OK) {
        for (uint32_t u = 0; u < n; u++) {
            units[u].i = u;
        }
        for (uint64_t i = 0; i < w->m.cols; i++) {
            units[i / width].score += score[i];
        }
        *ret_n_kept = keep_best(units, n, sparsity, 1, width, w->m.cols, bits);
    }
    csn_free(score);
    csn_free(units);
    return status;
}

static caisson_status prune_heads(struct pruner *p, uint32_t i_layer, caisson_error *err) {
    const csn_layer *l = &p->plan->layers[i_layer];
    uint8_t *bits = p->heads + i_layer * csn_bit_row_bytes(p->arch->n_heads);
    if (p->o->head_sparsity ==
        0) { /* of linear attention all of arch's heads mean all of its own */
        set_bits(bits, 0, l->kda != NULL ? p->arch->n_heads : l->n_heads);
        return CAISSON_OK;
    }
    if (l->n_heads > p->arch->n_heads) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "masks",
                        .what = "a layer of linear attention has more heads than masks can name",
                        CSN_AT(i_layer), CSN_VALUES(p->arch->n_heads, l->n_heads));
    }
    uint64_t width = l->o.m.cols / l->n_heads;
    uint8_t *columns; /* bits of o_proj's columns */
    uint64_t ignored;
    CSN_TRY(CSN_NEW((size_t)csn_bit_row_bytes(l->o.m.cols), &columns, err));
    caisson_status status =
        prune_columns(p, &l->o, width, p->o->head_sparsity, columns, &ignored, err);
    for (uint32_t h = 0; h < l->n_heads && status == CAISSON_OK; h++) {
        if (csn_bit(columns, h * width)) {
            set_bits(bits, h, (uint64_t)h + 1);
        }
    }
    csn_free(columns);
    return status;
}

static caisson_status prune_experts(struct pruner *p, uint32_t i_layer, caisson_error *err) {
    const csn_moe *moe = p->plan->layers[i_layer].moe;
    struct unit *units;
    CSN_TRY(CSN_NEW(moe->n_experts, &units, err));
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        const csn_columns *c = csn_calibration_find(p->calibration, moe->experts[e].gate.name);
        units[e] = (struct unit){c != NULL ? (double)c->n : 0, e};
    }
    uint8_t *bits = p->experts + i_layer * csn_bit_row_bytes(p->arch->moe.n_experts);
    uint64_t n_kept =
        keep_best(units, moe->n_experts, p->o->sparsity, moe->top_k, 1, moe->n_experts, bits);
    csn_free(units);
    p->n_all += moe->n_experts;
    p->n_off += moe->n_experts - n_kept;
    return CAISSON_OK;
}

/* All visits of a layer keep the same neurons: the calibration counted them together. */
static caisson_status prune_ffn(struct pruner *p, uint32_t i_layer, caisson_error *err) {
    const csn_layer *l = &p->plan->layers[i_layer];
    uint64_t row_bytes = csn_bit_row_bytes(p->arch->intermediate_size);
    uint8_t *bits = p->ffn + i_layer * row_bytes;
    if (l->moe != NULL) { /* its neurons have no mask; a row that is all on says so */
        set_bits(bits, 0, p->arch->intermediate_size);
        CSN_TRY(prune_experts(p, i_layer, err));
    } else {
        uint64_t n_kept;
        uint64_t width = p->o->scattered ? 1 : CSN_PRUNE_RUN;
        CSN_TRY(prune_columns(p, &l->down, width, p->o->sparsity, bits, &n_kept, err));
        p->n_all += l->ffn;
        p->n_off += l->ffn - n_kept;
        if (p->experts != NULL) {
            set_bits(p->experts + i_layer * csn_bit_row_bytes(p->arch->moe.n_experts), 0,
                     p->arch->moe.n_experts);
        }
    }
    for (uint32_t v = i_layer + p->plan->n_layers; v < csn_plan_n_visits(p->plan);
         v += p->plan->n_layers) {
        memcpy(p->ffn + v * row_bytes, bits, (size_t)row_bytes);
    }
    return CAISSON_OK;
}

static caisson_status check_share(float share, caisson_error *err) {
    if (!(share >= 0.0f && share < 1.0f)) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "a sparsity is at least 0 and below 1");
    }
    return CAISSON_OK;
}

caisson_status csn_prune(const csn_model *m, const csn_calibration *c,
                         const csn_prune_options *options, csn_arena *arena, csn_cmf_mask *ret,
                         caisson_error *err) {
    const csn_arch *a = csn_model_arch(m);
    struct pruner p = {.plan = csn_model_plan(m), .arch = a, .calibration = c, .o = options};
    uint32_t n_visits = csn_plan_n_visits(p.plan);
    uint8_t *gates;
    CSN_TRY(check_share(options->sparsity, err));
    CSN_TRY(check_share(options->head_sparsity, err));
    CSN_TRY(CSN_ARENA_NEW(arena, n_visits * csn_bit_row_bytes(a->intermediate_size), &p.ffn, err));
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers * csn_bit_row_bytes(a->n_heads), &p.heads, err));
    CSN_TRY(CSN_ARENA_NEW(arena, csn_bit_row_bytes(a->n_layers), &gates, err));
    if (a->moe.present) {
        CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers * csn_bit_row_bytes(a->moe.n_experts), &p.experts,
                              err));
    }
    set_bits(gates, 0, a->n_layers);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        CSN_TRY(prune_heads(&p, i, err));
        CSN_TRY(prune_ffn(&p, i, err));
    }
    *ret = (csn_cmf_mask){.priority = CSN_STR("Normal"),
                          .sparsity = p.n_all > 0 ? (float)((double)p.n_off / (double)p.n_all) : 0,
                          .n_ffn_rows = n_visits,
                          .ffn = p.ffn,
                          .heads = p.heads,
                          .gates = gates,
                          .experts = p.experts};
    return CAISSON_OK;
}
