/* SPDX-License-Identifier: Apache-2.0 */
/* Products with vector-quantised experts: GB/s of indices that stream from memory beside the rate
 * of plain reads, and microseconds of a table.
 *
 *   bench_vq [--mb 256] [--seconds 0.5] [--threads 1] [--rows 0] [--cols 0] [--form -1] [--n 0]
 *            [--direct 0]
 *
 * Shapes: gate of Kimi K3 (3072 x 3584) and of Kimi-Linear (1024 x 2304), or the one that is asked
 * for, with --direct 1 without tables; of the five forms, from 0 on, and of the numbers of vectors,
 * too. gb_per_s counts the bytes of indices once, whatever the number of vectors; each thread has
 * matrices of its own. */
#include "bench.h"

#include "kernels/types.h"

enum { MAX_N = 64 };

struct form {
    const char *name;
    uint32_t stages, entries;
    bool is_packed, is_int8;
};

static const struct form forms[] = {{"vq3r f32", 3, 256, false, false},
                                    {"vq3r int8", 3, 256, false, true},
                                    {"vq2r f32", 2, 256, false, false},
                                    {"vq2r int8", 2, 256, false, true},
                                    {"vq4p", 4, 64, true, true}};
static const uint64_t batches[] = {1, 2, 4, 8, 16, 32};

struct work {
    const uint8_t *index; /* of all threads */
    uint64_t n_bytes;     /* of each thread */
    csn_vq_books books;
    csn_vq_matrix m;
    csn_vq_kernel kernel;
    const float *x;
    void *tables[MAX_N];
    float *y; /* [threads][MAX_N][rows] */
    uint64_t n;
    bool is_direct;
    volatile uint64_t sink;
};

static void read_all(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct work *w = ctx;
    (void)n_threads;
    w->sink = bench_read(w->index + i_thread * w->n_bytes, w->n_bytes);
}

static uint64_t matrix_bytes(const struct work *w) {
    uint64_t n = 0;
    (void)csn_vq_index_nbytes(&w->books, w->m.rows, w->m.cols, w->m.block, &n);
    return n;
}

static void apply(void *ctx, unsigned i_thread, unsigned n_threads) {
    const struct work *w = ctx;
    const uint64_t bytes = matrix_bytes(w);
    csn_vq_matrix m = w->m;
    float *y = w->y + i_thread * MAX_N * (uint64_t)m.rows;
    (void)n_threads;
    const float *x[MAX_N];
    for (uint64_t i = 0; i < MAX_N; i++) {
        x[i] = w->x + i * m.cols;
    }
    m.index = w->index + i_thread * w->n_bytes;
    for (uint64_t k = 0; k < w->n_bytes / bytes; k++, m.index += bytes) {
        if (w->is_direct) {
            w->kernel.direct(&m, x, w->n, y, m.rows, 0, m.rows);
        } else {
            w->kernel.apply(&m, (const void *const *)w->tables, w->n, y, m.rows, 0, m.rows);
        }
    }
}

static void table(void *ctx, unsigned i_thread, unsigned n_threads) {
    const struct work *w = ctx;
    (void)n_threads;
    if (i_thread == 0) {
        w->kernel.table(&w->books, w->x, w->m.cols, 0, w->m.cols / CSN_VQ_DIM, w->tables[0]);
    }
}

