/* SPDX-License-Identifier: Apache-2.0 */
/* Fork-join pool. A region is announced by raising `generation`; workers that still spin see it at
 * once, parked ones are woken. The caller runs its own share, then waits for `n_busy` to reach 0 in
 * the same way: spin briefly, then park. Spinning is bounded by time, because a pool that only
 * spins dies when cores are oversubscribed. */
#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"

#if defined(__x86_64__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#else
#define CPU_RELAX() ((void)0)
#endif

enum {
    SPINS = 20000, /* about 0.2 to 0.7 ms of `pause`: longer than the serial part between two
                      regions of one token, shorter than what a user notices of a busy core */
    MAX_THREADS = 1024
};

struct worker {
    csn_pool *pool;
    unsigned index;
    pthread_t thread;
};

struct csn_pool {
    unsigned n_threads;
    _Atomic unsigned generation; /* raised once a region; odd or even means nothing */
    _Atomic unsigned n_busy;     /* workers that have not finished this region */
    _Atomic bool stop;
    csn_pool_fn fn; /* written before generation is raised */
    void *ctx;
    pthread_mutex_t mutex; /* guards only the sleeping: held while testing before a wait */
    pthread_cond_t start;
    pthread_cond_t done;
    unsigned n_started; /* workers to join */
    struct worker workers[];
};

static void *work(void *arg) {
    struct worker *w = arg;
    csn_pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0;
             i < SPINS && atomic_load_explicit(&p->generation, memory_order_acquire) == seen; i++) {
            CPU_RELAX();
        }
        if (atomic_load_explicit(&p->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&p->mutex);
            while (atomic_load(&p->generation) == seen) {
                pthread_cond_wait(&p->start, &p->mutex);
            }
            pthread_mutex_unlock(&p->mutex);
        }
        seen++;
        if (atomic_load(&p->stop)) {
            return NULL;
        }
        p->fn(p->ctx, w->index, p->n_threads);
        if (atomic_fetch_sub_explicit(&p->n_busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->mutex); /* the caller may be about to park */
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->mutex);
        }
    }
}

static void announce(csn_pool *p) {
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
}

caisson_status csn_pool_new(unsigned n_threads, csn_pool **ret, caisson_error *err) {
    if (n_threads == 0) {
        n_threads = csn_n_cpus();
    }
    if (n_threads > MAX_THREADS) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "too many threads",
                        CSN_VALUES(MAX_THREADS, n_threads));
    }
    csn_pool *p;
    CSN_TRY(csn_alloc(1, sizeof(*p) + (n_threads - 1) * sizeof(p->workers[0]), (void **)&p, err));
    p->n_threads = n_threads;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (unsigned i = 0; i + 1 < n_threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i + 1};
        int e = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
        if (e != 0) {
            csn_pool_free(p);
            return CSN_FAIL(err, CAISSON_E_IO, .what = "cannot start a thread", .sys_errno = e);
        }
        p->n_started++;
    }
    *ret = p;
    return CAISSON_OK;
}

void csn_pool_free(csn_pool *p) {
    if (p == NULL) {
        return;
    }
    atomic_store(&p->stop, true);
    announce(p);
    for (unsigned i = 0; i < p->n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->mutex);
    csn_free(p);
}

unsigned csn_pool_n_threads(const csn_pool *p) {
    return p == NULL ? 1 : p->n_threads;
}

void csn_pool_run(csn_pool *p, csn_pool_fn fn, void *ctx) {
    if (p == NULL || p->n_threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->n_busy, p->n_threads - 1, memory_order_relaxed);
    announce(p);
    fn(ctx, 0, p->n_threads);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->n_busy, memory_order_acquire) == 0) {
            return;
        }
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->mutex);
    while (atomic_load_explicit(&p->n_busy, memory_order_acquire) != 0) {
        pthread_cond_wait(&p->done, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
}

/* The CPU share that cgroup v2 grants, rounded up; 0 = no limit or unknown. */
static unsigned cgroup_cpus(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f == NULL) {
        return 0;
    }
    unsigned long long quota = 0;
    unsigned long long period = 0;
    int n = fscanf(f, "%llu %llu", &quota, &period); // NOLINT(cert-err34-c): the kernel wrote it
    (void)fclose(f);
    return n == 2 && quota > 0 && period > 0 ? (unsigned)((quota + period - 1) / period) : 0;
}

unsigned csn_n_cpus(void) {
    unsigned n = 1;
#ifdef CPU_COUNT /* Linux and its kin: the CPUs this process may use */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        n = (unsigned)CPU_COUNT(&set);
    }
#else
    long k = sysconf(_SC_NPROCESSORS_ONLN);
    n = k > 0 ? (unsigned)k : 1;
#endif
    unsigned quota = cgroup_cpus();
    if (quota != 0 && quota < n) {
        n = quota;
    }
    return n == 0 ? 1 : n;
}
