/* SPDX-License-Identifier: Apache-2.0 */
/* Digits against Python's repr() and numpy.float32's; then everything again under a locale that
 * writes a comma. */
#include "../test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"

/* Python 3.11: repr(v), and repr(numpy.float32(v)) for f32, taken apart. */
static const struct {
    double v;
    bool is_f32;
    const char *digits;
    int exponent;
    const char *text;
} numbers[] = {
    {0.0, false, "0", 0, "0.0"},
    {-0.0, false, "0", 0, "-0.0"},
    {1.0, false, "1", 0, "1.0"},
    {-12.5, false, "125", 1, "-12.5"},
    {0.1, false, "1", -1, "0.1"},
    {0.1 + 0.2, false, "30000000000000004", -1, "0.30000000000000004"},
    {1e22, false, "1", 22, "1e22"},
    {5e-324, false, "5", -324, "5e-324"},
    {1.7976931348623157e308, false, "17976931348623157", 308, "1.7976931348623157e308"},
    {9007199254740993.0, false, "9007199254740992", 15, "9007199254740992.0"},
    {(double)1e-5f, true, "1", -5, "0.00001"},
    {(double)0.1f, true, "1", -1, "0.1"},
    {(double)3.4028235e38f, true, "34028235", 38, "3.4028235e38"},
    {(double)16777216.0f, true, "16777216", 7, "16777216.0"},
    {(double)0.1f, false, "10000000149011612", -1, "0.10000000149011612"},
};

static void assert_numbers(void) {
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char digits[CSN_MAX_DIGITS + 1] = {0}, text[CSN_NUMBER_TEXT];
        int exponent;
        int n = csn_number_digits(numbers[i].v, numbers[i].is_f32, digits, &exponent);
        assert_string_equal(digits, numbers[i].digits);
        assert_int_equal(n, strlen(numbers[i].digits));
        assert_int_equal(exponent, numbers[i].exponent);
        assert_int_equal(csn_number_text(numbers[i].v, numbers[i].is_f32, text),
                         strlen(numbers[i].text));
        assert_string_equal(text, numbers[i].text);
        double back = csn_number_scaled(digits, n, exponent - (n - 1));
        assert_true(numbers[i].is_f32 ? (float)back == (float)numbers[i].v
                                      : back == fabs(numbers[i].v));
    }
}

static void the_fewest_digits(void **state) {
    (void)state;
    char text[CSN_NUMBER_TEXT];
    assert_numbers();
    csn_number_text((double)NAN, false, text);
    assert_string_equal(text, "nan");
    csn_number_text(-(double)INFINITY, true, text);
    assert_string_equal(text, "-inf");
}

static void numbers_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip(); /* scripts/run-tests provides the locale */
    }
    assert_numbers();
    setlocale(LC_NUMERIC, "C");
}

static void brackets_give_the_thread_a_point(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip();
    }
    csn_c_numbers numbers_of_c;
    caisson_error err;
    char text[32];
    ASSERT_OK(csn_c_numbers_begin(&numbers_of_c, &err), &err);
    snprintf(text, sizeof(text), "%.1f", 0.5);
    double d = strtod("2.5", NULL);
    csn_c_numbers_end(&numbers_of_c);
    assert_string_equal(localeconv()->decimal_point, ","); /* the host's is back */
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "0.5");
    assert_true(d == 2.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fewest_digits),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(brackets_give_the_thread_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
