/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass shared by all families (facts 15.2): differences are data in the plan. */
#include "model/forward.h"

#include "base/size.h"

static uint64_t widest_input(const csn_plan *p) {
    uint64_t w = p->hidden;
    w = p->max_q > w ? p->max_q : w;
    return p->max_ffn > w ? p->max_ffn : w;
}

struct array { /* [n][width] floats at *to */
    float **to;
    uint64_t n, width;
};

/* Where the arrays lie in one block of memory, in floats; false on overflow. */
static bool lay_out(const struct array *arrays, size_t n_arrays, uint64_t *offsets,
                    uint64_t *ret_total) {
    uint64_t total = 0;
    for (size_t i = 0; i < n_arrays; i++) {
        uint64_t floats;
        offsets[i] = total;
        if (!csn_mul(arrays[i].n, arrays[i].width, &floats) || !csn_align_up(floats, 16, &floats) ||
            !csn_add(total, floats, &total)) {
            return false;
        }
    }
    *ret_total = total;
    return true;
}

caisson_status csn_forward_init(const csn_plan *plan, csn_pool *pool, csn_compute compute,
                                uint64_t max_n, csn_forward *ret, caisson_error *err) {
    csn_forward f = {.plan = plan, .max_n = max_n};
    f.ops = (csn_ops){.pool = pool,
                      .compute = compute,
                      .vec = csn_vec_get(),
                      .quantise = csn_kernel_quantise_x8(),
                      .take_exact = csn_kernel_take_exact()};
    uint64_t cols = widest_input(plan);
    uint64_t half = (uint64_t)plan->layers[0].head_dim / 2;
    bool int8 = compute == CSN_COMPUTE_INT8;
    uint64_t n_mixed = plan->max_experts != 0 ? max_n : 0;
    float *picks;
    float *rows;
    float *cursor;
    float *ids;
    float *is_chosen;
    float *results;
    const struct array arrays[] = {
        {&f.h, max_n, plan->hidden},
        {&f.x, max_n, plan->hidden},
        {&f.q, max_n, plan->max_q},
        {&f.att, max_n, plan->max_q},
        {&f.k, max_n, plan->max_kv},
        {&f.v, max_n, plan->max_kv},
        {&f.gate, max_n, plan->max_ffn},
        {&f.up, max_n, plan->max_ffn},
        {&f.cos, max_n * plan->n_ropes, half},
        {&f.sin, max_n * plan->n_ropes, half},
        {&f.scratch, csn_attention_scratch(plan, csn_pool_n_threads(pool)), 1},
        {&f.ops.scaled, int8 ? max_n : 0, cols},
        {&f.mixed, n_mixed, plan->hidden},
        {&f.moe.logits, max_n, plan->max_experts},
        {&picks, max_n, sizeof(csn_pick) / sizeof(float) * plan->max_top_k},
        {&rows, n_mixed, 1},
        {&cursor, n_mixed, 1},
        {&f.moe.weights, n_mixed, 1},
        {&f.moe.x, n_mixed, plan->hidden},
        {&f.moe.y, n_mixed, plan->hidden},
        {&f.moe.latent_x, max_n, plan->max_latent},
        {&f.moe.latent_y, max_n, plan->max_latent},
        {&ids, plan->max_experts, 1},
        {&is_chosen, plan->max_experts, 1},
        {&results, n_mixed != 0 ? CSN_VQ_ROWS : 0, 1},
    };
    enum { N_ARRAYS = sizeof(arrays) / sizeof(arrays[0]) };
    uint64_t at[N_ARRAYS];
    uint64_t total = 0;
    uint64_t x8_bytes = 0;
    uint64_t n_x8 = int8 ? CSN_MAX_LINEAR : 0;
    uint64_t bytes = 0;
    size_t size;
    if (!lay_out(arrays, N_ARRAYS, at, &total) || !csn_x8_nbytes(max_n, cols, &x8_bytes) ||
        !csn_align_up(x8_bytes, 64, &x8_bytes) || !csn_mul(total, sizeof(float), &bytes) ||
        !csn_add(bytes, n_x8 * x8_bytes, &bytes) || !csn_to_size(bytes, &size)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    CSN_TRY(csn_alloc_aligned(size, (void **)&f.memory, err));
    for (size_t i = 0; i < N_ARRAYS; i++) {
        *arrays[i].to = f.memory + at[i];
    }
    f.moe.picks = (csn_pick *)picks;
    f.moe.rows = (uint32_t *)rows;
    f.moe.cursor = (uint32_t *)cursor;
    f.moe.ids = (uint32_t *)ids;
    f.moe.is_chosen = (uint8_t *)is_chosen;
    f.moe.at = (uint32_t *)results;
    f.moe.gate = f.gate;
    f.moe.up = f.up;
    uint8_t *x8 = (uint8_t *)(f.memory + total);
    for (uint64_t i = 0; i < n_x8; i++) {
        f.ops.x8[i] = x8 + i * x8_bytes;
    }
    if (plan->vq.width != 0) {
        caisson_status status =
            csn_vq_memory_new(&plan->vq, compute, (uint32_t)max_n, &f.moe.vq, err);
        if (status != CAISSON_OK) {
            csn_free_aligned(f.memory);
            return status;
        }
    }
    *ret = f;
    return CAISSON_OK;
}

void csn_forward_done(csn_forward *f) {
    csn_vq_memory_done(&f->moe.vq);
    csn_free_aligned(f->memory);
    *f = (csn_forward){0};
}

struct embed {
    const csn_plan *plan;
    const int32_t *ids;
    float *h;
};

static void embed_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct embed *e = ctx;
    uint64_t dim = e->plan->hidden;
    for (uint64_t t = t0; t < t1; t++) {
        float *h = e->h + t * dim;
        e->plan->embed.dtype->decode(&e->plan->embed, (uint64_t)e->ids[t] * dim, dim, h);
        for (uint64_t i = 0; e->plan->embed_multiplier != 1.0f && i < dim; i++) {
            h[i] *= e->plan->embed_multiplier;
        }
    }
}

