/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention in its absorbed form (warp facts 14): what is cached of a position is one row,
 * the latent and the rotated part of the key, which all heads share. A head's query goes through
 * the K rows of kv_b_proj instead of every key, its mixed latent through the V rows instead of
 * every value. Threads take items in turn: some heads, some queries. */
#include <stdatomic.h>
#include <string.h>

#include "model/blocks/blocks.h"

enum {
    QUERY_TILE = 32, /* queries of one item */
    ITEM_ROWS = 32,  /* queries times heads of one item, at most */
    K_ROWS = 16      /* rows of kv_b_proj decoded at once: with 512 latents an L1 */
};

struct latent {
    csn_ops *ops;
    const csn_plan *plan;
    const csn_layer *l;
    const csn_mla *mla;
    csn_kv *cache;
    csn_kv_head kv;
    const csn_active_visit *active;
    const csn_runs *live; /* its heads; NULL = all */
    uint32_t n_live;
    uint32_t pos0, half;
    uint64_t row0, n;
    csn_attn_memory mem;
    const float *cos, *sin;  /* [n][half] */
    uint64_t scratch_stride; /* floats of one thread */
    uint32_t n_group;
    uint64_t n_items, n_tiles;
    _Atomic uint64_t next;
};

static uint32_t row_dim(const csn_mla *mla) {
    return mla->n_latent + mla->n_rope;
}

/* Number of the i-th head that runs. */
static uint32_t head_at(const struct latent *a, uint32_t i) {
    return a->live != NULL ? a->live->rows[i] : i;
}

static void rotate(const struct latent *a, float *x, uint64_t t) {
    const float *cos = a->cos + t * a->half;
    const float *sin = a->sin + t * a->half;
    if (a->mla->has_pairs) {
        a->ops->vec->rope_pairs(x, cos, sin, a->half);
    } else {
        a->ops->vec->rope(x, cos, sin, a->half);
    }
}

static void prepare_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct latent *a = ctx;
    const csn_mla *mla = a->mla;
    uint64_t head = (uint64_t)mla->n_nope + mla->n_rope;
    for (uint64_t t = t0; t < t1; t++) {
        float *row = a->mem.k + t * row_dim(mla);
        a->ops->vec->rms_norm(row, mla->kv_a_norm, mla->norm_eps, row, mla->n_latent);
        rotate(a, row + mla->n_latent, t);
        csn_kv_note(a->cache, a->ops->vec->kv_store(&a->kv, a->pos0 + (uint32_t)t, row, NULL));
        float *q = a->mem.q + t * a->l->n_heads * head;
        for (uint32_t i = 0; i < a->n_live; i++) {
            rotate(a, q + head_at(a, i) * head + mla->n_nope, t);
        }
    }
}

/* What an item computes, in one thread's scratch. */
struct item {
    uint32_t i_head, n_heads; /* of those that run */
    uint64_t t0, n;
    float *q;     /* [n][n_heads][row_dim] */
    float *mixed; /* [n][n_heads][n_latent] */
    float *k;     /* [K_ROWS][n_latent] */
    float *v;     /* rows of kv_b_proj at v[row], vectors n_v apart */
    float *attend;
};

/* Queries of head h as they meet cached rows: the K rows' sum, weighed by the query, and the
 * rotated part. */
static void absorb(const struct latent *a, const struct item *it, uint32_t i_head) {
    const csn_mla *mla = a->mla;
    uint32_t h = head_at(a, it->i_head + i_head);
    uint64_t head = (uint64_t)mla->n_nope + mla->n_rope;
    uint64_t q_stride = a->l->n_heads * head;
    const float *from = a->mem.q + it->t0 * q_stride + h * head;
    uint64_t stride = (uint64_t)it->n_heads * row_dim(mla);
    float *to = it->q + (uint64_t)i_head * row_dim(mla);
    for (uint64_t t = 0; t < it->n; t++) {
        memset(to + t * stride, 0, mla->n_latent * sizeof(float));
        memcpy(to + t * stride + mla->n_latent, from + t * q_stride + mla->n_nope,
               mla->n_rope * sizeof(float));
    }
    const csn_matrix *w = &mla->kv_b.m;
    uint64_t row = (uint64_t)h * (mla->n_nope + mla->n_v);
    for (uint32_t i = 0; i < mla->n_nope; i += K_ROWS) {
        uint32_t n_rows = mla->n_nope - i < K_ROWS ? mla->n_nope - i : K_ROWS;
        w->dtype->decode(w, (row + i) * mla->n_latent, (uint64_t)n_rows * mla->n_latent, it->k);
        a->ops->vec->add_rows(to, stride, from + i, q_stride, it->n, it->k, mla->n_latent, n_rows,
                              mla->n_latent);
    }
}

