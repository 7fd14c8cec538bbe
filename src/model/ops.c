/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include <stdatomic.h>

enum {
    PIECE_BYTES = 512 << 10, /* of weights: pieces that threads take in turn are not smaller */
    START_BYTES = 2048,      /* fetched of the next product's streams before one is begun */
    AHEAD_BYTES = 128 << 10, /* fetched of the next region's while waiting: a quarter of an L2 */
    SHORT_RUN = 32,          /* rows: runs that are shorter on average are read row by row */
    ROW_GRAIN = 16,          /* rows that one thread owns: a cache line of f32 results */
    VECTOR_GRAIN = 16        /* vectors of one share of csn_ops_each: a tile of keys */
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
    bool is_normed;
    bool is_decoding; /* few vectors: rows are read from memory in streams */
    csn_x8 x8[CSN_MAX_LINEAR];
    int i_x8[CSN_MAX_LINEAR]; /* which x8 a product reads; -1: f32 activations */
    unsigned n_x8;
    unsigned n_pieces;
    _Atomic unsigned next; /* piece that no thread has taken; thread i begins with piece i */
};

/* Whether the largest elements of a product's input are multiplied in f32. */
static bool keeps_exact(const struct linear *l, const csn_weight *w) {
    return l->is_normed && w->i8_exact != NULL;
}

struct prepare {
    const struct linear *l;
    unsigned i_x8;
    const csn_weight *w; /* the first that reads it */
};

static void prepare_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct prepare *p = ctx;
    const struct linear *l = p->l;
    const csn_weight *w = p->w;
    const csn_x8 *x8 = &l->x8[p->i_x8];
    uint64_t cols = w->m.cols;
    float *scaled = l->ops->scaled;
    if (w->scale_x != NULL) {
        w->scale_x(&w->m, l->x + t0 * l->x_stride, l->x_stride, t1 - t0, scaled + t0 * cols);
    } else if (keeps_exact(l, w)) {
        for (uint64_t t = t0; t < t1; t++) {
            memcpy(scaled + t * cols, l->x + t * l->x_stride, cols * sizeof(float));
        }
    } else {
        l->ops->quantise(l->x, l->x_stride, x8, t0, t1);
        return;
    }
    for (uint64_t t = t0; keeps_exact(l, w) && t < t1; t++) {
        l->ops->take_exact(scaled + t * cols, x8, t);
    }
    l->ops->quantise(scaled, cols, x8, t0, t1);
}

/* Quantises the input as often as the products need: once for all that take it whole, once for all
 * that keep elements exact, once for each with column factors. */
static void prepare(struct linear *l) {
    int shared[2] = {-1, -1};
    for (unsigned i = 0; i < l->n_items; i++) {
        const csn_weight *w = l->items[i].w;
        if (l->ops->compute != CSN_COMPUTE_INT8 || w->i8 == NULL) {
            l->i_x8[i] = -1;
            continue;
        }
        int *same = &shared[keeps_exact(l, w)];
        if (w->scale_x == NULL && *same >= 0) {
            l->i_x8[i] = *same;
            continue;
        }
        unsigned k = l->n_x8++;
        l->x8[k] = csn_x8_make(l->ops->x8[k], l->n, w->m.cols);
        l->i_x8[i] = (int)k;
        if (w->scale_x == NULL) {
            *same = (int)k;
        }
        struct prepare p = {l, k, w};
        csn_ops_each(l->ops, l->n, prepare_span, &p);
    }
}

/* Rows [r0, r1) of one product. */
static void run_rows(const struct linear *l, unsigned i_item, uint64_t r0, uint64_t r1) {
    const csn_linear *item = &l->items[i_item];
    const csn_weight *w = item->w;
    if (l->i_x8[i_item] >= 0) {
        const csn_x8 *x8 = &l->x8[l->i_x8[i_item]];
        csn_matmul_i8_fn multiply = keeps_exact(l, w) ? w->i8_exact : w->i8;
        multiply(&w->m, x8, l->n, item->y, item->y_stride, r0, r1);
    } else {
        w->f32(&w->m, l->x, l->x_stride, l->n, item->y, item->y_stride, r0, r1);
    }
    for (uint64_t t = 0; w->bias != NULL && t < l->n; t++) {
        l->ops->vec->add(item->y + t * item->y_stride + r0, w->bias + r0, r1 - r0);
    }
}

/* Rows [a0, a1) of those in runs, counted from 0. */
static void run_runs(const struct linear *l, unsigned i_item, uint64_t a0, uint64_t a1) {
    const csn_linear *item = &l->items[i_item];
    const csn_runs *runs = item->runs;
    const csn_weight *w = item->w;
    if (l->is_decoding && w->i8_rows != NULL && w->bias == NULL &&
        runs->n_rows < SHORT_RUN * (uint64_t)runs->n) {
        w->i8_rows(&w->m, &l->x8[l->i_x8[i_item]], l->n, keeps_exact(l, w), item->y, item->y_stride,
                   runs->rows + a0, a1 - a0);
        return;
    }
    for (uint32_t i = 0; i < runs->n; i++) {
        const csn_run *run = &runs->runs[i];
        uint64_t first = run->before > a0 ? run->before : a0;
        uint64_t end = run->before + (run->end - run->first);
        end = end < a1 ? end : a1;
        if (first < end) {
            run_rows(l, i_item, run->first + (first - run->before),
                     run->first + (end - run->before));
        }
    }
}

