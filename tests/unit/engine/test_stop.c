/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings across pieces of text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/stop.h"

static size_t tell;
static uint32_t which;

static bool find(const char *held, const char *a, const char *b) {
    csn_str stops[2] = {csn_str_from(a), csn_str_from(b)};
    return csn_stop_find(csn_str_from(held), stops, b != NULL ? 2 : 1, &tell, &which);
}

static void whole_stop_string_is_found(void **state) {
    (void)state;
    assert_true(find("hello END of", "END", NULL));
    assert_int_equal(tell, 6);
}

static void earliest_of_several_wins(void **state) {
    (void)state;
    assert_true(find("a xx b yy", "yy", "xx"));
    assert_int_equal(tell, 2);
    assert_int_equal(which, 1);
}

static void a_beginning_is_held_back(void **state) {
    (void)state;
    assert_false(find("text EN", "END", NULL));
    assert_int_equal(tell, 5);
    assert_false(find("text EN", "ENx", "text ENDS"));
    assert_int_equal(tell, 0);
}

static void repeated_letters_hold_the_longest(void **state) {
    (void)state;
    assert_false(find("aab", "aabaac", NULL));
    assert_int_equal(tell, 0);
    assert_false(find("xaaaa", "aab", NULL));
    assert_int_equal(tell, 3);
}

static void no_stops_and_empty_stops_hold_nothing(void **state) {
    (void)state;
    assert_false(csn_stop_find(CSN_STR("abc"), NULL, 0, &tell, &which));
    assert_int_equal(tell, 3);
    assert_false(find("abc", "", NULL));
    assert_int_equal(tell, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_stop_string_is_found),
        cmocka_unit_test(earliest_of_several_wins),
        cmocka_unit_test(a_beginning_is_held_back),
        cmocka_unit_test(repeated_letters_hold_the_longest),
        cmocka_unit_test(no_stops_and_empty_stops_hold_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