/* asked_n: 0 for all batches. */
static void bench_form(const struct form *f, struct work *w, csn_pool *pool, double seconds,
                       uint64_t asked_n) {
    w->books.stages = f->stages;
    w->books.entries = f->entries;
    w->books.is_packed = f->is_packed;
    w->kernel = csn_kernel_vq(&w->books, f->is_int8);
    const uint64_t table_bytes = w->kernel.table_nbytes(&w->books, w->m.cols);
    for (int i = 0; i < MAX_N; i++) {
        if (w->tables[i] == NULL) {
            w->tables[i] = bench_alloc(table_bytes); /* the first form that runs has the largest */
        }
        w->kernel.table(&w->books, w->x + (uint64_t)i * w->m.cols, w->m.cols, 0,
                        w->m.cols / CSN_VQ_DIM, w->tables[i]);
    }
    bench_time t = bench_run(pool, table, w, seconds);
    printf(",\n  {\"form\":\"%s\",\"rows\":%u,\"cols\":%u,\"table_us\":%.1f,"
           "\"table_us_median\":%.1f}",
           f->name, w->m.rows, w->m.cols, t.best * 1e6, t.median * 1e6);
    const unsigned threads = csn_pool_n_threads(pool);
    const double bytes = (double)(w->n_bytes / matrix_bytes(w) * matrix_bytes(w)) * threads;
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        if (asked_n != 0 && asked_n != batches[i]) {
            continue;
        }
        w->n = batches[i];
        t = bench_run(pool, apply, w, seconds);
        printf(",\n  {\"form\":\"%s\",\"rows\":%u,\"cols\":%u,\"n\":%llu,\"gb_per_s\":%.2f,"
               "\"gb_per_s_median\":%.2f,\"us_a_vector\":%.1f}",
               f->name, w->m.rows, w->m.cols, (unsigned long long)w->n, bytes / t.best * 1e-9,
               bytes / t.median * 1e-9,
               t.best * 1e6 * (double)matrix_bytes(w) * threads / (bytes * (double)w->n));
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv) {
    uint64_t n_bytes = (uint64_t)bench_arg(argc, argv, "--mb", 256) << 20;
    const double seconds = bench_arg(argc, argv, "--seconds", 0.5);
    const unsigned threads = (unsigned)bench_arg(argc, argv, "--threads", 1);
    const int form = (int)bench_arg(argc, argv, "--form", -1);
    const uint64_t n = (uint64_t)bench_arg(argc, argv, "--n", 0);
    const uint32_t asked[2] = {(uint32_t)bench_arg(argc, argv, "--rows", 0),
                               (uint32_t)bench_arg(argc, argv, "--cols", 0)};
    const uint32_t shapes[][2] = {{3072, 3584}, {1024, 2304}};
    const uint64_t n_values = CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM;
    csn_pool *pool;
    caisson_error err;
    uint32_t seed = 1;
    if (csn_pool_new(threads, &pool, &err) != CAISSON_OK) {
        return 1;
    }
    uint8_t *index = bench_alloc(n_bytes * threads);
    float *entry = bench_alloc(n_values * sizeof(float));
    for (uint64_t i = 0; i < n_bytes * threads; i++) {
        index[i] = (uint8_t)bench_random(&seed);
    }
    for (uint64_t i = 0; i < n_values; i++) {
        entry[i] = (float)bench_random(&seed) * 0x1p-24f - 0.5f;
    }
    static struct work w;
    w.index = index;
    w.n_bytes = n_bytes;
    w.books.entry = w.books.column = entry; /* any order will do */
    w.m.books = &w.books;
    w.is_direct = bench_arg(argc, argv, "--direct", 0) != 0;
    w.m.block = CSN_VQ_BLOCK;
    bench_time t = bench_run(pool, read_all, &w, seconds);
    printf("{\"vq\":[\n  {\"read_gb_per_s\":%.2f,\"median\":%.2f,\"threads\":%u}",
           (double)n_bytes * threads / t.best * 1e-9, (double)n_bytes * threads / t.median * 1e-9,
           threads);
    for (int s = 0; s < (asked[0] != 0 ? 1 : 2); s++) {
        w.m.rows = asked[0] != 0 ? asked[0] : shapes[s][0];
        w.m.cols = asked[0] != 0 ? asked[1] : shapes[s][1];
        float *x = bench_alloc(MAX_N * (uint64_t)w.m.cols * sizeof(float));
        for (uint64_t i = 0; i < MAX_N * (uint64_t)w.m.cols; i++) {
            x[i] = (float)bench_random(&seed) * 0x1p-24f - 0.5f;
        }
        w.x = x;
        w.m.scale = bench_alloc(2 * (uint64_t)w.m.rows); /* zeros: they change no time */
        w.y = bench_alloc((uint64_t)threads * MAX_N * w.m.rows * sizeof(float));
        memset(w.tables, 0, sizeof(w.tables));
        for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
            if ((form < 0 || form == (int)i) && !(w.is_direct && forms[i].is_int8)) {
                bench_form(&forms[i], &w, pool, seconds, n);
            }
        }
    }
    printf("]}\n");
    csn_pool_free(pool);
    return 0;
}