struct residual {
    const csn_vec *vec;
    float *h;
    const float *y;
    uint64_t dim;
};

static void add_rows(void *ctx, uint64_t n, uint64_t r0, uint64_t r1) {
    const struct residual *r = ctx;
    for (uint64_t t = 0; t < n; t++) {
        r->vec->add(r->h + t * r->dim + r0, r->y + t * r->dim + r0, r1 - r0);
    }
}

/* h += W in, with a norm between the product and the sum where the layer has one. */
static void project(csn_forward *f, const csn_weight *w, const float *in, uint64_t in_stride,
                    const float *norm, float *h, uint64_t n) {
    uint64_t dim = f->plan->hidden;
    csn_linear item = {w, f->x, dim, NULL};
    if (norm == NULL) {
        struct residual r = {f->ops.vec, h, f->x, dim};
        csn_ops_linear(&f->ops, &item, 1, in, in_stride, n, add_rows, &r);
        return;
    }
    csn_ops_linear(&f->ops, &item, 1, in, in_stride, n, NULL, NULL);
    csn_block_norm(&f->ops, f->x, dim, norm, f->plan->norm_eps, f->x, dim, n, dim);
    csn_block_add(&f->ops, h, f->x, n, dim);
}

/* next: the layer that follows; NULL: the head. */
static caisson_status ffn(csn_forward *f, const csn_layer *l, const csn_layer *next,
                          const csn_active_visit *active, float *h, uint64_t n,
                          caisson_error *err) {
    const csn_plan *p = f->plan;
    uint64_t dim = p->hidden;
    csn_block_norm(&f->ops, h, dim, l->pre_ffn_norm, p->norm_eps, f->x, dim, n, dim);
    if (l->moe == NULL) {
        csn_ops_expect(&f->ops, &l->down, NULL, NULL);
        csn_block_gate_up(&f->ops, &p->act, &l->gate, &l->up, active != NULL ? active->ffn : NULL,
                          f->x, dim, n, f->gate, f->up);
        if (next != NULL) {
            csn_ops_expect(&f->ops, &next->q, &next->k, &next->v);
        } else {
            csn_ops_expect(&f->ops, &p->head, NULL, NULL);
        }
        project(f, &l->down, f->gate, l->ffn, l->post_ffn_norm, h, n);
        return CAISSON_OK;
    }
    CSN_TRY(csn_block_moe(&f->ops, p, l->moe, next != NULL ? next->moe : NULL, &f->moe, active,
                          f->x, f->mixed, n, err));
    if (l->post_ffn_norm != NULL) {
        csn_block_norm(&f->ops, f->mixed, dim, l->post_ffn_norm, p->norm_eps, f->mixed, dim, n,
                       dim);
    }
    csn_block_add(&f->ops, h, f->mixed, n, dim);
    return CAISSON_OK;
}

