/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <locale.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "caisson/limits.h"

static csn_json *parse(const char *text) {
    caisson_error err;
    csn_json *doc = NULL;
    ASSERT_OK(csn_json_parse(csn_str_from(text), CSN_JSON_UNIQUE, &doc, &err), &err);
    return doc;
}

static void refuse(const char *text, caisson_status code) {
    caisson_error err = {0};
    csn_json *doc = NULL;
    caisson_status s = csn_json_parse(csn_str_from(text), CSN_JSON_UNIQUE, &doc, &err);
    if (s != code) {
        fail_msg("%s: want %s, got %s", text, caisson_status_name(code), caisson_status_name(s));
    }
    assert_null(doc);
    assert_int_equal(err.code, code);
}

static void values_and_kinds(void **state) {
    (void)state;
    csn_json *d = parse("{\"a\":[1,-2,18446744073709551615,1.5,1e3,true,false,null,"
                        "\"x\\u00e9\\u0000y\"],\"b\":{}}");
    const csn_jval *a = csn_jval_get(csn_json_root(d), "a");
    static const csn_jkind kinds[] = {CSN_JSON_INT,  CSN_JSON_INT,  CSN_JSON_INT,
                                      CSN_JSON_REAL, CSN_JSON_REAL, CSN_JSON_BOOL,
                                      CSN_JSON_BOOL, CSN_JSON_NULL, CSN_JSON_STRING};
    size_t i = 0;
    for (csn_jiter it = csn_jval_iter(a); csn_jiter_next(&it); i++) {
        assert_int_equal(csn_jval_kind(it.value), kinds[i]);
        assert_int_equal(it.index, i);
        uint64_t u = 0;
        int64_t s = 0;
        double f = 0;
        csn_str str;
        switch (i) {
        case 1:
            assert_false(csn_jval_u64(it.value, &u));
            assert_true(csn_jval_i64(it.value, &s) && s == -2);
            break;
        case 2:
            assert_true(csn_jval_u64(it.value, &u) && u == UINT64_MAX);
            assert_false(csn_jval_i64(it.value, &s));
            break;
        case 3:
            assert_true(csn_jval_f64(it.value, &f) && f == 1.5);
            assert_false(csn_jval_u64(it.value, &u));
            break;
        case 8:
            assert_true(csn_jval_str(it.value, &str));
            ASSERT_STR(str, "x\xc3\xa9\0y");
            break;
        default: break;
        }
    }
    assert_int_equal(i, 9);
    assert_int_equal(csn_jval_len(a), 9);
    assert_int_equal(csn_jval_kind(csn_jval_get(csn_json_root(d), "b")), CSN_JSON_OBJECT);
    assert_int_equal(csn_jval_len(csn_jval_get(csn_json_root(d), "b")), 0);
    csn_json_free(d);
}

static void getters_are_safe_on_anything(void **state) {
    (void)state;
    csn_json *d = parse("[1]");
    const csn_jval *const values[] = {NULL, csn_json_root(d), csn_jval_get(NULL, "x"),
                                      csn_jval_get(csn_json_root(d), "x")};
    for (size_t i = 0; i < 4; i++) {
        csn_str s;
        bool b;
        double f;
        assert_false(csn_jval_str(values[i], &s));
        assert_false(csn_jval_bool(values[i], &b));
        assert_false(csn_jval_f64(values[i], &f));
    }
    csn_jiter it = csn_jval_iter(NULL);
    assert_false(csn_jiter_next(&it));
    csn_json_free(d);
}

static void grammar_faults_are_parse(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "[1] x",
                                      "nan",
                                      "[NaN]",
                                      "[Infinity]",
                                      "[01]",
                                      "[1.]",
                                      "[.5]",
                                      "['a']",
                                      "[\"\\x\"]",
                                      "[\"\\ud800\"]",
                                      "[\"\x01\"]",
                                      "[\"\xff\"]",
                                      "[\"\xed\xa0\x80\"]",
                                      "// c\n1",
                                      "[1e999]",
                                      "{\"a\":1,\"a\":2}",
                                      "{\"x\":[{\"k\":1,\"j\":2,\"k\":3}]}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        refuse(bad[i], CAISSON_E_PARSE);
    }
}

