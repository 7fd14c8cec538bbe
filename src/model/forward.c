/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass shared by all families (facts 15.2): differences are data in the plan. */
#include "model/forward.h"

#include "base/size.h"

static uint64_t widest_input(const csn_plan *p) {
    uint64_t w = p->hidden;
    w = p->max_q > w ? p->max_q : w;
    w = p->max_low > w ? p->max_low : w;
    w = p->max_latent > w ? p->max_latent : w;
    return p->max_ffn > w ? p->max_ffn : w;
}

struct array { /* [n][width] floats at *to */
    float **to;
    uint64_t n, width;
};

static uint64_t rope_pairs(const csn_plan *p) {
    const csn_rope *last = p->n_ropes > 0 ? &p->ropes[p->n_ropes - 1] : NULL;
    return last != NULL ? last->before + last->rotary_dim / 2 : 0;
}

static uint64_t scratch_floats(const csn_plan *p, unsigned n_threads) {
    uint64_t full = csn_attention_scratch(p, n_threads);
    uint64_t latent = csn_mla_scratch(p, n_threads);
    return full > latent ? full : latent;
}

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

enum { N_ARRAYS = 27 };

/* Arrays whose type is another than float. */
struct others {
    float *picks, *rows, *cursor, *ids, *is_chosen, *results;
};

static void list_arrays(const csn_plan *plan, unsigned n_threads, bool int8, uint64_t max_n,
                        csn_forward *f, struct others *o, struct array ret[N_ARRAYS]) {
    uint64_t n_mixed = plan->max_experts != 0 ? max_n : 0;
    /* of experts, routed and shared: a latent may be wider than the model */
    uint64_t mixed = plan->max_latent > plan->hidden ? plan->max_latent : plan->hidden;
    const struct array arrays[N_ARRAYS] = {
        {&f->h, max_n, plan->hidden},
        {&f->x, max_n, plan->hidden},
        {&f->q, max_n, plan->max_q},
        {&f->att, max_n, plan->max_q},
        {&f->k, max_n, plan->max_kv},
        {&f->v, max_n, plan->max_kv},
        {&f->gate, max_n, plan->max_gate},
        {&f->up, max_n, plan->max_gate},
        {&f->low, max_n, plan->max_low},
        {&f->res, max_n * csn_plan_n_res(plan, plan->n_layers), plan->hidden},
        {&f->cos, max_n, rope_pairs(plan)},
        {&f->sin, max_n, rope_pairs(plan)},
        {&f->scratch, scratch_floats(plan, n_threads), 1},
        {&f->ops.scaled, int8 ? max_n : 0, widest_input(plan)},
        {&f->mixed, n_mixed, plan->hidden},
        {&f->moe.logits, max_n, plan->max_experts},
        {&o->picks, max_n, sizeof(csn_pick) / sizeof(float) * plan->max_top_k},
        {&o->rows, n_mixed, 1},
        {&o->cursor, n_mixed, 1},
        {&f->moe.weights, n_mixed, 1},
        {&f->moe.x, n_mixed, mixed},
        {&f->moe.y, n_mixed, mixed},
        {&f->moe.latent_x, max_n, plan->max_latent},
        {&f->moe.latent_y, max_n, plan->max_latent},
        {&o->ids, plan->max_experts, 1},
        {&o->is_chosen, plan->max_experts, 1},
        {&o->results, n_mixed != 0 ? CSN_VQ_ROWS : 0, 1},
    };
    memcpy(ret, arrays, sizeof(arrays));
}

struct layout {
    uint64_t at[N_ARRAYS], n_floats; /* of the arrays */
    uint64_t n_x8, x8_bytes;         /* quantised inputs behind them */
    size_t nbytes;                   /* of all */
};

