/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include <stdatomic.h>

enum {
    PIECE_BYTES = 256 << 10, /* of weights: pieces that threads take in turn are not smaller */
    FINE_ROWS = 2048, /* rows whose two parts stay in cache until they are added; a kernel wants
                         long pieces (few_i8_avx2.h) */
    ROW_GRAIN = 16,   /* rows that one thread owns: a cache line of f32 results */
    VECTOR_GRAIN = 16 /* vectors of one share of csn_ops_each: a tile of keys */
};

struct each {
    csn_span_fn fn;
    void *ctx;
    uint64_t n;
};

static void run_each(void *ctx, unsigned i, unsigned k) {
    const struct each *e = ctx;
    uint64_t t0;
    uint64_t t1;
    csn_share(e->n, VECTOR_GRAIN, i, k, &t0, &t1);
    if (t0 < t1) {
        e->fn(e->ctx, t0, t1);
    }
}

void csn_ops_each(csn_ops *ops, uint64_t n, csn_span_fn fn, void *ctx) {
    if (n <= VECTOR_GRAIN) {
        if (n > 0) {
            fn(ctx, 0, n);
        }
        return;
    }
    csn_pool_run(ops->pool, run_each, &(struct each){fn, ctx, n});
}

struct linear {
    csn_ops *ops;
    const csn_linear *items;
    unsigned n_items;
    const float *x;
    uint64_t x_stride, n;
    csn_after_fn after;
    void *ctx;
    csn_x8 x8[CSN_MAX_LINEAR];
    int i_x8[CSN_MAX_LINEAR]; /* which x8 a product reads; -1: f32 activations */
    unsigned n_x8;
    unsigned n_pieces;
    _Atomic unsigned next; /* piece that no thread has taken */
};

struct prepare {
    const struct linear *l;
    unsigned i_x8;
    const csn_weight *w; /* whose column factors to apply, or NULL */
};

static void prepare_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct prepare *p = ctx;
    const struct linear *l = p->l;
    const csn_x8 *x8 = &l->x8[p->i_x8];
    if (p->w == NULL) {
        l->ops->quantise(l->x, l->x_stride, x8, t0, t1);
        return;
    }
    uint64_t cols = p->w->m.cols;
    float *scaled = l->ops->scaled;
    p->w->scale_x(&p->w->m, l->x + t0 * l->x_stride, l->x_stride, t1 - t0, scaled + t0 * cols);
    l->ops->quantise(scaled, cols, x8, t0, t1);
}

/* Quantises the input as often as the products need: once for all without column factors. */
static void prepare(struct linear *l) {
    int shared = -1;
    for (unsigned i = 0; i < l->n_items; i++) {
        const csn_weight *w = l->items[i].w;
        if (l->ops->compute != CSN_COMPUTE_INT8 || w->i8 == NULL) {
            l->i_x8[i] = -1;
            continue;
        }
        if (w->scale_x == NULL && shared >= 0) {
            l->i_x8[i] = shared;
            continue;
        }
        unsigned k = l->n_x8++;
        l->x8[k] = csn_x8_make(l->ops->x8[k], l->n, w->m.cols);
        l->i_x8[i] = (int)k;
        if (w->scale_x == NULL) {
            shared = (int)k;
        }
        struct prepare p = {l, k, w->scale_x != NULL ? w : NULL};
        csn_ops_each(l->ops, l->n, prepare_span, &p);
    }
}

/* Rows [r0, r1) of one product. */
static void run_rows(const struct linear *l, unsigned i_item, uint64_t r0, uint64_t r1) {
    const csn_linear *item = &l->items[i_item];
    const csn_weight *w = item->w;
    if (l->i_x8[i_item] >= 0) {
        w->i8(&w->m, &l->x8[l->i_x8[i_item]], l->n, item->y, item->y_stride, r0, r1);
    } else {
        w->f32(&w->m, l->x, l->x_stride, l->n, item->y, item->y_stride, r0, r1);
    }
    for (uint64_t t = 0; w->bias != NULL && t < l->n; t++) {
        l->ops->vec->add(item->y + t * item->y_stride + r0, w->bias + r0, r1 - r0);
    }
}

