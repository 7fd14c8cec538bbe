/* SPDX-License-Identifier: Apache-2.0 */
/* Fork-join pool. A region is announced by raising `generation`; workers that still spin see
 * it at once, parked ones are woken. The caller runs its own share, then waits for `n_busy` to
 * reach 0 in the same way: spin for a moment, then offer the CPU to others between looks, then
 * park. A pool that only spins dies when cores are oversubscribed (bench_forkjoin shows all three).
 * Before it spins a thread fetches what it was told to read next.
 */
#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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
    SPINS = 2000, /* looks with `pause`, 100 us on a Zen 3: longer than most serial parts of a
                     token. Ten times as many made regions on a busy machine ten times as slow, and
                     sched_yield between looks kept two threads on one CPU (bench_forkjoin) */
    MAX_THREADS = 1024
};

struct worker {
    _Alignas(64) csn_ahead ahead;
    csn_pool *pool;
    unsigned index;
    pthread_t thread;
};

struct csn_pool {
    unsigned n_threads;
    _Atomic unsigned generation; /* raised once a region; odd or even means nothing */
    _Atomic unsigned n_busy;     /* workers that have not finished this region */
    _Atomic unsigned n_parked;   /* workers that sleep, or are about to */
    _Atomic bool caller_parked;  /* the same for the caller */
    _Atomic bool stop;
    csn_pool_fn fn; /* written before generation is raised */
    void *ctx;
    pthread_mutex_t mutex; /* guards only the sleeping: held while testing before a wait */
    pthread_cond_t start;
    pthread_cond_t done;
    _Atomic int caller_cpu; /* where the caller was when it announced this region */
    unsigned n_started;     /* workers to join */
    csn_ahead ahead;        /* the caller's */
    struct worker workers[];
};

/* Linux may wake a thread on the CPU of the one that wakes it, and leaves two there for long: while
 * one runs the other is parked, so no CPU looks overloaded, and two threads are slower than one. A
 * worker that finds itself on the caller's CPU goes to another one, then is free to move again. */
static void leave_caller(csn_pool *p) {
#ifdef CPU_COUNT
    int cpu = sched_getcpu();
    cpu_set_t allowed;
    if (cpu < 0 || cpu >= CPU_SETSIZE ||
        cpu != atomic_load_explicit(&p->caller_cpu, memory_order_relaxed) ||
        sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    cpu_set_t others = allowed;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0) {
        (void)sched_setaffinity(0, sizeof(allowed), &allowed);
    }
#else
    (void)p;
#endif
}

static void announce_cpu(csn_pool *p) {
#ifdef CPU_COUNT
    atomic_store_explicit(&p->caller_cpu, sched_getcpu(), memory_order_relaxed);
#else
    (void)p;
#endif
}

/* Spins until *value differs from v, or equals it; false: not yet. */
static bool spin(_Atomic unsigned *value, unsigned v, bool until_equal, csn_ahead *ahead) {
    for (int i = 0; i < SPINS; i++) {
        if ((atomic_load_explicit(value, memory_order_acquire) == v) == until_equal) {
            return true;
        }
        if (!csn_ahead_step(ahead)) {
            CPU_RELAX();
        }
    }
    return false;
}

static void *work(void *arg) {
    struct worker *w = arg;
    csn_pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        if (!spin(&p->generation, seen, false, &w->ahead)) {
            /* n_parked is raised before generation is looked at again, announce() does the two the
             * other way round, both sequentially consistent: one of them sees the other. */
            pthread_mutex_lock(&p->mutex);
            atomic_fetch_add(&p->n_parked, 1);
            while (atomic_load(&p->generation) == seen) {
                pthread_cond_wait(&p->start, &p->mutex);
            }
            atomic_fetch_sub(&p->n_parked, 1);
            pthread_mutex_unlock(&p->mutex);
            leave_caller(p);
        }
        seen++;
        if (atomic_load(&p->stop)) {
            return NULL;
        }
        p->fn(p->ctx, w->index, p->n_threads);
        if (atomic_fetch_sub(&p->n_busy, 1) == 1 && atomic_load(&p->caller_parked)) {
            leave_caller(p);
            pthread_mutex_lock(&p->mutex); /* the caller may be about to park */
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->mutex);
        }
    }
}

static void announce(csn_pool *p) {
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_parked) != 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->mutex);
    }
}

/* A signal that one of our threads took would not end the wait of the host's thread that expects
 * it. Faults stay deliverable, for guarded mappings. */
static void block_signals(sigset_t *ret_old) {
    sigset_t all;
    sigfillset(&all);
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, ret_old);
}

caisson_status csn_thread_start(void *(*fn)(void *arg), void *arg, pthread_t *ret,
                                caisson_error *err) {
    sigset_t old;
    block_signals(&old); /* a new thread inherits the mask */
    int e = pthread_create(ret, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e != 0) {
        return CSN_FAIL(err, CAISSON_E_IO, .what = "cannot start a thread", .sys_errno = e);
    }
    return CAISSON_OK;
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
    CSN_TRY(
        csn_alloc_aligned(sizeof(*p) + (n_threads - 1) * sizeof(p->workers[0]), (void **)&p, err));
    memset(p, 0, sizeof(*p) + (n_threads - 1) * sizeof(p->workers[0]));
    p->n_threads = n_threads;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (unsigned i = 0; i + 1 < n_threads; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i + 1;
        caisson_status status = csn_thread_start(work, &p->workers[i], &p->workers[i].thread, err);
        if (status != CAISSON_OK) {
            csn_pool_free(p);
            return status;
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
    csn_free_aligned(p);
}

unsigned csn_pool_n_threads(const csn_pool *p) {
    return p == NULL ? 1 : p->n_threads;
}

void csn_pool_ahead(csn_pool *p, unsigned i_thread, const csn_ahead_span *spans, unsigned n) {
    if (p != NULL && p->n_threads > 1) {
        csn_ahead_set(i_thread == 0 ? &p->ahead : &p->workers[i_thread - 1].ahead, spans, n);
    }
}

void csn_pool_run(csn_pool *p, csn_pool_fn fn, void *ctx) {
    if (p == NULL || p->n_threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    announce_cpu(p);
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->n_busy, p->n_threads - 1, memory_order_relaxed);
    announce(p);
    fn(ctx, 0, p->n_threads);
    if (spin(&p->n_busy, 0, true, &p->ahead)) {
        return;
    }
    pthread_mutex_lock(&p->mutex);
    /* An exchange: where qemu runs ARM's code on a PC, a store may wait until after the load. */
    (void)atomic_exchange(&p->caller_parked, true);
    while (atomic_load(&p->n_busy) != 0) {
        pthread_cond_wait(&p->done, &p->mutex);
    }
    atomic_store(&p->caller_parked, false);
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
