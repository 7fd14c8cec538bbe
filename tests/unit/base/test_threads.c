/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/threads.h"

struct tally {
    _Atomic unsigned calls[8];
    unsigned n_seen;
};

static void count(void *ctx, unsigned i, unsigned n) {
    struct tally *t = ctx;
    atomic_fetch_add(&t->calls[i], 1);
    if (i == 0) {
        t->n_seen = n;
    }
}

static void every_thread_runs_once_a_region(void **state) {
    (void)state;
    caisson_error err;
    for (unsigned n = 1; n <= 5; n++) {
        csn_pool *p;
        ASSERT_OK(csn_pool_new(n, &p, &err), &err);
        struct tally t = {0};
        for (int r = 0; r < 500; r++) {
            csn_pool_run(p, count, &t);
            if (r % 100 == 99) {
                usleep(3000); /* long enough for the workers to park */
            }
        }
        assert_int_equal(t.n_seen, n);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(t.calls[i], 500);
        }
        csn_pool_free(p);
    }
}

/* Regions separated by pauses around the length of the spin, with more threads than CPUs: a wake-up
 * that is lost shows as a test that never ends. */
static void no_wake_up_is_missed(void **state) {
    (void)state;
    caisson_error err;
    csn_pool *p;
    ASSERT_OK(csn_pool_new(2 * csn_n_cpus() + 1, &p, &err), &err);
    struct tally t = {0};
    unsigned n = csn_pool_n_threads(p) < 8 ? csn_pool_n_threads(p) : 0;
    for (unsigned r = 0; n != 0 && r < 600; r++) {
        csn_pool_run(p, count, &t);
        if (r % 3 == 0) {
            usleep(r % 60 * 5);
        }
    }
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(t.calls[i], 600);
    }
    csn_pool_free(p);
}

static void no_pool_is_one_thread(void **state) {
    (void)state;
    struct tally t = {0};
    csn_pool_run(NULL, count, &t);
    assert_int_equal(t.calls[0], 1);
    assert_int_equal(csn_pool_n_threads(NULL), 1);
    csn_pool_free(NULL);
}

static void absurd_thread_counts_are_refused(void **state) {
    (void)state;
    caisson_error err;
    csn_pool *p = NULL;
    ASSERT_STATUS(csn_pool_new(1000000, &p, &err), CAISSON_E_ARG);
    assert_null(p);
}

static void shares_cover_everything_once(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 70; n++) {
        for (unsigned k = 1; k < 9; k++) {
            for (uint64_t grain = 1; grain < 20; grain += 3) {
                uint64_t next = 0;
                for (unsigned i = 0; i < k; i++) {
                    uint64_t a;
                    uint64_t b;
                    csn_share(n, grain, i, k, &a, &b);
                    assert_true(a == next && b >= a && b <= n);
                    assert_true(a % grain == 0 || a == n);
                    next = b;
                }
                assert_true(next == n);
            }
        }
    }
}

static void note_mask(void *ctx, unsigned i, unsigned n) {
    (void)n;
    pthread_sigmask(SIG_SETMASK, NULL, (sigset_t *)ctx + i);
}

/* A Ctrl-C taken by a worker would not wake the thread that waits for it. */
static void workers_leave_signals_to_the_host(void **state) {
    (void)state;
    caisson_error err;
    csn_pool *p;
    ASSERT_OK(csn_pool_new(3, &p, &err), &err);
    sigset_t masks[3];
    csn_pool_run(p, note_mask, masks);
    csn_pool_free(p);
    assert_int_equal(sigismember(&masks[0], SIGINT), 0); /* the caller's own mask is as it was */
    for (int i = 1; i < 3; i++) {
        assert_int_equal(sigismember(&masks[i], SIGINT), 1);
        assert_int_equal(sigismember(&masks[i], SIGTERM), 1);
        assert_int_equal(sigismember(&masks[i], SIGBUS), 0); /* guarded mappings need it */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once_a_region),
        cmocka_unit_test(no_wake_up_is_missed),
        cmocka_unit_test(no_pool_is_one_thread),
        cmocka_unit_test(workers_leave_signals_to_the_host),
        cmocka_unit_test(absurd_thread_counts_are_refused),
        cmocka_unit_test(shares_cover_everything_once),
    };
    return cmocka_run_group_tests_name("base/threads", tests, NULL, NULL);
}