/* This thread's share of the rows in runs; i_item < 0: `after` on each piece instead. */
static void run_runs(const struct linear *l, const csn_runs *runs, int i_item, unsigned i_thread,
                     unsigned n_threads) {
    uint64_t a0;
    uint64_t a1;
    csn_share(runs->n_rows, ROW_GRAIN, i_thread, n_threads, &a0, &a1);
    for (uint32_t i = 0; i < runs->n; i++) {
        const csn_run *run = &runs->runs[i];
        uint64_t first = run->before > a0 ? run->before : a0;
        uint64_t end = run->before + (run->end - run->first);
        end = end < a1 ? end : a1;
        if (first >= end) {
            continue;
        }
        uint64_t r0 = run->first + (first - run->before);
        uint64_t r1 = run->first + (end - run->before);
        if (i_item >= 0) {
            run_rows(l, (unsigned)i_item, r0, r1);
        } else {
            l->after(l->ctx, l->n, r0, r1);
        }
    }
}

/* Each thread its share, where products have rows to leave out. */
static void run_masked(const struct linear *l, unsigned i_thread, unsigned n_threads) {
    uint64_t r0 = 0;
    uint64_t r1 = 0;
    for (unsigned i = 0; i < l->n_items; i++) {
        const csn_runs *runs = l->items[i].runs;
        if (runs != NULL) {
            run_runs(l, runs, (int)i, i_thread, n_threads);
            continue;
        }
        csn_share(l->items[i].w->rows, ROW_GRAIN, i_thread, n_threads, &r0, &r1);
        if (r0 < r1) {
            run_rows(l, i, r0, r1);
        }
    }
    if (l->after == NULL) {
        return;
    }
    if (l->items[0].runs != NULL) {
        run_runs(l, l->items[0].runs, -1, i_thread, n_threads);
    } else if (r0 < r1) {
        l->after(l->ctx, l->n, r0, r1);
    }
}

/* Piece i of k of all products' rows. */
static void run_piece(const struct linear *l, unsigned i, unsigned k) {
    uint64_t r0 = 0;
    uint64_t r1 = 0;
    for (unsigned j = 0; j < l->n_items; j++) {
        csn_share(l->items[j].w->rows, ROW_GRAIN, i, k, &r0, &r1);
        if (r0 < r1) {
            run_rows(l, j, r0, r1);
        }
    }
    if (l->after != NULL && r0 < r1) {
        l->after(l->ctx, l->n, r0, r1);
    }
}