/* The V rows of head h over its mixed latents. */
static void expand(const struct latent *a, const struct item *it, uint32_t i_head) {
    const csn_mla *mla = a->mla;
    uint32_t h = head_at(a, it->i_head + i_head);
    uint64_t row = (uint64_t)h * (mla->n_nope + mla->n_v) + mla->n_nope;
    mla->kv_b.f32(&mla->kv_b.m, it->mixed + (uint64_t)i_head * mla->n_latent,
                  (uint64_t)it->n_heads * mla->n_latent, it->n, it->v, mla->n_v, row,
                  row + mla->n_v);
    for (uint64_t t = 0; t < it->n; t++) {
        float *out = a->mem.out + ((it->t0 + t) * a->l->n_heads + h) * mla->n_v;
        memcpy(out, it->v + t * mla->n_v + row, mla->n_v * sizeof(float));
    }
}

static void run_item(const struct latent *a, const struct item *it) {
    const csn_mla *mla = a->mla;
    for (uint32_t i = 0; i < it->n_heads; i++) {
        absorb(a, it, i);
    }
    csn_attend work = {.kv = a->kv,
                       .q = it->q,
                       .out = it->mixed,
                       .q_stride = (uint64_t)it->n_heads * row_dim(mla),
                       .out_stride = (uint64_t)it->n_heads * mla->n_latent,
                       .n_group = it->n_heads,
                       .n_queries = (uint32_t)it->n,
                       .pos0 = a->pos0 + (uint32_t)it->t0,
                       .scale = mla->scale,
                       .softcap = a->plan->attn_softcap,
                       .scratch = it->attend};
    a->ops->vec->attend(&work);
    for (uint32_t i = 0; i < it->n_heads; i++) {
        expand(a, it, i);
    }
}

static void run_items(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct latent *a = ctx;
    (void)n_threads;
    const csn_mla *mla = a->mla;
    struct item it = {.q = a->mem.scratch + i_thread * a->scratch_stride};
    it.mixed = it.q + (uint64_t)ITEM_ROWS * row_dim(mla);
    it.k = it.mixed + (uint64_t)ITEM_ROWS * mla->n_latent;
    it.attend = it.k + (uint64_t)K_ROWS * mla->n_latent;
    it.v = it.attend + csn_attend_scratch(row_dim(mla), ITEM_ROWS);
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed);
        if (i >= a->n_items) {
            return;
        }
        /* the last queries see the most keys: they go first */
        uint64_t tile = a->n_tiles - 1 - i % a->n_tiles;
        it.i_head = (uint32_t)(i / a->n_tiles) * a->n_group;
        it.n_heads = a->n_live - it.i_head < a->n_group ? a->n_live - it.i_head : a->n_group;
        it.t0 = a->row0 + tile * QUERY_TILE;
        it.n = a->n - it.t0 < QUERY_TILE ? a->n - it.t0 : QUERY_TILE;
        run_item(a, &it);
    }
}

static uint64_t scratch_floats(const csn_layer *l) {
    const csn_mla *mla = l->mla;
    uint64_t n = (uint64_t)ITEM_ROWS * (row_dim(mla) + mla->n_latent) +
                 (uint64_t)K_ROWS * mla->n_latent + csn_attend_scratch(row_dim(mla), ITEM_ROWS) +
                 mla->kv_b.m.rows + (uint64_t)QUERY_TILE * mla->n_v;
    return (n + 15) / 16 * 16;
}

uint64_t csn_mla_scratch(const csn_plan *plan, unsigned n_threads) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        uint64_t n = plan->layers[i].mla != NULL ? scratch_floats(&plan->layers[i]) : 0;
        most = n > most ? n : most;
    }
    return most * n_threads;
}

/* Heads of an item: as many as share one reading of the cache, in equal parts for the threads. */
static uint32_t heads_per_item(const struct latent *a, unsigned n_threads) {
    uint64_t queries = a->n - a->row0 < QUERY_TILE ? a->n - a->row0 : QUERY_TILE;
    uint64_t most = ITEM_ROWS / queries > 0 ? ITEM_ROWS / queries : 1;
    uint64_t n_items = (a->n_live + most - 1) / most;
    if (a->n_tiles == 1) {
        n_items = (n_items + n_threads - 1) / n_threads * n_threads;
    }
    return (uint32_t)((a->n_live + n_items - 1) / n_items);
}