/* Each thread its share, where products have rows to leave out. */
static void run_masked(const struct linear *l, unsigned i_thread, unsigned n_threads) {
    uint64_t r0 = 0; /* what `after` works on */
    uint64_t r1 = 0;
    for (unsigned i = 0; i < l->n_items; i++) {
        const csn_runs *runs = l->items[i].runs;
        uint64_t n = runs != NULL ? runs->n_rows : l->items[i].w->rows;
        csn_share(n, ROW_GRAIN, i_thread, n_threads, &r0, &r1);
        if (r0 == r1) {
            continue;
        }
        if (runs == NULL) {
            run_rows(l, i, r0, r1);
        } else {
            run_runs(l, i, r0, r1);
            r0 = runs->rows[r0];
            r1 = (uint64_t)runs->rows[r1 - 1] + 1;
        }
    }
    if (l->after != NULL && r0 < r1) {
        l->after(l->ctx, l->n, r0, r1);
    }
}

/* The streams of rows (docs/decisions/003-streams-of-rows.md) of piece i of k, `most` bytes in all.
 */
static csn_ahead_span span_of(const csn_weight *w, unsigned i, unsigned k, uint64_t most) {
    uint64_t row_bytes = w->m.cols * w->m.dtype->bytes_of_32 / 32;
    uint64_t r0;
    uint64_t r1;
    csn_share(w->rows, ROW_GRAIN, i, k, &r0, &r1);
    uint64_t apart = (r1 - r0) / CSN_AHEAD_STREAMS * row_bytes;
    most /= CSN_AHEAD_STREAMS;
    return (csn_ahead_span){(uintptr_t)w->m.data + r0 * row_bytes, apart,
                            apart < most ? apart : most};
}

/* Piece i of k of all products' rows. */
static void run_piece(const struct linear *l, unsigned i, unsigned k) {
    uint64_t r0 = 0;
    uint64_t r1 = 0;
    for (unsigned j = 0; j < l->n_items; j++) {
        if (l->is_decoding && j + 1 < l->n_items) {
            csn_ahead_span next = span_of(l->items[j + 1].w, i, k, START_BYTES);
            csn_ahead_fetch(next.first, next.apart, next.nbytes);
        }
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
        for (unsigned i = i_thread; i < l->n_pieces;
             i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) {
            run_piece(l, i, l->n_pieces);
        }
    }
}

/* Large products go in more pieces than there are threads, so that a slow one does less. */
static unsigned count_pieces(uint64_t nbytes, unsigned n_threads) {
    uint64_t pieces = nbytes / PIECE_BYTES;
    return pieces < (uint64_t)4 * n_threads ? n_threads : pieces < 4096 ? (unsigned)pieces : 4096;
}

/* As count_pieces; 0: rows are left out. */
static unsigned count_pieces_of(const struct linear *l) {
    uint64_t nbytes = 0;
    for (unsigned i = 0; i < l->n_items; i++) {
        if (l->items[i].runs != NULL) {
            return 0;
        }
        nbytes += l->items[i].w->m.nbytes;
    }
    return count_pieces(nbytes, csn_pool_n_threads(l->ops->pool));
}

/* Tells the pool what each thread reads first of the products that follow. */
static void look_ahead(csn_ops *ops, bool is_decoding) {
    unsigned n_threads = csn_pool_n_threads(ops->pool);
    uint64_t nbytes = 0;
    unsigned n = 0;
    for (; is_decoding && n < CSN_MAX_LINEAR && ops->next[n] != NULL; n++) {
        nbytes += ops->next[n]->m.nbytes;
    }
    unsigned n_pieces = count_pieces(nbytes, n_threads);
    for (unsigned i = 0; i < n_threads; i++) {
        csn_ahead_span spans[CSN_MAX_LINEAR];
        uint64_t left = AHEAD_BYTES;
        for (unsigned j = 0; j < n; j++) {
            spans[j] = span_of(ops->next[j], i, n_pieces, left);
            left -= CSN_AHEAD_STREAMS * spans[j].nbytes;
        }
        csn_pool_ahead(ops->pool, i, spans, n);
    }
    csn_ops_expect(ops, NULL, NULL, NULL);
}

static void run(csn_ops *ops, struct linear l) {
    l.ops = ops;
    for (unsigned i = 0; ops->tap != NULL && ops->tap->input != NULL && i < l.n_items; i++) {
        ops->tap->input(ops->tap->ctx, l.items[i].w, l.x, l.x_stride, l.n);
    }
    if (l.n != 0) {
        prepare(&l);
        l.n_pieces = count_pieces_of(&l);
        l.next = csn_pool_n_threads(ops->pool);
        l.is_decoding = ops->compute == CSN_COMPUTE_INT8 && l.n <= CSN_FEW_VECTORS;
        look_ahead(ops, l.is_decoding);
        csn_pool_run(ops->pool, run_linear, &l);
    }
}

void csn_ops_expect(csn_ops *ops, const csn_weight *a, const csn_weight *b, const csn_weight *c) {
    ops->next[0] = a;
    ops->next[1] = b;
    ops->next[2] = c;
}

void csn_ops_linear(csn_ops *ops, const csn_linear *items, unsigned n_items, const float *x,
                    uint64_t x_stride, uint64_t n, csn_after_fn after, void *ctx) {
    run(ops, (struct linear){.items = items,
                             .n_items = n_items,
                             .x = x,
                             .x_stride = x_stride,
                             .n = n,
                             .after = after,
                             .ctx = ctx});
}

void csn_ops_linear_normed(csn_ops *ops, const csn_linear *items, unsigned n_items, const float *x,
                           uint64_t x_stride, uint64_t n, csn_after_fn after, void *ctx) {
    run(ops, (struct linear){.items = items,
                             .n_items = n_items,
                             .x = x,
                             .x_stride = x_stride,
                             .n = n,
                             .after = after,
                             .ctx = ctx,
                             .is_normed = true});
}
