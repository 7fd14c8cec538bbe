/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: repeat a piece of work for a while, keep the best and the median. The
 * machine is shared, so the best of many short passes is the figure, and the median says how busy
 * it was. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/threads.h"

enum { BENCH_MAX_PASSES = 4096 };

typedef struct bench_time {
    double best, median; /* seconds a pass */
} bench_time;

static inline int bench_cmp(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs fn as regions of `pool` for `seconds`, at least three times. */
static inline bench_time bench_run(csn_pool *pool, csn_pool_fn fn, void *ctx, double seconds) {
    static double t[BENCH_MAX_PASSES];
    int n = 0;
    double total = 0;
    while (n < BENCH_MAX_PASSES && (n < 3 || total < seconds)) {
        uint64_t a = csn_now_ns();
        csn_pool_run(pool, fn, ctx);
        t[n] = (double)(csn_now_ns() - a) * 1e-9;
        total += t[n++];
    }
    qsort(t, (size_t)n, sizeof(t[0]), bench_cmp);
    return (bench_time){t[0], t[n / 2]};
}

/* Zeroed memory in huge pages where the system has them; benchmarks end with the process. */
static inline void *bench_alloc(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        (void)fprintf(stderr, "bench: no memory for %zu bytes\n", n);
        exit(1);
    }
    (void)madvise(p, n, MADV_HUGEPAGE);
    return p;
}

/* Value of "--name V" or the default. */
static inline double bench_arg(int argc, char **argv, const char *name, double otherwise) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtod(argv[i + 1], NULL);
        }
    }
    return otherwise;
}

static inline uint32_t bench_random(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Sums `n` bytes at p (aligned to 64) as fast as the machine reads: four streams, a quarter of the
 * bytes each (docs/decisions/003-streams-of-rows.md). */
static inline uint64_t bench_read(const void *p, size_t n) {
    typedef uint64_t vec __attribute__((vector_size(16)));
    enum { STEP = 256 / sizeof(vec) }; /* of one stream before the next */
    const size_t quarter = n / 1024 * STEP;
    const vec *v = p;
    vec s[4] = {{0}};
    for (size_t i = 0; i < quarter; i += STEP) {
        for (size_t k = 0; k < 4; k++) {
            const vec *q = v + k * quarter + i;
            for (size_t j = 0; j < STEP; j += 4) {
                s[0] += q[j];
                s[1] += q[j + 1];
                s[2] += q[j + 2];
                s[3] += q[j + 3];
            }
        }
    }
    for (size_t i = 4 * quarter; i < n / sizeof(vec); i++) {
        s[0] += v[i];
    }
    vec sum = (s[0] + s[1]) + (s[2] + s[3]);
    return sum[0] + sum[1];
}

#endif