static void depth_is_limited(void **state) {
    (void)state;
    char text[2 * (CAISSON_MAX_JSON_DEPTH + 1) + 1];
    size_t n = CAISSON_MAX_JSON_DEPTH;
    memset(text, '[', n);
    memset(text + n, ']', n);
    text[2 * n] = '\0';
    csn_json_free(parse(text));
    n++;
    memset(text, '[', n);
    memset(text + n, ']', n);
    text[2 * n] = '\0';
    refuse(text, CAISSON_E_LIMIT);
    csn_json_free(parse("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                        "[[[[[[[[\\\"[[[[[[\"]"));
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP + 1); /* refused without using the stack */
    assert_non_null(deep);
    memset(deep, '[', DEEP);
    deep[DEEP] = '\0';
    refuse(deep, CAISSON_E_LIMIT);
    free(deep);
}

static void writer_round_trip(void **state) {
    (void)state;
    static const char text[] = "{\"s\":\"\\\"\\\\\\n\\u0001\xc3\xa9\",\"n\":[0,-5,"
                               "18446744073709551615,0.1,1e-6,3.0,true,null],\"o\":{},\"l\":[]}";
    csn_json *d = parse(text);
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 20);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_value(&w, csn_json_root(d));
    ASSERT_OK(csn_jw_end(&w), &err);
    ASSERT_STR(csn_buf_view(&out),
               "{\"s\":\"\\\"\\\\\\n\\u0001\xc3\xa9\",\"n\":[0,-5,18446744073709551615,0.1,1e-6,3."
               "0,true,null],\"o\":{},\"l\":[]}");
    csn_buf_free(&out);
    w = csn_jw_begin(&out, &err);
    w.pretty = true;
    csn_jw_value(&w, csn_json_root(d));
    ASSERT_OK(csn_jw_end(&w), &err);
    csn_json_free(parse(out.ptr));
    csn_buf_free(&out);
    csn_json_free(d);
}

static void floats_read_back_equal(void **state) {
    (void)state;
    caisson_error err;
    uint64_t x = 1;
    for (int i = 0; i < 20000; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t bits = (uint32_t)(x >> 32);
        float f;
        double g;
        memcpy(&f, &bits, 4);
        memcpy(&g, &x, 8);
        if (!isfinite(f) || !isfinite(g)) {
            continue;
        }
        csn_buf out = CSN_BUF_INIT(1 << 10);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_f32(&w, f);
        assert_true(strtof(out.ptr, NULL) == f);
        assert_true(out.len <= 16);
        csn_buf_free(&out);
        w = csn_jw_begin(&out, &err);
        csn_jw_f64(&w, g);
        assert_true(strtod(out.ptr, NULL) == g);
        csn_buf_free(&out);
    }
}

static void floats_look_like_the_reference(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } list[] = {{10000.0, "10000.0"}, {1e-6, "1e-6"},       {1e-5, "0.00001"},
                {0.25, "0.25"},       {0, "0.0"},           {-0.0, "-0.0"},
                {1, "1.0"},           {-12.5, "-12.5"},     {1e15, "1000000000000000.0"},
                {1e16, "1e16"},       {1.5e300, "1.5e300"}, {123456789, "123456789.0"},
                {0.1, "0.1"},         {5e-324, "5e-324"}};
    caisson_error err;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        csn_buf out = CSN_BUF_INIT(1 << 10);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_f64(&w, list[i].v);
        assert_string_equal(out.ptr, list[i].text);
        csn_buf_free(&out);
    }
    csn_buf out = CSN_BUF_INIT(1 << 10);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_f32(&w, 0.1f);
    assert_string_equal(out.ptr, "0.1");
    csn_buf_free(&out);
}

/* What the text says or an error, never a number beside it. */
static void exact_integers_or_none(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_json *doc = NULL;
    ASSERT_OK(csn_json_parse(CSN_STR("[18446744073709551615, -9223372036854775808, 1e22, 0.1]"),
                             CSN_JSON_EXACT, &doc, &err),
              &err);
    csn_json_free(doc);
    static const char *const bad[] = {"18446744073709551616", "-9223372036854775809",
                                      "123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"a\": [1, %s]}", bad[i]);
        ASSERT_STATUS(csn_json_parse(csn_str_from(text), CSN_JSON_EXACT, &doc, &err),
                      CAISSON_E_LIMIT);
        assert_string_equal(err.got, bad[i]);
        assert_int_equal(err.offset, 10);
        ASSERT_OK(csn_json_parse(csn_str_from(text), 0, &doc, &err), &err);
        csn_json_free(doc);
    }
}

static void numbers_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip(); /* the locale is not installed */
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 10);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_f64(&w, 0.25);
    setlocale(LC_NUMERIC, "C");
    ASSERT_STR(csn_buf_view(&out), "0.25");
    csn_buf_free(&out);
}

static void invalid_bytes_become_replacement(void **state) {
    (void)state;
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 10);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_str(&w, CSN_STR("a\xff"
                           "b"));
    ASSERT_STR(csn_buf_view(&out), "\"a\xef\xbf\xbd"
                                   "b\"");
    csn_buf_free(&out);
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    for (int64_t n = 0;; n++) {
        caisson_error err = {0};
        csn_json *doc = NULL;
        csn_alloc_fail_after(n);
        caisson_status s = csn_json_parse(CSN_STR("{\"a\":[1,2,{\"b\":1,\"c\":2}],\"d\":\"x\"}"),
                                          CSN_JSON_UNIQUE, &doc, &err);
        csn_alloc_fail_after(-1);
        if (s == CAISSON_OK) {
            csn_json_free(doc);
            assert_true(n >= 3);
            return;
        }
        assert_int_equal(s, CAISSON_E_NOMEM);
        assert_null(doc);
    }
}