/* Visit i of a layer. */
static caisson_status layer(csn_forward *f, csn_kv *kv, uint32_t i, uint32_t pos0, uint64_t n,
                            uint64_t row0, caisson_error *err) {
    const csn_plan *p = f->plan;
    const csn_layer *l = &p->layers[i % p->n_layers];
    const csn_active_visit *active = f->active != NULL ? &f->active->visits[i] : NULL;
    if (active != NULL && active->is_off) {
        return CAISSON_OK;
    }
    const csn_runs *q_runs = active != NULL ? active->q : NULL;
    const csn_runs *kv_runs = active != NULL ? active->kv : NULL;
    uint64_t dim = p->hidden;
    uint64_t q_dim = l->q.m.rows;
    uint64_t kv_dim = l->k.m.rows;
    uint64_t table = (uint64_t)l->i_rope * f->max_n * (l->head_dim / 2);
    csn_block_norm(&f->ops, f->h, dim, l->input_norm, p->norm_eps, f->x, dim, n, dim);
    csn_linear items[3] = {{&l->q, f->q, q_dim, q_runs},
                           {&l->k, f->k, kv_dim, kv_runs},
                           {&l->v, f->v, kv_dim, kv_runs}};
    csn_ops_expect(&f->ops, &l->o, NULL, NULL);
    csn_ops_linear_normed(&f->ops, items, 3, f->x, dim, n, NULL, NULL);
    csn_qkv qkv = {f->q, f->k, f->v, f->cos + table, f->sin + table};
    csn_block_attention(&f->ops, p, l, kv, active, i, pos0, row0, n, &qkv, f->att, f->scratch);
    float *h = f->h + row0 * dim;
    if (l->moe == NULL && (active == NULL || active->ffn == NULL)) { /* else other rows are read */
        csn_ops_expect(&f->ops, &l->gate, &l->up, NULL);
    }
    project(f, &l->o, f->att + row0 * q_dim, q_dim, l->post_attn_norm, h, n - row0);
    bool is_last = i + 1 == csn_plan_n_visits(p);
    const csn_layer *next = is_last ? NULL : &p->layers[(i + 1) % p->n_layers];
    return ffn(f, l, next, active, h, n - row0, err);
}

caisson_status csn_forward_run(csn_forward *f, csn_kv *kv, const int32_t *ids, uint32_t pos0,
                               uint64_t n, uint64_t row0, bool use_long,
                               const csn_progress *progress, caisson_error *err) {
    const csn_plan *p = f->plan;
    struct embed e = {p, ids, f->h};
    csn_ops_each(&f->ops, n, embed_span, &e);
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        uint64_t table = (uint64_t)i * f->max_n * (p->layers[0].head_dim / 2);
        csn_rope_tables(&p->ropes[i], use_long, pos0, (uint32_t)n, f->cos + table, f->sin + table);
    }
    uint32_t n_visits = csn_plan_n_visits(p);
    f->moe.progress = progress;
    for (uint32_t i = 0; i < n_visits; i++) {
        CSN_TRY(csn_progress_tell(progress, "layers", i, n_visits, err));
        if (p->loop_norm && i > 0 && i % p->n_layers == 0) {
            csn_block_norm(&f->ops, f->h, p->hidden, p->final_norm, p->norm_eps, f->h, p->hidden, n,
                           p->hidden);
        }
        /* only keys and values of rows before row0 are needed from the last visit */
        CSN_TRY(layer(f, kv, i, pos0, n, i + 1 < n_visits ? 0 : row0, err));
        if (f->ops.tap != NULL && f->ops.tap->layer != NULL) {
            f->ops.tap->layer(f->ops.tap->ctx, i, pos0, f->h, n);
        }
    }
    return CAISSON_OK;
}

struct finish {
    const csn_forward *f;
    float *logits;
};

/* Multiplier and soft-cap of the rows [r0, r1) of the head that exist in the vocabulary. */
static void finish_rows(void *ctx, uint64_t n, uint64_t r0, uint64_t r1) {
    const struct finish *a = ctx;
    const csn_plan *p = a->f->plan;
    for (uint64_t t = 0; t < n; t++) {
        float *row = a->logits + t * p->vocab + r0;
        for (uint64_t i = 0; p->logit_multiplier != 1.0f && i < r1 - r0; i++) {
            row[i] *= p->logit_multiplier;
        }
        if (p->final_softcap > 0.0f) {
            a->f->ops.vec->softcap(row, r1 - r0, p->final_softcap);
        }
    }
}

void csn_forward_logits(csn_forward *f, uint64_t row0, uint64_t rows, float *logits) {
    const csn_plan *p = f->plan;
    uint64_t dim = p->hidden;
    csn_block_norm(&f->ops, f->h + row0 * dim, dim, p->final_norm, p->norm_eps, f->x, dim, rows,
                   dim);
    struct finish a = {f, logits};
    csn_linear item = {&p->head, logits, p->vocab, NULL};
    const csn_layer *first = p->layers; /* of the next token */
    csn_ops_expect(&f->ops, &first->q, &first->k, &first->v);
    csn_ops_linear_normed(&f->ops, &item, 1, f->x, dim, rows, finish_rows, &a);
    for (uint64_t t = 0; t < rows && p->head.rows < p->vocab; t++) {
        memset(logits + t * p->vocab + p->head.rows, 0, (p->vocab - p->head.rows) * sizeof(float));
    }
}
