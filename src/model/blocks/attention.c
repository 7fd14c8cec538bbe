/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the cache: head norms, rotation and storing token by token; then items of work
 * (some heads of one kv head, some queries) that threads take in turn. Where an item is all that
 * reads a kv head, which is the rule in decoding, it does both. How work is cut into items does not
 * show in the bits (kernels/vec.h). */
#include <stdatomic.h>
#include <string.h>

#include "model/blocks/blocks.h"

enum { QUERY_TILE = 32 }; /* queries of one item in a prompt */

struct heads {
    const csn_vec *vec;
    const csn_plan *plan;
    const csn_layer *l;
    csn_kv *kv;
    const uint8_t *live, *live_kv; /* bits of heads, or NULL */
    uint32_t i_visit, pos0, half;
    csn_qkv x;
};

static void norm_rope(const struct heads *a, float *head, const float *norm, uint64_t t) {
    if (norm != NULL) {
        a->vec->rms_norm(head, norm, a->plan->norm_eps, head, a->l->head_dim);
    }
    a->vec->rope(head, a->x.cos + t * a->half, a->x.sin + t * a->half, a->half);
}

/* Kv head h and the query heads that read it, of token t. */
static void prepare_group(const struct heads *a, uint32_t h, uint64_t t) {
    const csn_layer *l = a->l;
    uint32_t hd = l->head_dim;
    uint32_t group = l->n_heads / l->n_kv_heads;
    float *q = a->x.q + (t * l->n_heads + (uint64_t)h * group) * hd;
    for (uint32_t i = 0; i < group; i++) {
        if (csn_is_active(a->live, h * group + i)) {
            norm_rope(a, q + (uint64_t)i * hd, l->q_norm, t);
        }
    }
    if (!csn_is_active(a->live_kv, h)) {
        return;
    }
    float *k = a->x.k + (t * l->n_kv_heads + h) * hd;
    float *v = a->x.v + (t * l->n_kv_heads + h) * hd;
    norm_rope(a, k, l->k_norm, t);
    if (a->plan->v_norm) {
        a->vec->rms_norm(v, NULL, a->plan->norm_eps, v, hd);
    }
    csn_kv_head head = csn_kv_get(a->kv, l, a->i_visit, h);
    csn_kv_note(a->kv, a->vec->kv_store(&head, a->pos0 + (uint32_t)t, k, v));
}

static void heads_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct heads *a = ctx;
    for (uint64_t t = t0; t < t1; t++) {
        for (uint32_t h = 0; h < a->l->n_kv_heads; h++) {
            prepare_group(a, h, t);
        }
    }
}

struct attention {
    struct heads heads;
    bool prepares; /* an item begins with prepare_group */
    uint64_t row0, n;
    float *out, *scratch;
    uint64_t scratch_stride; /* floats of one thread */
    uint32_t n_group;        /* query heads of one item */
    uint64_t n_items, n_tiles;
    _Atomic uint64_t next;
};

static uint64_t scratch_floats(const csn_plan *plan) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const csn_layer *l = &plan->layers[i];
        if (l->mla != NULL || l->kda != NULL) {
            continue;
        }
        uint64_t rows = (uint64_t)(l->n_heads / l->n_kv_heads) * QUERY_TILE;
        uint64_t n = csn_attend_scratch(l->head_dim, rows);
        most = n > most ? n : most;
    }
    return (most + 15) / 16 * 16;
}

uint64_t csn_attention_scratch(const csn_plan *plan, unsigned n_threads) {
    return scratch_floats(plan) * n_threads;
}