static void members_are_key_and_value(void **state) {
    (void)state;
    static const double some[] = {0.5, 3};
    static const csn_str none = {0};
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 10);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "str", CSN_STR("x"));
    csn_jw_put_str(&w, "no_str", none);
    csn_jw_put_str_or_null(&w, "str_or", CSN_STR(""));
    csn_jw_put_str_or_null(&w, "null_or", none);
    csn_jw_put_id(&w, "id", 7);
    csn_jw_put_id(&w, "no_id", -1);
    csn_jw_put_u64(&w, "u64", UINT64_MAX);
    csn_jw_put_f64(&w, "f64", 0.1);
    csn_jw_put_f64s(&w, "f64s", some, 2);
    csn_jw_put_f64s(&w, "no_f64s", some, 0);
    csn_jw_put_f32(&w, "f32", 0.1f);
    csn_jw_put_bool(&w, "bool", true);
    csn_jw_put_null(&w, "null");
    csn_jw_object_end(&w);
    ASSERT_OK(csn_jw_end(&w), &err);
    ASSERT_STR(csn_buf_view(&out),
               "{\"str\":\"x\",\"no_str\":\"\",\"str_or\":\"\",\"null_or\":null,\"id\":7,"
               "\"no_id\":null,\"u64\":18446744073709551615,\"f64\":0.1,\"f64s\":[0.5,3.0],"
               "\"no_f64s\":[],\"f32\":0.1,\"bool\":true,\"null\":null}");
    csn_json *d = parse(out.ptr);
    const csn_jval *root = csn_json_root(d);
    ASSERT_STR(csn_jval_text_of(root, "str"), "x");
    assert_true(csn_jval_number_of(root, "u64") == UINT64_MAX);
    assert_true(csn_jval_real_of(root, "f64") == 0.1);
    ASSERT_STR(csn_jval_text_of(root, "u64"), ""); /* of another kind */
    assert_true(csn_jval_number_of(root, "absent") == 0 && csn_jval_real_of(root, "str") == 0);
    csn_json_free(d);
    csn_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_kinds),
        cmocka_unit_test(getters_are_safe_on_anything),
        cmocka_unit_test(grammar_faults_are_parse),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(writer_round_trip),
        cmocka_unit_test(members_are_key_and_value),
        cmocka_unit_test(floats_read_back_equal),
        cmocka_unit_test(floats_look_like_the_reference),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(exact_integers_or_none),
        cmocka_unit_test(invalid_bytes_become_replacement),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
