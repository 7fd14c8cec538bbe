/* SPDX-License-Identifier: Apache-2.0 */
/* Microseconds of an empty region of the thread pool: back to back, after serial gaps of 20 us and
 * 2 ms (workers spin, workers are parked), and with twice as many threads as CPUs.
 *
 *   bench_forkjoin [--threads 2] [--regions 20000]
 */
#include "bench.h"

static void nothing(void *ctx, unsigned i, unsigned n) {
    (void)ctx;
    (void)i;
    (void)n;
}

static void wait_ns(uint64_t ns) {
    uint64_t end = csn_now_ns() + ns;
    while (csn_now_ns() < end) {
    }
}

static void measure(const char *name, csn_pool *pool, int n, uint64_t gap_ns, bool last) {
    double *t = bench_alloc((size_t)n * sizeof(*t));
    for (int i = 0; i < 100; i++) {
        csn_pool_run(pool, nothing, NULL);
    }
    for (int i = 0; i < n; i++) {
        if (gap_ns != 0) {
            wait_ns(gap_ns);
        }
        uint64_t a = csn_now_ns();
        csn_pool_run(pool, nothing, NULL);
        t[i] = (double)(csn_now_ns() - a) * 1e-3;
    }
    qsort(t, (size_t)n, sizeof(*t), bench_cmp);
    printf("  {\"case\":\"%s\",\"threads\":%u,\"us_min\":%.2f,\"us_p10\":%.2f,\"us_median\":%.2f,"
           "\"us_p99\":%.2f}%s\n",
           name, csn_pool_n_threads(pool), t[0], t[n / 10], t[n / 2], t[n - n / 100 - 1],
           last ? "" : ",");
}

int main(int argc, char **argv) {
    unsigned threads = (unsigned)bench_arg(argc, argv, "--threads", 2);
    int n = (int)bench_arg(argc, argv, "--regions", 20000);
    caisson_error err;
    csn_pool *pool;
    if (csn_pool_new(threads, &pool, &err) != CAISSON_OK) {
        return 1;
    }
    printf("{\"forkjoin\":[\n");
    measure("back to back", pool, n, 0, false);
    measure("after 20 us", pool, n / 4, 20000, false);
    measure("after 2 ms", pool, n / 100, 2000000, false);
    csn_pool_free(pool);
    if (csn_pool_new(2 * csn_n_cpus(), &pool, &err) != CAISSON_OK) {
        return 1;
    }
    measure("oversubscribed", pool, n / 100, 0, true);
    csn_pool_free(pool);
    printf("]}\n");
    return 0;
}
