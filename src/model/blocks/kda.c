/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi Delta Attention (warp facts 14): short convolutions, then the delta rule with a decay for
 * each key channel. Heads do not meet, so threads take heads in turn. A head goes through its
 * tokens one after another; each block of its state's columns stays in L1 while all tokens of a
 * piece pass over it, which changes no bit, for columns do not meet either. */
#include <stdatomic.h>
#include <string.h>

#include "model/blocks/blocks.h"
#include "model/math.h"

enum { PIECE = 64 }; /* tokens: their queries, keys and decays of one head lie in L2 */

struct kda {
    csn_ops *ops;
    const csn_plan *plan;
    const csn_kda *kda;
    csn_kda_state state;
    const csn_active_visit *active;
    const csn_attn_memory *mem;
    float *f_low, *g_low, *beta; /* parts of mem->low: rows of low_stride */
    uint64_t low_stride, width, n;
    bool is_start; /* the timeline begins with these tokens */
    _Atomic uint32_t next;
};

uint64_t csn_kda_low(const csn_kda *kda) {
    return 2 * (uint64_t)kda->dim + kda->n_heads;
}

static void clear_head(const struct kda *a, uint32_t h) {
    const csn_kda *kda = a->kda;
    for (uint32_t j = 0; j < 3 * (kda->conv_width - 1); j++) {
        memset(a->state.conv + j * a->width + (uint64_t)h * kda->dim, 0, kda->dim * sizeof(float));
    }
    memset(a->state.s + h * csn_kda_head_floats(kda), 0, csn_kda_head_floats(kda) * sizeof(float));
}

/* Convolutions of tokens [t0, t0 + n), then norms, decays and the strength of the update. */
static void prepare(const struct kda *a, uint32_t h, uint64_t t0, uint64_t n) {
    const csn_kda *kda = a->kda;
    const csn_vec *vec = a->ops->vec;
    uint64_t c0 = (uint64_t)h * kda->dim;
    float *const x[3] = {a->mem->q, a->mem->k, a->mem->v};
    for (int i = 0; i < 3; i++) {
        csn_short_conv conv = {.x = x[i] + t0 * a->width,
                               .taps = kda->taps[i],
                               .history =
                                   a->state.conv + (uint64_t)i * (kda->conv_width - 1) * a->width,
                               .n = n,
                               .stride = a->width,
                               .n_channels = a->width,
                               .width = kda->conv_width};
        vec->short_conv(&conv, c0, c0 + kda->dim);
    }
    for (uint64_t t = t0; t < t0 + n; t++) {
        uint64_t at = t * a->width + c0;
        float *beta = a->beta + t * a->low_stride + h;
        vec->rms_norm(a->mem->q + at, kda->q_norm, kda->unit_eps, a->mem->q + at, kda->dim);
        vec->rms_norm(a->mem->k + at, kda->k_norm, kda->unit_eps, a->mem->k + at, kda->dim);
        vec->kda_decay(a->mem->decay + at, kda->dt_bias + c0, kda->rate[h], kda->bound, kda->dim);
        *beta = csn_sigmoid(*beta);
    }
}

/* The delta rule; results take the place of values. */
static void run_state(const struct kda *a, uint32_t h, uint64_t t0, uint64_t n) {
    const csn_kda *kda = a->kda;
    uint64_t at = t0 * a->width + (uint64_t)h * kda->dim;
    csn_delta d = {.state = a->state.s + h * csn_kda_head_floats(kda),
                   .q = a->mem->q + at,
                   .k = a->mem->k + at,
                   .decay = a->mem->decay + at,
                   .beta = a->beta + t0 * a->low_stride + h,
                   .n = n,
                   .stride = a->width,
                   .beta_stride = a->low_stride,
                   .n_rows = kda->dim};
    for (uint32_t c = 0; c < kda->dim; c += CSN_DELTA_COLS) {
        d.v = a->mem->v + at + c;
        d.out = a->mem->v + at + c;
        d.n_cols = kda->dim - c < CSN_DELTA_COLS ? kda->dim - c : CSN_DELTA_COLS;
        a->ops->vec->delta(&d);
        d.state += (uint64_t)kda->dim * CSN_DELTA_COLS;
    }
}

