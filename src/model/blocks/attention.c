/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the cache: head norms, rotation and storing token by token; then items of work
 * (some heads of one kv head, some queries) that threads take in turn. How work is cut into items
 * does not show in the bits (kernels/vec.h). */
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
    float *q, *k, *v;
    const float *cos, *sin;
};

static void head_norm_rope(const struct heads *a, float *x, uint32_t n_heads, const uint8_t *live,
                           const float *norm, uint64_t t) {
    uint32_t hd = a->l->head_dim;
    for (uint32_t h = 0; h < n_heads; h++) {
        if (!csn_is_active(live, h)) {
            continue;
        }
        float *head = x + (uint64_t)h * hd;
        if (norm != NULL) {
            a->vec->rms_norm(head, norm, a->plan->norm_eps, head, hd);
        }
        a->vec->rope(head, a->cos + t * a->half, a->sin + t * a->half, a->half);
    }
}

static void heads_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct heads *a = ctx;
    const csn_layer *l = a->l;
    uint32_t hd = l->head_dim;
    for (uint64_t t = t0; t < t1; t++) {
        float *k = a->k + t * l->n_kv_heads * hd;
        float *v = a->v + t * l->n_kv_heads * hd;
        head_norm_rope(a, a->q + t * l->n_heads * hd, l->n_heads, a->live, l->q_norm, t);
        head_norm_rope(a, k, l->n_kv_heads, a->live_kv, l->k_norm, t);
        for (uint32_t h = 0; h < l->n_kv_heads; h++) {
            if (!csn_is_active(a->live_kv, h)) {
                continue;
            }
            if (a->plan->v_norm) {
                a->vec->rms_norm(v + h * hd, NULL, a->plan->norm_eps, v + h * hd, hd);
            }
            csn_kv_head head = csn_kv_get(a->kv, l, a->i_visit, h);
            a->vec->kv_store(&head, a->pos0 + (uint32_t)t, k + h * hd, v + h * hd);
        }
    }
}

void csn_block_heads(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                     const csn_active_visit *active, uint32_t i_visit, uint32_t pos0, uint64_t n,
                     float *q, float *k, float *v, const float *cos, const float *sin) {
    struct heads a = {.vec = ops->vec,
                      .plan = plan,
                      .l = l,
                      .kv = kv,
                      .live = active != NULL ? active->heads : NULL,
                      .live_kv = active != NULL ? active->kv_heads : NULL,
                      .i_visit = i_visit,
                      .pos0 = pos0,
                      .half = plan->ropes[l->i_rope].rotary_dim / 2,
                      .q = q,
                      .k = k,
                      .v = v,
                      .cos = cos,
                      .sin = sin};
    csn_ops_each(ops, n, heads_span, &a);
}

struct attention {
    const csn_vec *vec;
    const csn_plan *plan;
    const csn_layer *l;
    csn_kv *kv;
    const uint8_t *live; /* bits of query heads, or NULL */
    uint32_t i_visit, pos0;
    uint64_t row0, n;
    const float *q;
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
    const csn_layer *l = a->l;
    uint32_t hd = l->head_dim;
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
        if (!csn_is_active(a->live, head)) { /* then an item is one head */
            for (uint64_t t = t0; t < t1; t++) {
                memset(a->out + t * width + (uint64_t)head * hd, 0, hd * sizeof(float));
            }
            continue;
        }
        csn_attend work = {
            .kv = csn_kv_get(a->kv, l, a->i_visit, head / (l->n_heads / l->n_kv_heads)),
            .q = a->q + t0 * width + (uint64_t)head * hd,
            .out = a->out + t0 * width + (uint64_t)head * hd,
            .q_stride = width,
            .out_stride = width,
            .n_group = a->n_group,
            .n_queries = (uint32_t)(t1 - t0),
            .pos0 = a->pos0 + (uint32_t)t0,
            .window = l->window,
            .scale = a->plan->attn_scale,
            .softcap = a->plan->attn_softcap,
            .scratch = a->scratch + i_thread * a->scratch_stride};
        a->vec->attend(&work);
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
                         uint64_t row0, uint64_t n, const float *q, float *out, float *scratch) {
    if (row0 >= n) {
        return;
    }
    struct attention a = {.vec = ops->vec,
                          .plan = plan,
                          .l = l,
                          .kv = kv,
                          .live = active != NULL ? active->heads : NULL,
                          .i_visit = i_visit,
                          .pos0 = pos0,
                          .row0 = row0,
                          .n = n,
                          .q = q,
                          .out = out,
                          .scratch = scratch,
                          .scratch_stride = scratch_floats(plan),
                          .n_group = l->n_heads / l->n_kv_heads,
                          .n_tiles = (n - row0 + QUERY_TILE - 1) / QUERY_TILE};
    if (a.live != NULL) {
        a.n_group = 1;
    } else if (a.n_tiles == 1) {
        a.n_group = heads_per_item(l, csn_pool_n_threads(ops->pool));
    }
    a.n_items = a.n_tiles * (l->n_heads / a.n_group);
    csn_pool_run(ops->pool, run_items, &a);
}