static void gate_span(void *ctx, uint64_t t0, uint64_t t1) {
    static const csn_vec_act sigmoid = {.kind = CSN_VEC_SIGMOID};
    const struct latent *a = ctx;
    uint64_t width = (uint64_t)a->l->n_heads * a->mla->n_v;
    uint64_t row0 = t0 + a->row0;
    a->ops->vec->act_mul(&sigmoid, a->mem.gate + row0 * width, a->mem.out + row0 * width,
                         (t1 - t0) * width);
}

/* Of heads that are left out: zero, and a gate that keeps it so. */
static void clear_results(const struct latent *a) {
    size_t nbytes = (size_t)(a->n * a->l->n_heads * a->mla->n_v) * sizeof(float);
    memset(a->mem.out, 0, nbytes);
    if (a->mla->gate != NULL) {
        memset(a->mem.gate, 0, nbytes);
    }
}

/* The projections of x: queries to mem.q, rows of the cache to mem.k, the gate. */
static void project(struct latent *a, const float *x) {
    const csn_mla *mla = a->mla;
    const csn_attn_memory *mem = &a->mem;
    uint64_t q_rows = mla->q.rows;
    const csn_runs *q_runs = a->live != NULL ? a->active->q : NULL;
    csn_linear items[3] = {{&mla->q, mem->q, q_rows, q_runs},
                           {&mla->kv_a, mem->k, row_dim(mla), NULL}};
    unsigned n_items = 2;
    if (mla->gate != NULL) {
        const csn_runs *runs = a->live != NULL ? a->active->kv : NULL;
        items[n_items++] = (csn_linear){mla->gate, mem->gate, mla->gate->rows, runs};
    }
    if (mla->q_a == NULL) {
        csn_ops_expect(a->ops, &a->l->o, NULL, NULL);
        csn_ops_linear_normed(a->ops, items, n_items, x, a->plan->hidden, a->n, NULL, NULL);
        return;
    }
    uint64_t rank = mla->q_a->rows;
    csn_linear q = items[0];
    items[0] = (csn_linear){mla->q_a, mem->low, rank, NULL};
    csn_ops_expect(a->ops, &mla->q, NULL, NULL);
    csn_ops_linear_normed(a->ops, items, n_items, x, a->plan->hidden, a->n, NULL, NULL);
    csn_block_norm(a->ops, mem->low, rank, mla->q_a_norm, mla->norm_eps, mem->low, rank, a->n,
                   rank);
    csn_ops_expect(a->ops, &a->l->o, NULL, NULL);
    csn_ops_linear_normed(a->ops, &q, 1, mem->low, rank, a->n, NULL, NULL);
}

const float *csn_block_mla(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                           const csn_active_visit *active, const csn_place *at,
                           const csn_attn_memory *mem, const float *x) {
    struct latent a = {.ops = ops,
                       .plan = plan,
                       .l = l,
                       .mla = l->mla,
                       .cache = kv,
                       .kv = csn_kv_get(kv, l, at->i_visit, 0),
                       .active = active,
                       .live = active != NULL ? active->latent : NULL,
                       .pos0 = at->pos0,
                       .half = plan->ropes[l->i_rope].rotary_dim / 2,
                       .row0 = at->row0,
                       .n = at->n,
                       .mem = *mem,
                       .cos = at->cos,
                       .sin = at->sin,
                       .scratch_stride = csn_mla_scratch(plan, 1),
                       .n_tiles = (at->n - at->row0 + QUERY_TILE - 1) / QUERY_TILE};
    a.n_live = a.live != NULL ? a.live->n_rows : l->n_heads;
    if (a.live != NULL) {
        clear_results(&a);
    }
    project(&a, x);
    csn_ops_each(ops, a.n, prepare_span, &a);
    if (a.row0 == a.n) {
        return mem->out;
    }
    if (a.n_live > 0) {
        a.n_group = heads_per_item(&a, csn_pool_n_threads(ops->pool));
        a.n_items = a.n_tiles * ((a.n_live + a.n_group - 1) / a.n_group);
        csn_pool_run(ops->pool, run_items, &a);
    }
    if (l->mla->gate == NULL) {
        return mem->out;
    }
    csn_ops_each(ops, a.n - a.row0, gate_span, &a);
    return mem->gate;
}
