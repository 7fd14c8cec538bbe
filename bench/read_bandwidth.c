/* SPDX-License-Identifier: Apache-2.0 */
/* GB/s of plain reads by working set and number of threads: the bound of decoding.
 *
 *   bench_read_bandwidth [--mb 256] [--seconds 0.5]
 */
#include "bench.h"

struct work {
    const uint8_t *p;
    size_t n; /* bytes of each thread, a multiple of 4096 */
    unsigned repeats;
    volatile uint64_t sink[64];
};

static void read_all(void *ctx, unsigned i, unsigned n_threads) {
    struct work *w = ctx;
    (void)n_threads;
    for (unsigned r = 0; r < w->repeats; r++) {
        w->sink[i % 64] = bench_read(w->p + i * w->n, w->n);
    }
}

int main(int argc, char **argv) {
    size_t most = (size_t)bench_arg(argc, argv, "--mb", 256) << 20;
    double seconds = bench_arg(argc, argv, "--seconds", 0.5);
    unsigned n_cpus = csn_n_cpus();
    uint8_t *p = bench_alloc(most * n_cpus);
    memset(p, 1, most * n_cpus);
    static const size_t sizes[] = {16 << 10, 256 << 10, 4 << 20, 0};
    const char *sep = "";
    printf("{\"read\":[");
    for (unsigned threads = 1; threads <= n_cpus; threads *= 2) {
        csn_pool *pool;
        caisson_error err;
        if (csn_pool_new(threads, &pool, &err) != CAISSON_OK) {
            return 1;
        }
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            static struct work w;
            w.p = p;
            w.n = sizes[i] == 0 ? most : sizes[i];
            w.repeats = (unsigned)((8 << 20) / w.n + 1);
            bench_time t = bench_run(pool, read_all, &w, seconds);
            double bytes = (double)w.n * (double)w.repeats * threads;
            printf("%s\n  {\"threads\":%u,\"bytes_a_thread\":%zu,\"gb_per_s\":%.1f,"
                   "\"gb_per_s_median\":%.1f}",
                   sep, threads, w.n, bytes / t.best * 1e-9, bytes / t.median * 1e-9);
            sep = ",";
        }
        csn_pool_free(pool);
    }
    printf("]}\n");
    return 0;
}