static bool find_layout(const csn_plan *plan, csn_compute compute, uint64_t max_n,
                        const struct array arrays[N_ARRAYS], struct layout *ret) {
    struct layout l = {.n_x8 = compute == CSN_COMPUTE_INT8 ? CSN_MAX_LINEAR : 0};
    uint64_t bytes = 0;
    bool fits = lay_out(arrays, N_ARRAYS, l.at, &l.n_floats) &&
                csn_x8_nbytes(max_n, widest_input(plan), &l.x8_bytes) &&
                csn_align_up(l.x8_bytes, 64, &l.x8_bytes) &&
                csn_mul(l.n_floats, sizeof(float), &bytes) &&
                csn_add(bytes, l.n_x8 * l.x8_bytes, &bytes) && csn_to_size(bytes, &l.nbytes);
    *ret = l;
    return fits;
}

uint64_t csn_forward_nbytes(const csn_plan *plan, unsigned n_threads, csn_compute compute,
                            uint64_t max_n) {
    csn_forward f;
    struct others o;
    struct array arrays[N_ARRAYS];
    struct layout l;
    list_arrays(plan, n_threads, compute == CSN_COMPUTE_INT8, max_n, &f, &o, arrays);
    uint64_t vq_bytes =
        plan->vq.width != 0 ? csn_vq_memory_nbytes(&plan->vq, compute, (uint32_t)max_n) : 0;
    uint64_t bytes;
    return find_layout(plan, compute, max_n, arrays, &l) && csn_add(l.nbytes, vq_bytes, &bytes)
               ? bytes
               : UINT64_MAX;
}