static void run_items(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct attention *a = ctx;
    (void)n_threads;
    const struct heads *h = &a->heads;
    const csn_layer *l = h->l;
    uint32_t hd = l->head_dim;
    uint32_t group = l->n_heads / l->n_kv_heads;
    uint64_t width = (uint64_t)l->n_heads * hd;
    for (;;) {
        uint64_t item = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed);
        if (item >= a->n_items) {
            return;
        }
        /* the last queries see the most keys: they go first */
        uint64_t tile = a->n_tiles - 1 - item % a->n_tiles;
        uint32_t head = (uint32_t)(item / a->n_tiles) * a->n_group;
        uint64_t t0 = a->row0 + tile * QUERY_TILE;
        uint64_t t1 = t0 + QUERY_TILE < a->n ? t0 + QUERY_TILE : a->n;
        if (!csn_is_active(h->live, head)) { /* then an item is one head */
            for (uint64_t t = t0; t < t1; t++) {
                memset(a->out + t * width + (uint64_t)head * hd, 0, hd * sizeof(float));
            }
            continue;
        }
        if (a->prepares) {
            prepare_group(h, head / group, t0);
        }
        csn_attend work = {.kv = csn_kv_get(h->kv, l, h->i_visit, head / group),
                           .q = h->x.q + t0 * width + (uint64_t)head * hd,
                           .out = a->out + t0 * width + (uint64_t)head * hd,
                           .q_stride = width,
                           .out_stride = width,
                           .n_group = a->n_group,
                           .n_queries = (uint32_t)(t1 - t0),
                           .pos0 = h->pos0 + (uint32_t)t0,
                           .window = l->window,
                           .scale = h->plan->attn_scale,
                           .softcap = h->plan->attn_softcap,
                           .scratch = a->scratch + i_thread * a->scratch_stride};
        h->vec->attend(&work);
    }
}

/* Query heads of an item when there is one tile of queries: all that share a kv head read its keys
 * once, fewer use the threads more evenly. Reading keys costs about as much as one query head (one
 * query over 512 keys of 64 dims, f16: 4, 6, 8 us for 1, 2, 3 heads). */
static uint32_t heads_per_item(const csn_layer *l, unsigned n_threads) {
    uint32_t group = l->n_heads / l->n_kv_heads;
    uint32_t best = group > 0 ? group : 1; /* never 0: the plan has n_heads >= n_kv_heads */
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t g = group; g >= 1; g--) {
        if (group % g != 0) {
            continue;
        }
        uint64_t rounds = (l->n_heads / g + n_threads - 1) / n_threads;
        if (rounds * (g + 1) < best_cost) {
            best_cost = rounds * (g + 1);
            best = g;
        }
    }
    return best;
}

void csn_block_attention(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                         const csn_active_visit *active, uint32_t i_visit, uint32_t pos0,
                         uint64_t row0, uint64_t n, const csn_qkv *x, float *out, float *scratch) {
    uint32_t group = l->n_heads / l->n_kv_heads;
    struct attention a = {.heads = {.vec = ops->vec,
                                    .plan = plan,
                                    .l = l,
                                    .kv = kv,
                                    .live = active != NULL ? active->heads : NULL,
                                    .live_kv = active != NULL ? active->kv_heads : NULL,
                                    .i_visit = i_visit,
                                    .pos0 = pos0,
                                    .half = plan->ropes[l->i_rope].rotary_dim / 2,
                                    .x = *x},
                          .row0 = row0,
                          .n = n,
                          .out = out,
                          .scratch = scratch,
                          .scratch_stride = scratch_floats(plan),
                          .n_group = group,
                          .n_tiles = (n - row0 + QUERY_TILE - 1) / QUERY_TILE};
    if (a.heads.live != NULL) {
        a.n_group = 1;
    } else if (a.n_tiles == 1) {
        a.n_group = heads_per_item(l, csn_pool_n_threads(ops->pool));
    }
    a.n_items = a.n_tiles * (l->n_heads / a.n_group);
    a.prepares = n == 1 && row0 == 0 && a.n_group == group && a.heads.live == NULL;
    if (!a.prepares) {
        csn_ops_each(ops, n, heads_span, &a.heads);
    }
    if (row0 < n) {
        csn_pool_run(ops->pool, run_items, &a);
    }
}
