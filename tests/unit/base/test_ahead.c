/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <stdint.h>

#include "base/ahead.h"
#include "base/threads.h"

static unsigned count_steps(csn_ahead *a) {
    unsigned n = 0;
    while (n < 1000 && csn_ahead_step(a)) {
        n++;
    }
    return n;
}

static void spans_are_fetched_once_each(void **state) {
    (void)state;
    static uint8_t memory[4096];
    csn_ahead a = {0};
    assert_int_equal(count_steps(&a), 0);
    csn_ahead_span spans[] = {{(uintptr_t)memory, 1024, 600}, {0, 0, 0}, {(uintptr_t)memory, 8, 1}};
    csn_ahead_set(&a, spans, 3); /* steps of 256 bytes of each stream: 3 and 1 */
    assert_int_equal(count_steps(&a), 4);
    assert_int_equal(count_steps(&a), 0);
    csn_ahead_set(&a, spans, 1);
    assert_int_equal(count_steps(&a), 3);
    csn_ahead_set(&a, spans, 3);
    assert_true(csn_ahead_step(&a) && csn_ahead_step(&a)); /* set anew in the middle */
    csn_ahead_set(&a, spans, 3);
    assert_int_equal(count_steps(&a), 4);
    csn_ahead_set(&a, NULL, 0);
    assert_int_equal(count_steps(&a), 0);
}

/* Spans come from a file's shapes: whatever they are, nothing may be read through them. */
static void any_address_is_harmless(void **state) {
    (void)state;
    csn_ahead a = {0};
    csn_ahead_span spans[] = {{0, 1, 512}, {UINTPTR_MAX, SIZE_MAX / 2, 512}, {4096, 0, 512}};
    csn_ahead_set(&a, spans, 3);
    assert_int_equal(count_steps(&a), 6);
}

static void count(void *ctx, unsigned i, unsigned n) {
    (void)n;
    ((unsigned *)ctx)[i]++;
}

/* Under tsan: the caller sets spans while workers still fetch the ones before. */
static void spans_change_while_threads_wait(void **state) {
    (void)state;
    caisson_error err;
    csn_pool *p;
    ASSERT_OK(csn_pool_new(3, &p, &err), &err);
    unsigned calls[3] = {0};
    for (uintptr_t r = 0; r < 300; r++) {
        for (unsigned i = 0; i < 3; i++) {
            csn_pool_ahead(p, i, &(csn_ahead_span){r * 4096, 64, 100 * r}, 1);
        }
        csn_pool_run(p, count, calls);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(calls[i], 300);
    }
    csn_pool_free(p);
    csn_pool_ahead(NULL, 0, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_fetched_once_each),
        cmocka_unit_test(any_address_is_harmless),
        cmocka_unit_test(spans_change_while_threads_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