static void run_linear(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct linear *l = ctx;
    if (l->n_pieces == 0) {
        run_masked(l, i_thread, n_threads);
    } else if (l->n_pieces == n_threads) {
        run_piece(l, i_thread, n_threads);
    } else {
        unsigned i;
        while ((i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->n_pieces) {
            run_piece(l, i, l->n_pieces);
        }
    }
}

/* Large products go in more pieces than there are threads, so that a slow one does less. 0: rows
 * are left out. */
static unsigned count_pieces(const struct linear *l) {
    unsigned n_threads = csn_pool_n_threads(l->ops->pool);
    uint64_t pieces = 0;
    for (unsigned i = 0; i < l->n_items; i++) {
        if (l->items[i].runs != NULL) {
            return 0;
        }
        pieces += l->items[i].w->m.nbytes / PIECE_BYTES;
    }
    return pieces < (uint64_t)4 * n_threads ? n_threads : pieces < 4096 ? (unsigned)pieces : 4096;
}

void csn_ops_linear(csn_ops *ops, const csn_linear *items, unsigned n_items, const float *x,
                    uint64_t x_stride, uint64_t n, csn_after_fn after, void *ctx) {
    struct linear l = {.ops = ops,
                       .items = items,
                       .n_items = n_items,
                       .x = x,
                       .x_stride = x_stride,
                       .n = n,
                       .after = after,
                       .ctx = ctx};
    if (n == 0) {
        return;
    }
    prepare(&l);
    l.n_pieces = count_pieces(&l);
    csn_pool_run(ops->pool, run_linear, &l);
}

struct fine {
    struct linear l;
    _Atomic uint64_t next; /* row that no thread has taken */
    csn_x8 x8;             /* [2n]: the vectors, then what they left over */
    float *parts;          /* [2n][y_stride] */
};

/* The second half of the vectors. */
static csn_x8 lower(const struct fine *f) {
    csn_x8 x = f->x8;
    x.q += f->l.n * x.q_stride;
    x.split += f->l.n * x.q_stride;
    x.scale += f->l.n * x.g_stride;
    x.offset += f->l.n * x.g_stride * 2;
    return x;
}

/* Vectors [t0, t1) of both halves. */
static void fine_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct fine *f = ctx;
    const struct linear *l = &f->l;
    const csn_weight *w = l->items[0].w;
    const csn_x8 low = lower(f);
    uint64_t cols = w->m.cols;
    float *rest = l->ops->scaled;
    if (w->scale_x != NULL) {
        w->scale_x(&w->m, l->x + t0 * l->x_stride, l->x_stride, t1 - t0, rest + t0 * cols);
    }
    for (uint64_t t = t0; t < t1; t++) {
        float *r = rest + t * cols;
        if (w->scale_x == NULL) {
            memcpy(r, l->x + t * l->x_stride, cols * sizeof(float));
        }
        l->ops->quantise(rest, cols, &f->x8, t, t + 1);
        const int8_t *q = f->x8.q + t * f->x8.q_stride;
        const float *scale = f->x8.scale + t * f->x8.g_stride;
        for (uint64_t i = 0; i < cols; i++) {
            r[i] -= scale[i / 32] * (float)q[i];
        }
    }
    l->ops->quantise(rest, cols, &low, t0, t1);
}

static void run_fine(void *ctx, unsigned i_thread, unsigned n_threads) {
    (void)i_thread;
    (void)n_threads;
    struct fine *f = ctx;
    const struct linear *l = &f->l;
    const csn_linear *item = &l->items[0];
    const csn_weight *w = item->w;
    const uint64_t stride = item->y_stride;
    uint64_t r0;
    while ((r0 = atomic_fetch_add_explicit(&f->next, FINE_ROWS, memory_order_relaxed)) < w->rows) {
        uint64_t n_rows = w->rows - r0 < FINE_ROWS ? w->rows - r0 : FINE_ROWS;
        w->i8(&w->m, &f->x8, 2 * l->n, f->parts, stride, r0, r0 + n_rows);
        for (uint64_t t = 0; t < l->n; t++) {
            float *y = item->y + t * stride + r0;
            memcpy(y, f->parts + t * stride + r0, n_rows * sizeof(float));
            l->ops->vec->add(y, f->parts + (l->n + t) * stride + r0, n_rows);
            if (w->bias != NULL) {
                l->ops->vec->add(y, w->bias + r0, n_rows);
            }
        }
        if (l->after != NULL) {
            l->after(l->ctx, l->n, r0, r0 + n_rows);
        }
    }
}

void csn_ops_linear_fine(csn_ops *ops, const csn_linear *item, const float *x, uint64_t x_stride,
                         uint64_t n, float *parts, csn_after_fn after, void *ctx) {
    const csn_weight *w = item->w;
    if (ops->compute != CSN_COMPUTE_INT8 || w->i8 == NULL) {
        csn_ops_linear(ops, item, 1, x, x_stride, n, after, ctx);
        return;
    }
    struct fine f = {.l = {.ops = ops,
                           .items = item,
                           .n_items = 1,
                           .x = x,
                           .x_stride = x_stride,
                           .n = n,
                           .after = after,
                           .ctx = ctx},
                     .x8 = csn_x8_make(ops->x8[0], 2 * n, w->m.cols),
                     .parts = parts};
    csn_ops_each(ops, n, fine_span, &f);
    csn_pool_run(ops->pool, run_fine, &f);
}
