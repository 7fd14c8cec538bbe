/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/size.h"
#include "base/utf8.h"

static void views_compare_and_search(void **state) {
    (void)state;
    assert_true(csn_str_starts(CSN_STR("abc"), CSN_STR("ab")));
    assert_false(csn_str_starts(CSN_STR("a"), CSN_STR("ab")));
    assert_true(csn_str_ends(CSN_STR("abc"), CSN_STR("bc")));
    assert_true(csn_str_cmp(CSN_STR("a"), CSN_STR("ab")) < 0);
    assert_true(csn_str_cmp(CSN_STR("b"), CSN_STR("ab")) > 0);
    assert_int_equal(csn_str_cmp(CSN_STR(""), (csn_str){0}), 0);
    assert_int_equal(csn_str_find(CSN_STR("aababb"), CSN_STR("abb"), 0), 3);
    assert_true(csn_str_find(CSN_STR("aabab"), CSN_STR("abb"), 0) == SIZE_MAX);
    assert_int_equal(csn_str_find(CSN_STR("xx"), CSN_STR(""), 2), 2);
}

static void numbers_are_strict(void **state) {
    (void)state;
    uint64_t v = 7;
    assert_true(csn_str_to_u64(CSN_STR("18446744073709551615"), &v) && v == UINT64_MAX);
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x1",
                                      "18446744073709551616",
                                      "1.0",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(csn_str_to_u64(csn_str_from(bad[i]), &v));
    }
}

static void buffer_keeps_its_limit_and_its_nul(void **state) {
    (void)state;
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(100);
    for (int i = 0; i < 100; i++) {
        ASSERT_OK(csn_buf_char(&b, 'x', &err), &err);
        assert_int_equal(b.ptr[b.len], '\0');
    }
    ASSERT_STATUS(csn_buf_char(&b, 'x', &err), CAISSON_E_LIMIT);
    ASSERT_STATUS(csn_buf_reserve(&b, SIZE_MAX, &err), CAISSON_E_LIMIT);
    assert_int_equal(b.len, 100);
    csn_buf_free(&b);
    assert_int_equal(b.max, 100);
    ASSERT_OK(csn_buf_printf(&b, &err, "%d-%s", 12, "ab"), &err);
    ASSERT_STR(csn_buf_view(&b), "12-ab");
    csn_buf_free(&b);
}

static void sizes_are_checked(void **state) {
    (void)state;
    uint64_t r = 5;
    assert_false(csn_add(UINT64_MAX, 1, &r));
    assert_false(csn_mul(UINT64_C(1) << 33, UINT64_C(1) << 31, &r));
    assert_false(csn_align_up(UINT64_MAX - 2, 4096, &r));
    assert_true(r == 5);
    assert_true(csn_align_up(4097, 4096, &r) && r == 8192);
    assert_true(csn_range_fits(10, 0, 10));
    assert_false(csn_range_fits(11, 0, 10));
    assert_false(csn_range_fits(1, UINT64_MAX, 10));
}

static void arena_gives_zeroed_aligned_memory(void **state) {
    (void)state;
    caisson_error err;
    csn_arena a = {0};
    for (size_t n = 1; n < 200000; n = n * 3 + 1) {
        unsigned char *p;
        ASSERT_OK(csn_arena_alloc(&a, n, 1, (void **)&p, &err), &err);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xff, n);
    }
    void *p;
    ASSERT_STATUS(csn_arena_alloc(&a, SIZE_MAX, 16, &p, &err), CAISSON_E_NOMEM);
    ASSERT_STATUS(csn_arena_alloc(&a, SIZE_MAX / 2, 1, &p, &err), CAISSON_E_NOMEM);
    csn_str s;
    ASSERT_OK(csn_arena_str(&a, CSN_STR("hello"), &s, &err), &err);
    assert_string_equal(s.ptr, "hello");
    csn_arena_done(&a);
    csn_arena_done(&a);
}

/* Unicode standard 3.9, table 3-7: the borders of each row. */
static void utf8_is_strict(void **state) {
    (void)state;
    static const struct {
        csn_str bytes;
        uint32_t cp;
        size_t n;
    } ok[] = {{{"\x7f", 1}, 0x7f, 1},
              {{"\xc2\x80", 2}, 0x80, 2},
              {{"\xdf\xbf", 2}, 0x7ff, 2},
              {{"\xe0\xa0\x80", 3}, 0x800, 3},
              {{"\xed\x9f\xbf", 3}, 0xd7ff, 3},
              {{"\xee\x80\x80", 3}, 0xe000, 3},
              {{"\xf0\x90\x80\x80", 4}, 0x10000, 4},
              {{"\xf4\x8f\xbf\xbf", 4}, 0x10ffff, 4}};
    for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++) {
        uint32_t cp = 0;
        char back[4];
        assert_int_equal(csn_utf8_decode(ok[i].bytes, 0, &cp), ok[i].n);
        assert_int_equal(cp, ok[i].cp);
        assert_int_equal(csn_utf8_encode(cp, back), ok[i].n);
        assert_memory_equal(back, ok[i].bytes.ptr, ok[i].n);
        for (size_t cut = 1; cut < ok[i].n; cut++) {
            csn_str part = {ok[i].bytes.ptr, cut};
            assert_int_equal(csn_utf8_decode(part, 0, &cp), 0);
            assert_int_equal(csn_utf8_complete(part), 0);
        }
        assert_int_equal(csn_utf8_complete(ok[i].bytes), ok[i].n);
    }
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
        "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint32_t cp;
        size_t at = 99;
        assert_int_equal(csn_utf8_decode(csn_str_from(bad[i]), 0, &cp), 0);
        assert_false(csn_utf8_valid(csn_str_from(bad[i]), &at));
        assert_int_equal(at, 0);
    }
    char out[4];
    assert_int_equal(csn_utf8_encode(0xd800, out), 0);
    assert_int_equal(csn_utf8_encode(0x110000, out), 0);
    size_t at = 0;
    assert_false(csn_utf8_valid(CSN_STR("0123456789abcdef\xff"), &at));
    assert_int_equal(at, 16);
    assert_true(csn_utf8_valid(CSN_STR("0123456789abc\xc3\xa9 def"), NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_compare_and_search),           cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(buffer_keeps_its_limit_and_its_nul), cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),  cmocka_unit_test(utf8_is_strict),
    };
    return cmocka_run_group_tests_name("base/str", tests, NULL, NULL);
}
