/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include "store/watch.h"

static csn_watch warm(uint64_t faults) {
    csn_watch w;
    csn_watch_init(&w, 0, 8000);
    for (int i = 0; i < 8; i++) { /* a mapped file is read for the first time */
        assert_int_equal(csn_watch_step(&w, faults += 1000), 8000);
    }
    return w;
}

static void a_machine_that_pages_makes_the_cache_smaller(void **state) {
    (void)state;
    csn_watch w = warm(0);
    uint64_t faults = 8000;
    assert_int_equal(csn_watch_step(&w, faults += 500), 8000);
    assert_int_equal(csn_watch_step(&w, faults += 500), 8000);
    assert_int_equal(csn_watch_step(&w, faults += 500), 7000);
    w.cache_bytes = 7000;
    assert_int_equal(csn_watch_step(&w, faults += 500), 7000);
    assert_int_equal(csn_watch_step(&w, faults += 500), 7000);
    assert_int_equal(csn_watch_step(&w, faults += 500), 6125);
}

static void a_moment_of_it_does_not(void **state) {
    (void)state;
    csn_watch w = warm(0);
    uint64_t faults = 8000;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(csn_watch_step(&w, faults += i % 3 == 2 ? 0 : 900), 8000);
    }
    for (int i = 0; i < 50; i++) { /* a few faults are nothing */
        assert_int_equal(csn_watch_step(&w, faults += 10), 8000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_that_pages_makes_the_cache_smaller),
        cmocka_unit_test(a_moment_of_it_does_not),
    };
    return cmocka_run_group_tests_name("store watch", tests, NULL, NULL);
}