static void finish(const struct kda *a, uint32_t h, uint64_t t0, uint64_t n) {
    static const csn_vec_act sigmoid = {.kind = CSN_VEC_SIGMOID};
    const csn_kda *kda = a->kda;
    for (uint64_t t = t0; t < t0 + n; t++) {
        uint64_t at = t * a->width + (uint64_t)h * kda->dim;
        float *o = a->mem->v + at;
        a->ops->vec->rms_norm(o, kda->o_norm, a->plan->norm_eps, o, kda->dim);
        a->ops->vec->act_mul(&sigmoid, a->mem->gate + at, o, kda->dim);
    }
}

static void run_heads(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct kda *a = ctx;
    (void)i_thread;
    (void)n_threads;
    for (;;) {
        uint32_t h = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed);
        if (h >= a->kda->n_heads) {
            return;
        }
        if (a->active != NULL && !csn_is_active(a->active->heads, h)) {
            continue;
        }
        if (a->is_start) {
            clear_head(a, h);
        }
        for (uint64_t t = 0; t < a->n; t += PIECE) {
            uint64_t n = a->n - t < PIECE ? a->n - t : PIECE;
            prepare(a, h, t, n);
            run_state(a, h, t, n);
            finish(a, h, t, n);
        }
    }
}

static void project(const struct kda *a, const csn_layer *l, const float *x) {
    const csn_kda *kda = a->kda;
    const csn_attn_memory *mem = a->mem;
    uint64_t hidden = a->plan->hidden;
    const csn_runs *runs = a->active != NULL ? a->active->q : NULL;
    csn_linear qkv[3] = {{&kda->q, mem->q, a->width, runs},
                         {&kda->k, mem->k, a->width, runs},
                         {&kda->v, mem->v, a->width, runs}};
    csn_linear rest[3] = {{&kda->f_a, a->f_low, a->low_stride, NULL},
                          {&kda->beta, a->beta, a->low_stride, NULL},
                          {&kda->gate, mem->gate, a->width, runs}};
    csn_linear decay = {&kda->f_b, mem->decay, a->width, runs};
    if (runs != NULL) { /* the result of heads that are left out */
        memset(mem->gate, 0, a->n * a->width * sizeof(float));
    }
    csn_linear gate = rest[2];
    if (kda->gate_a != NULL) {
        rest[2] = (csn_linear){kda->gate_a, a->g_low, a->low_stride, NULL};
    }
    csn_ops_expect(a->ops, rest[0].w, rest[1].w, rest[2].w);
    csn_ops_linear_normed(a->ops, qkv, 3, x, hidden, a->n, NULL, NULL);
    csn_ops_expect(a->ops, &kda->f_b, NULL, NULL);
    csn_ops_linear_normed(a->ops, rest, 3, x, hidden, a->n, NULL, NULL);
    csn_ops_expect(a->ops, kda->gate_a != NULL ? &kda->gate : &l->o, NULL, NULL);
    csn_ops_linear(a->ops, &decay, 1, a->f_low, a->low_stride, a->n, NULL, NULL);
    if (kda->gate_a != NULL) {
        csn_ops_expect(a->ops, &l->o, NULL, NULL);
        csn_ops_linear(a->ops, &gate, 1, a->g_low, a->low_stride, a->n, NULL, NULL);
    }
}

const float *csn_block_kda(csn_ops *ops, const csn_plan *plan, const csn_layer *l, const csn_kv *kv,
                           const csn_active_visit *active, const csn_place *at,
                           const csn_attn_memory *mem, const float *x) {
    const csn_kda *kda = l->kda;
    struct kda a = {.ops = ops,
                    .plan = plan,
                    .kda = kda,
                    .state = csn_kv_get_kda(kv, l, at->i_visit),
                    .active = active,
                    .mem = mem,
                    .f_low = mem->low,
                    .g_low = mem->low + kda->dim,
                    .beta = mem->low + 2 * (uint64_t)kda->dim,
                    .low_stride = csn_kda_low(kda),
                    .width = (uint64_t)kda->n_heads * kda->dim,
                    .n = at->n,
                    .is_start = at->pos0 == 0};
    project(&a, l, x);
    csn_pool_run(ops->pool, run_heads, &a);
    return mem->gate;
}