caisson_status csn_forward_init(const csn_plan *plan, csn_pool *pool, csn_compute compute,
                                uint64_t max_n, csn_forward *ret, caisson_error *err) {
    csn_forward f = {.plan = plan, .max_n = max_n};
    f.ops = (csn_ops){.pool = pool,
                      .compute = compute,
                      .vec = csn_vec_get(),
                      .quantise = csn_kernel_quantise_x8(),
                      .take_exact = csn_kernel_take_exact()};
    struct others o;
    struct array arrays[N_ARRAYS];
    struct layout l;
    list_arrays(plan, csn_pool_n_threads(pool), compute == CSN_COMPUTE_INT8, max_n, &f, &o, arrays);
    if (!find_layout(plan, compute, max_n, arrays, &l)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    CSN_TRY(csn_alloc_aligned(l.nbytes, (void **)&f.memory, err));
    for (size_t i = 0; i < N_ARRAYS; i++) {
        *arrays[i].to = f.memory + l.at[i];
    }
    f.moe.picks = (csn_pick *)o.picks;
    f.moe.rows = (uint32_t *)o.rows;
    f.moe.cursor = (uint32_t *)o.cursor;
    f.moe.ids = (uint32_t *)o.ids;
    f.moe.is_chosen = (uint8_t *)o.is_chosen;
    f.moe.at = (uint32_t *)o.results;
    f.moe.gate = f.gate;
    f.moe.up = f.up;
    uint8_t *x8 = (uint8_t *)(f.memory + l.n_floats);
    for (uint64_t i = 0; i < l.n_x8; i++) {
        f.ops.x8[i] = x8 + i * l.x8_bytes;
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
    const csn_matrix *m = &e->plan->embed.m;
    uint64_t dim = e->plan->hidden;
    for (uint64_t t = t0; t < t1; t++) {
        float *h = e->h + t * dim;
        if (m->data != NULL) {
            m->dtype->decode(m, (uint64_t)e->ids[t] * dim, dim, h);
        }
        for (uint64_t i = 0; e->plan->embed_multiplier != 1.0f && i < dim; i++) {
            h[i] *= e->plan->embed_multiplier;
        }
    }
}

static caisson_status embed(csn_forward *f, const int32_t *ids, uint64_t n, caisson_error *err) {
    const csn_rows *table = &f->plan->embed;
    if (table->m.data == NULL) {
        CSN_TRY(csn_rows_read(table, ids, n, f->h, err));
    }
    struct embed e = {f->plan, ids, f->h};
    csn_ops_each(&f->ops, n, embed_span, &e);
    return CAISSON_OK;
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

/* x = norm of rows [row0, row0 + n) of the stream, or of what attention residuals make of it where
 * `n_res` blocks are kept. */
static void read_stream(csn_forward *f, const float *res_w, uint32_t n_res, const float *norm,
                        uint64_t row0, uint64_t n) {
    const csn_plan *p = f->plan;
    uint64_t dim = p->hidden;
    const float *from = f->h + row0 * dim;
    if (n_res > 0) {
        csn_block_attn_res(&f->ops, p, res_w, f->res + row0 * dim, f->max_n * dim, n_res, from,
                           f->x, n);
        from = f->x;
    }
    csn_block_norm(&f->ops, from, dim, norm, p->norm_eps, f->x, dim, n, dim);
}

/* The layers of a block add to zero; what the stream was is kept. */
static void begin_block(csn_forward *f, uint32_t i_layer, uint64_t n) {
    const csn_plan *p = f->plan;
    if (p->res_block == 0 || i_layer % p->res_block != 0) {
        return;
    }
    size_t nbytes = (size_t)(n * p->hidden) * sizeof(float);
    uint64_t stride = f->max_n * p->hidden;
    memcpy(f->res + csn_plan_n_res(p, i_layer) * stride, f->h, nbytes);
    memset(f->h, 0, nbytes);
}

/* The copies that a visit runs from; NULL: none. Whoever taps inputs wants them whole. */
static const csn_packed_ffn *packed_of(const csn_forward *f, const csn_active_visit *active) {
    return active != NULL && f->ops.tap == NULL ? active->packed : NULL;
}

/* h += down (act(gate x) * (up x)). next: the layer that follows; NULL: the head. */
static void dense_ffn(csn_forward *f, const csn_layer *l, const csn_layer *next,
                      const csn_active_visit *active, float *h, uint64_t n) {
    const csn_plan *p = f->plan;
    const csn_packed_ffn *packed = packed_of(f, active);
    const csn_weight *down = packed != NULL ? &packed->down : &l->down;
    const float *in = f->gate;
    csn_ops_expect(&f->ops, down, NULL, NULL);
    if (packed != NULL) {
        in = csn_block_gate_up_packed(&f->ops, &p->act, packed, f->x, p->hidden, n, f->gate, f->up);
    } else {
        csn_block_gate_up(&f->ops, &p->act, &l->gate, &l->up, active != NULL ? active->ffn : NULL,
                          f->x, p->hidden, n, f->gate, f->up);
    }
    if (next != NULL) {
        csn_ops_expect(&f->ops, next->first[0], next->first[1], next->first[2]);
    } else {
        csn_ops_expect(&f->ops, &p->head, NULL, NULL);
    }
    project(f, down, in, down->m.cols, l->post_ffn_norm, h, n);
}

/* Of rows [row0, row0 + n). next: as for dense_ffn. */
static caisson_status ffn(csn_forward *f, const csn_layer *l, uint32_t i_layer,
                          const csn_layer *next, const csn_active_visit *active, uint64_t row0,
                          uint64_t n, caisson_error *err) {
    const csn_plan *p = f->plan;
    uint64_t dim = p->hidden;
    float *h = f->h + row0 * dim;
    read_stream(f, l->ffn_res, csn_plan_n_res(p, i_layer + 1), l->pre_ffn_norm, row0, n);
    if (l->moe == NULL) {
        dense_ffn(f, l, next, active, h, n);
        return CAISSON_OK;
    }
    CSN_TRY(csn_block_moe(&f->ops, p, l->moe, &f->moe, active, f->x, f->mixed, n, err));
    if (l->post_ffn_norm != NULL) {
        csn_block_norm(&f->ops, f->mixed, dim, l->post_ffn_norm, p->norm_eps, f->mixed, dim, n,
                       dim);
    }
    csn_block_add(&f->ops, h, f->mixed, n, dim);
    return CAISSON_OK;
}

/* Attention of x; the result, [n][l->o.m.cols]. */
static const float *attention(csn_forward *f, csn_kv *kv, const csn_layer *l,
                              const csn_active_visit *active, const csn_place *at) {
    const csn_plan *p = f->plan;
    const csn_attn_memory mem = {
        f->q, f->att, f->k, f->v, f->gate, f->up, f->low, f->scratch,
    };
    if (l->kda != NULL) {
        return csn_block_kda(&f->ops, p, l, kv, active, at, &mem, f->x);
    }
    if (l->mla != NULL) {
        return csn_block_mla(&f->ops, p, l, kv, active, at, &mem, f->x);
    }
    const csn_runs *q_runs = active != NULL ? active->q : NULL;
    const csn_runs *kv_runs = active != NULL ? active->kv : NULL;
    csn_linear items[3] = {{&l->q, f->q, l->q.m.rows, q_runs},
                           {&l->k, f->k, l->k.m.rows, kv_runs},
                           {&l->v, f->v, l->v.m.rows, kv_runs}};
    csn_qkv qkv = {f->q, f->k, f->v, at->cos, at->sin};
    csn_ops_expect(&f->ops, &l->o, NULL, NULL);
    csn_ops_linear_normed(&f->ops, items, 3, f->x, p->hidden, at->n, NULL, NULL);
    csn_block_attention(&f->ops, p, l, kv, active, at->i_visit, at->pos0, at->row0, at->n, &qkv,
                        f->att, f->scratch);
    return f->att;
}

/* Of one token: what the mixture of visit i would choose now, before its attention, is most of what
 * it will choose (docs/warp.md, "Guesses"). */
static void look_ahead(csn_forward *f, uint32_t i) {
    const csn_plan *p = f->plan;
    const csn_layer *l = &p->layers[i % p->n_layers];
    const csn_active_visit *active = f->active != NULL ? &f->active->visits[i] : NULL;
    bool is_off = active != NULL && active->is_off;
    bool can_ask = p->trunk == NULL || csn_trunk_is_there(p->trunk, i % p->n_layers);
    if (l->moe == NULL || l->moe->stream == NULL || is_off || !can_ask ||
        !csn_stream_looks_ahead(l->moe->stream)) {
        return;
    }
    read_stream(f, l->ffn_res, csn_plan_n_res(p, i % p->n_layers), l->pre_ffn_norm, 0, 1);
    csn_block_look_ahead(&f->ops, p, l->moe, &f->moe, active, f->x);
}

/* Visit i of a layer. */
static caisson_status layer(csn_forward *f, csn_kv *kv, uint32_t i, uint32_t pos0, uint64_t n,
                            uint64_t row0, caisson_error *err) {
    const csn_plan *p = f->plan;
    uint32_t i_layer = i % p->n_layers;
    const csn_layer *l = &p->layers[i_layer];
    const csn_active_visit *active = f->active != NULL ? &f->active->visits[i] : NULL;
    if (active != NULL && active->is_off) {
        return CAISSON_OK;
    }
    uint64_t table = p->ropes[l->i_rope].before * f->max_n;
    csn_place at = {i, pos0, row0, n, f->cos + table, f->sin + table};
    read_stream(f, l->attn_res, csn_plan_n_res(p, i_layer), l->input_norm, 0, n);
    begin_block(f, i_layer, n);
    const float *result = attention(f, kv, l, active, &at);
    CSN_TRY(csn_kv_check(kv, i_layer, err));
    const csn_packed_ffn *packed = packed_of(f, active);
    if (packed != NULL) {
        csn_ops_expect(&f->ops, &packed->gate, &packed->up, NULL);
    } else if (l->moe == NULL && (active == NULL || active->ffn == NULL)) { /* else rows of lists */
        csn_ops_expect(&f->ops, &l->gate, &l->up, NULL);
    }
    uint64_t width = l->o.m.cols;
    project(f, &l->o, result + row0 * width, width, l->post_attn_norm, f->h + row0 * p->hidden,
            n - row0);
    bool is_last = i + 1 == csn_plan_n_visits(p);
    const csn_layer *next = is_last ? NULL : &p->layers[(i + 1) % p->n_layers];
    CSN_TRY(ffn(f, l, i_layer, next, active, row0, n - row0, err));
    if (n == 1 && !is_last) {
        look_ahead(f, i + 1);
    }
    return CAISSON_OK;
}

/* What is run behind visit i: a layer, or the head if somebody asks for logits. */
static uint32_t part_after(const csn_plan *p, uint32_t i, bool wants_logits) {
    return i + 1 < csn_plan_n_visits(p) ? (i + 1) % p->n_layers : wants_logits ? p->n_layers : 0;
}

static caisson_status run(csn_forward *f, csn_kv *kv, const int32_t *ids, uint32_t pos0, uint64_t n,
                          uint64_t row0, bool use_long, const csn_progress *progress,
                          caisson_error *err) {
    const csn_plan *p = f->plan;
    CSN_TRY(embed(f, ids, n, err));
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        uint64_t table = p->ropes[i].before * f->max_n;
        csn_rope_tables(&p->ropes[i], use_long, pos0, (uint32_t)n, f->cos + table, f->sin + table);
    }
    uint32_t n_visits = csn_plan_n_visits(p);
    f->moe.progress = progress;
    for (uint32_t i = 0; i < n_visits; i++) {
        CSN_TRY(csn_progress_tell(progress, "layers", i, n_visits, err));
        if (p->trunk != NULL) {
            CSN_TRY(csn_trunk_use(p->trunk, i % p->n_layers, part_after(p, i, row0 < n), progress,
                                  err));
        }
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

caisson_status csn_forward_run(csn_forward *f, csn_kv *kv, const int32_t *ids, uint32_t pos0,
                               uint64_t n, uint64_t row0, bool use_long,
                               const csn_progress *progress, caisson_error *err) {
    csn_trunk *trunk = f->plan->trunk;
    if (trunk == NULL) {
        return run(f, kv, ids, pos0, n, row0, use_long, progress, err);
    }
    csn_trunk_claim(trunk);
    caisson_status status = run(f, kv, ids, pos0, n, row0, use_long, progress, err);
    csn_trunk_release(trunk);
    return status;
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

static void run_head(csn_forward *f, uint64_t row0, uint64_t rows, float *logits) {
    const csn_plan *p = f->plan;
    uint64_t dim = p->hidden;
    read_stream(f, p->output_res, csn_plan_n_res(p, p->n_layers), p->final_norm, row0, rows);
    struct finish a = {f, logits};
    csn_linear item = {&p->head, logits, p->vocab, NULL};
    const csn_layer *first = p->layers; /* of the next token */
    csn_ops_expect(&f->ops, first->first[0], first->first[1], first->first[2]);
    csn_ops_linear_normed(&f->ops, &item, 1, f->x, dim, rows, finish_rows, &a);
    for (uint64_t t = 0; t < rows && p->head.rows < p->vocab; t++) {
        memset(logits + t * p->vocab + p->head.rows, 0, (p->vocab - p->head.rows) * sizeof(float));
    }
}

caisson_status csn_forward_logits(csn_forward *f, uint64_t row0, uint64_t rows, float *logits,
                                  const csn_progress *progress, caisson_error *err) {
    const csn_plan *p = f->plan;
    if (p->trunk == NULL) {
        run_head(f, row0, rows, logits);
        return CAISSON_OK;
    }
    csn_trunk_claim(p->trunk);
    caisson_status status = csn_trunk_use(p->trunk, p->n_layers, 0, progress, err);
    if (status == CAISSON_OK) {
        run_head(f, row0, rows, logits);
    }
    csn_trunk_release(p->trunk);
    return status;
}
