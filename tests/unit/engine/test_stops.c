/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings across the borders of pieces: whatever the cut, the text given out is the same. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/stops.h"

/* Feeds `text` in pieces of n bytes; what came out, and which stop string was hit. */
static size_t feed(const csn_str *stop, size_t n_stop, const char *text, size_t n, csn_buf *out) {
    caisson_error err;
    csn_stops s;
    csn_stops_init(&s, stop, n_stop);
    size_t hit = SIZE_MAX;
    csn_str all = csn_str_from(text);
    for (size_t i = 0; i < all.len && hit == SIZE_MAX; i += n) {
        size_t k = all.len - i < n ? all.len - i : n;
        assert_int_equal(CAISSON_OK,
                         csn_stops_feed(&s, csn_str_make(all.ptr + i, k), out, &hit, &err));
    }
    if (hit == SIZE_MAX) {
        assert_int_equal(CAISSON_OK, csn_stops_flush(&s, out, &err));
    }
    csn_stops_done(&s);
    return hit;
}

static void expect(const csn_str *stop, size_t n_stop, const char *text, const char *want,
                   size_t want_hit) {
    for (size_t n = 1; n <= strlen(text) + 1; n++) {
        csn_buf out = CSN_BUF_INIT(1 << 16);
        size_t hit = feed(stop, n_stop, text, n, &out);
        assert_int_equal(want_hit, hit);
        assert_int_equal(strlen(want), out.len);
        assert_memory_equal(want, csn_buf_view(&out).ptr, out.len);
        csn_buf_free(&out);
    }
}

static void no_stop_strings_pass_everything(void **state) {
    (void)state;
    expect(NULL, 0, "some text", "some text", SIZE_MAX);
}

static void found_across_every_cut(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("</end>")};
    expect(stop, 1, "before</end>after", "before", 0);
}

static void a_start_that_does_not_go_on_is_given_out(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("</end>")};
    expect(stop, 1, "a</enx</en", "a</enx</en", SIZE_MAX);
}

static void overlapping_starts_are_not_lost(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("aab")};
    expect(stop, 1, "aaaab!", "aa", 0);
}

static void the_earliest_of_several_counts(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("zz"), CSN_STR("b"), CSN_STR("abc")};
    csn_buf out = CSN_BUF_INIT(64);
    assert_int_equal(2, feed(stop, 3, "xabczz", 100, &out));
    assert_string_equal("x", out.ptr);
    csn_buf_free(&out);
}

static void at_one_place_the_lowest_index_counts(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("ab"), CSN_STR("a")};
    csn_buf out = CSN_BUF_INIT(64);
    assert_int_equal(0, feed(stop, 2, "ab", 100, &out));
    assert_int_equal(0, out.len);
    csn_buf_free(&out);
}

static void a_held_tail_never_splits_a_code_point(void **state) {
    (void)state;
    csn_str stop[] = {CSN_STR("\xc3\xa9nd")}; /* e acute, n, d */
    caisson_error err;
    csn_stops s;
    csn_stops_init(&s, stop, 1);
    csn_buf out = CSN_BUF_INIT(64);
    size_t hit;
    assert_int_equal(CAISSON_OK, csn_stops_feed(&s, CSN_STR("x\xc3\xa9n"), &out, &hit, &err));
    assert_string_equal("x", out.ptr); /* the letter is held whole */
    assert_int_equal(CAISSON_OK, csn_stops_feed(&s, CSN_STR("o"), &out, &hit, &err));
    assert_string_equal("x\xc3\xa9no", out.ptr);
    csn_buf_free(&out);
    csn_stops_done(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_stop_strings_pass_everything),
        cmocka_unit_test(found_across_every_cut),
        cmocka_unit_test(a_start_that_does_not_go_on_is_given_out),
        cmocka_unit_test(overlapping_starts_are_not_lost),
        cmocka_unit_test(the_earliest_of_several_counts),
        cmocka_unit_test(at_one_place_the_lowest_index_counts),
        cmocka_unit_test(a_held_tail_never_splits_a_code_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
