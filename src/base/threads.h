/* SPDX-License-Identifier: Apache-2.0 */
/* Fork-join over a fixed set of threads: workers spin briefly for the next region, then park.
 *
 * A region runs fn(ctx, i, n) for each of the pool's n threads, i = 0 on the caller. Work is split
 * by output, never by a sum, so results do not depend on n (docs/architecture.md, "Same bits").
 */
#ifndef CSN_BASE_THREADS_H
#define CSN_BASE_THREADS_H

#include <pthread.h>

#include "base/ahead.h"
#include "base/error.h"

typedef struct csn_pool csn_pool;
typedef void (*csn_pool_fn)(void *ctx, unsigned i_thread, unsigned n_threads);

/* n_threads counts the caller; 0 = the number of CPUs this process may use. */
caisson_status csn_pool_new(unsigned n_threads, csn_pool **ret, caisson_error *err);
void csn_pool_free(csn_pool *pool);                /* NULL is fine; no region may be running */
unsigned csn_pool_n_threads(const csn_pool *pool); /* 1 for NULL */
/* Runs one region and returns when all threads are done. Not reentrant; one caller at a time.
 * pool == NULL runs fn(ctx, 0, 1). */
void csn_pool_run(csn_pool *pool, csn_pool_fn fn, void *ctx);
/* What thread i fetches from now on whenever it waits for the others (base/ahead.h); until it is
 * set again. Between regions only; a pool of NULL or one thread never waits. */
void csn_pool_ahead(csn_pool *pool, unsigned i_thread, const csn_ahead_span *spans, unsigned n);
/* A thread that leaves the host's signals to the host's threads; pthread_join ends it. */
caisson_status csn_thread_start(void *(*fn)(void *arg), void *arg, pthread_t *ret,
                                caisson_error *err);
/* CPUs that this process may use (affinity and cgroup quota), at least 1. */
unsigned csn_n_cpus(void);

/* The half-open share of [0, n) for thread i of k, cut at multiples of `grain`. */
static inline void csn_share(uint64_t n, uint64_t grain, unsigned i, unsigned k, uint64_t *r0,
                             uint64_t *r1) {
    uint64_t units = (n + grain - 1) / grain;
    uint64_t a = units * i / k * grain;
    uint64_t b = units * (i + 1) / k * grain;
    *r0 = a < n ? a : n;
    *r1 = b < n ? b : n;
}

#endif
