/* SPDX-License-Identifier: Apache-2.0 */
#include "model/blocks/vq.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/size.h"

enum {
    TABLE_GRAIN = 32,                    /* vectors of a block of an int8 table */
    UP_GRAIN = TABLE_GRAIN * CSN_VQ_DIM, /* rows: whoever has them makes their part of a table */
    DOWN_GRAIN = 2 * CSN_VQ_BLOCK        /* rows */
};

static csn_vq_books shape_of(const csn_vq_sizes *s) {
    return (csn_vq_books){.stages = s->stages, .entries = s->entries, .is_packed = s->is_packed};
}

uint32_t csn_vq_max_chunk(const csn_vq_sizes *sizes, csn_compute compute) {
    csn_vq_books b = shape_of(sizes);
    csn_vq_kernel k = csn_kernel_vq(&b, compute == CSN_COMPUTE_INT8);
    uint64_t n = CSN_VQ_TABLE_BYTES / (2 * k.table_nbytes(&b, sizes->hidden));
    return k.direct != NULL ? UINT32_MAX : n < 8 ? 8 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static bool add(uint64_t *total, uint64_t n, uint64_t size, uint64_t *ret_offset) {
    uint64_t bytes;
    *ret_offset = *total;
    return csn_mul(n, size, &bytes) && csn_align_up(bytes, 64, &bytes) &&
           csn_add(*total, bytes, total);
}

enum { N_PARTS = 5 };

/* Kernel and sizes of *m, where its parts lie, and the bytes of all; false on overflow. */
static bool lay_out(const csn_vq_sizes *sizes, csn_compute compute, uint32_t max_n,
                    csn_vq_memory *m, uint64_t at[N_PARTS], uint64_t *ret_total) {
    csn_vq_books b = shape_of(sizes);
    *m = (csn_vq_memory){.sizes = *sizes};
    m->kernel = csn_kernel_vq(&b, compute == CSN_COMPUTE_INT8);
    m->in_bytes = m->kernel.table_nbytes(&b, sizes->hidden);
    m->down_bytes = m->kernel.table_nbytes(&b, sizes->width);
    *ret_total = 0;
    uint64_t n_tables = m->kernel.direct != NULL && max_n > CSN_VQ_FEW ? CSN_VQ_FEW : max_n;
    return add(ret_total, 2 * n_tables, m->in_bytes, &at[0]) &&
           add(ret_total, CSN_VQ_ROWS, m->down_bytes, &at[1]) &&
           add(ret_total, CSN_VQ_ROWS, sizes->width * sizeof(float), &at[2]) &&
           add(ret_total, CSN_VQ_ROWS, sizes->width * sizeof(float), &at[3]) &&
           add(ret_total, CSN_VQ_ROWS, sizes->hidden * sizeof(float), &at[4]);
}

uint64_t csn_vq_memory_nbytes(const csn_vq_sizes *sizes, csn_compute compute, uint32_t max_n) {
    csn_vq_memory m;
    uint64_t at[N_PARTS];
    uint64_t total;
    return lay_out(sizes, compute, max_n, &m, at, &total) ? total : UINT64_MAX;
}

caisson_status csn_vq_memory_new(const csn_vq_sizes *sizes, csn_compute compute, uint32_t max_n,
                                 csn_vq_memory *ret, caisson_error *err) {
    csn_vq_memory m;
    uint64_t at[N_PARTS];
    uint64_t total;
    size_t size;
    if (!lay_out(sizes, compute, max_n, &m, at, &total) || !csn_to_size(total, &size)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    CSN_TRY(csn_alloc_aligned(size, &m.bytes, err));
    uint8_t *p = m.bytes;
    m.in = p + at[0];
    m.down = p + at[1];
    m.gate = (float *)(p + at[2]);
    m.up = (float *)(p + at[3]);
    m.y = (float *)(p + at[4]);
    *ret = m;
    return CAISSON_OK;
}

void csn_vq_memory_done(csn_vq_memory *m) {
    csn_free_aligned(m->bytes);
    *m = (csn_vq_memory){0};
}

static uint64_t units(uint64_t n, uint64_t grain) {
    return (n + grain - 1) / grain;
}

static void part(uint64_t unit, uint64_t grain, uint64_t n, uint64_t *r0, uint64_t *r1) {
    *r0 = unit * grain;
    *r1 = *r0 + grain < n ? *r0 + grain : n;
}

struct tables {
    csn_vq_memory *m;
    const csn_vq_books *books[2];
    const float *x;
    uint64_t n;
    _Atomic uint64_t next;
};

/* A unit is 32 positions of one vector. */
static void make_tables(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct tables *t = ctx;
    const csn_vq_memory *m = t->m;
    uint64_t hidden = m->sizes.hidden;
    uint64_t n_units = units(hidden / CSN_VQ_DIM, TABLE_GRAIN);
    (void)i_thread;
    (void)n_threads;
    for (uint64_t u = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
         u < t->n * n_units; u = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) {
        uint64_t i = u / n_units;
        uint64_t v0;
        uint64_t v1;
        part(u % n_units, TABLE_GRAIN, hidden / CSN_VQ_DIM, &v0, &v1);
        for (uint64_t k = 0; k < 2; k++) {
            m->kernel.table(t->books[k], t->x + i * hidden, hidden, v0, v1,
                            m->in + (2 * i + k) * m->in_bytes);
        }
    }
}

void csn_block_vq_begin(csn_ops *ops, csn_vq_memory *m, const csn_vq_books *gate,
                        const csn_vq_books *up, const float *x, uint64_t n) {
    struct tables t = {.m = m, .books = {gate, up}, .x = x, .n = n};
    m->x = m->kernel.direct != NULL && n > CSN_VQ_FEW ? x : NULL;
    if (m->x == NULL) {
        csn_pool_run(ops->pool, make_tables, &t);
    }
}

struct batch {
    csn_vq_memory *m;
    const csn_vec *vec;
    const csn_vec_act *act;
    const csn_vq_job *jobs;
    uint32_t n_jobs, n_results;
    uint64_t up_grain, down_grain; /* rows of a unit */
    _Atomic uint64_t next;
};

/* Rows of a unit: one for each thread. A table is read once a unit, and what several vectors have
 * in common is prepared once a unit (kernels/vq.h). */
static uint64_t grain_of(const struct batch *b, uint64_t n_rows, uint64_t least,
                         unsigned n_threads) {
    return units(units(n_rows, units(n_threads, b->n_jobs)), least) * least;
}

/* Rows of gate and up, the activation, and what they give of the tables for down. */
static void gate_up_unit(const struct batch *b, const csn_vq_job *job, uint64_t unit) {
    const csn_vq_memory *m = b->m;
    uint64_t width = m->sizes.width;
    const void *gate_tables[CSN_VQ_ROWS];
    const void *up_tables[CSN_VQ_ROWS];
    uint64_t r0;
    uint64_t r1;
    part(unit, b->up_grain, width, &r0, &r1);
    for (uint32_t i = 0; i < job->n; i++) {
        gate_tables[i] = m->in + 2 * (uint64_t)job->rows[i] * m->in_bytes;
        up_tables[i] = m->in + (2 * (uint64_t)job->rows[i] + 1) * m->in_bytes;
    }
    float *gate = m->gate + job->first * width;
    float *up = m->up + job->first * width;
    m->kernel.apply(&job->gate, gate_tables, job->n, gate, width, r0, r1);
    m->kernel.apply(&job->up, up_tables, job->n, up, width, r0, r1);
    for (uint32_t i = 0; i < job->n; i++) {
        b->vec->act_mul(b->act, gate + i * width + r0, up + i * width + r0, r1 - r0);
        m->kernel.table(job->down.books, gate + i * width, width, r0 / CSN_VQ_DIM, r1 / CSN_VQ_DIM,
                        m->down + (job->first + (uint64_t)i) * m->down_bytes);
    }
}

static void down_unit(const struct batch *b, const csn_vq_job *job, uint64_t unit) {
    const csn_vq_memory *m = b->m;
    const void *tables[CSN_VQ_ROWS];
    uint64_t r0;
    uint64_t r1;
    part(unit, b->down_grain, m->sizes.hidden, &r0, &r1);
    for (uint32_t i = 0; i < job->n; i++) {
        tables[i] = m->down + (job->first + (uint64_t)i) * m->down_bytes;
    }
    m->kernel.apply(&job->down, tables, job->n, m->y + (uint64_t)job->first * m->sizes.hidden,
                    m->sizes.hidden, r0, r1);
}

static void run_units(struct batch *b, uint64_t per_job,
                      void (*fn)(const struct batch *b, const csn_vq_job *job, uint64_t unit)) {
    for (uint64_t u = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
         u < b->n_jobs * per_job;
         u = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) {
        fn(b, &b->jobs[u / per_job], u % per_job);
    }
}

static void run_gate_up(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct batch *b = ctx;
    (void)i_thread;
    (void)n_threads;
    run_units(b, units(b->m->sizes.width, b->up_grain), gate_up_unit);
}

static void run_down(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct batch *b = ctx;
    (void)i_thread;
    (void)n_threads;
    run_units(b, units(b->m->sizes.hidden, b->down_grain), down_unit);
}

/* ---- without tables ---- */

/* Rows of a unit when n matrices of n_rows give each thread one: what a call makes of its vectors
 * serves all its rows. */
static uint64_t direct_grain(uint64_t n, uint64_t n_rows, unsigned n_threads) {
    return units(units(n_rows, units(n_threads, n)), CSN_VQ_BLOCK) * CSN_VQ_BLOCK;
}

static void direct_gate_up_unit(const struct batch *b, const csn_vq_job *job, uint64_t unit) {
    const csn_vq_memory *m = b->m;
    const csn_vq_matrix *of = unit % 2 == 0 ? &job->gate : &job->up;
    float *y = (unit % 2 == 0 ? m->gate : m->up) + job->first * (uint64_t)m->sizes.width;
    const float *x[CSN_VQ_ROWS];
    uint64_t r0;
    uint64_t r1;
    part(unit / 2, b->up_grain, m->sizes.width, &r0, &r1);
    for (uint32_t i = 0; i < job->n; i++) {
        x[i] = m->x + job->rows[i] * (uint64_t)m->sizes.hidden;
    }
    m->kernel.direct(of, x, job->n, y, m->sizes.width, r0, r1);
}

static void direct_down_unit(const struct batch *b, const csn_vq_job *job, uint64_t unit) {
    const csn_vq_memory *m = b->m;
    const float *x[CSN_VQ_ROWS];
    uint64_t r0;
    uint64_t r1;
    part(unit, b->down_grain, m->sizes.hidden, &r0, &r1);
    for (uint32_t i = 0; i < job->n; i++) {
        x[i] = m->gate + (job->first + (uint64_t)i) * m->sizes.width;
    }
    m->kernel.direct(&job->down, x, job->n, m->y + job->first * (uint64_t)m->sizes.hidden,
                     m->sizes.hidden, r0, r1);
}

static void run_direct_gate_up(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct batch *b = ctx;
    (void)i_thread;
    (void)n_threads;
    run_units(b, 2 * units(b->m->sizes.width, b->up_grain), direct_gate_up_unit);
}

static void run_direct_act(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct batch *b = ctx;
    uint64_t width = b->m->sizes.width;
    for (uint64_t i = i_thread; i < b->n_results; i += n_threads) {
        b->vec->act_mul(b->act, b->m->gate + i * width, b->m->up + i * width, width);
    }
}

static void run_direct_down(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct batch *b = ctx;
    (void)i_thread;
    (void)n_threads;
    run_units(b, units(b->m->sizes.hidden, b->down_grain), direct_down_unit);
}

static void run_direct(csn_ops *ops, struct batch *b) {
    const csn_vq_job *last = &b->jobs[b->n_jobs - 1];
    const unsigned n_threads = csn_pool_n_threads(ops->pool);
    b->n_results = last->first + last->n;
    b->up_grain = direct_grain(2 * (uint64_t)b->n_jobs, b->m->sizes.width, n_threads);
    b->down_grain = direct_grain(b->n_jobs, b->m->sizes.hidden, n_threads);
    csn_pool_run(ops->pool, run_direct_gate_up, b);
    csn_pool_run(ops->pool, run_direct_act, b);
    atomic_store_explicit(&b->next, 0, memory_order_relaxed);
    csn_pool_run(ops->pool, run_direct_down, b);
}

void csn_block_vq_run(csn_ops *ops, csn_vq_memory *m, const csn_vec_act *act,
                      const csn_vq_job *jobs, uint32_t n_jobs) {
    struct batch b = {.m = m, .vec = ops->vec, .act = act, .jobs = jobs, .n_jobs = n_jobs};
    if (n_jobs == 0) {
        return;
    }
    if (m->x != NULL) {
        run_direct(ops, &b);
        return;
    }
    const unsigned n_threads = csn_pool_n_threads(ops->pool);
    b.up_grain = grain_of(&b, m->sizes.width, UP_GRAIN, n_threads);
    b.down_grain = grain_of(&b, m->sizes.hidden, DOWN_GRAIN, n_threads);
    csn_pool_run(ops->pool, run_gate_up, &b);
    atomic_store_explicit(&b.next, 0, memory_order_relaxed);
    csn_pool_run(ops->pool, run_down, &b);
}
