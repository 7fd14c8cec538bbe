/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <errno.h>

static void names_are_those_of_the_format(void **state) {
    (void)state;
    assert_string_equal(caisson_status_name(CAISSON_E_MAGIC), "InvalidMagic");
    assert_string_equal(caisson_status_name(CAISSON_E_VERSION), "UnsupportedVersion");
    assert_string_equal(caisson_status_name(CAISSON_E_FEATURE), "UnsupportedFeature");
    assert_string_equal(caisson_status_name(CAISSON_E_BOUNDS), "Bounds");
    assert_string_equal(caisson_status_name(CAISSON_E_PARSE), "Parse");
    assert_string_equal(caisson_status_name(CAISSON_E_MISSING), "MissingTensor");
    assert_string_equal(caisson_status_name(CAISSON_E_HASH), "Hash");
    assert_string_equal(caisson_status_name(CAISSON_E_IO), "Io");
    for (int i = 0; i < CAISSON_N_STATUS; i++) {
        assert_true(caisson_status_name((caisson_status)i)[0] != '\0');
    }
    assert_string_equal(caisson_status_name((caisson_status)9999), "Unknown");
}

static void line_has_place_and_both_values(void **state) {
    (void)state;
    caisson_error err;
    char line[512];
    caisson_status s = CSN_FAIL(&err, CAISSON_E_BOUNDS, .file = "m.cmf", .section = "directory",
                                .tensor = CSN_STR("model.norm.weight"), CSN_AT(4096),
                                .what = "bytes differ from shape x dtype", CSN_VALUES(16, 8));
    assert_int_equal(s, CAISSON_E_BOUNDS);
    assert_string_equal(caisson_error_format(&err, line, sizeof(line)),
                        "m.cmf: directory, model.norm.weight, offset 4096: bytes differ from shape "
                        "x dtype (want 16, got 8)");
}

static void texts_win_over_numbers_and_errno_is_told(void **state) {
    (void)state;
    caisson_error err;
    char line[512];
    (void)CSN_FAIL(&err, CAISSON_E_IO, .what = "cannot open", CSN_TEXTS(CSN_STR("a"), CSN_STR("b")),
                   .sys_errno = ENOENT);
    assert_string_equal(caisson_error_format(&err, line, sizeof(line)),
                        "cannot open (want a, got b): No such file or directory");
}

static void hostile_text_is_made_printable(void **state) {
    (void)state;
    caisson_error err;
    (void)CSN_FAIL(&err, CAISSON_E_PARSE, .what = "x",
                   .tensor = CSN_STR("a\x1b[31m\n\xff\xc2\x9b"
                                     "b\xc3\xa9"));
    assert_string_equal(err.tensor, "a?[31m???b\xc3\xa9");
}

static void long_text_is_cut_at_a_code_point(void **state) {
    (void)state;
    caisson_error err;
    char name[400];
    for (size_t i = 0; i + 1 < sizeof(name); i += 2) {
        name[i] = (char)0xc3;
        name[i + 1] = (char)0xa9;
    }
    (void)CSN_FAIL(&err, CAISSON_E_PARSE, .what = "x", .tensor = csn_str_make(name, sizeof(name)));
    size_t n = strlen(err.tensor);
    assert_true(n < sizeof(err.tensor) && n >= sizeof(err.tensor) - 2);
    assert_int_equal(n % 2, 0);
}

static void short_buffers_are_respected(void **state) {
    (void)state;
    caisson_error err;
    (void)CSN_FAIL(&err, CAISSON_E_PARSE, .file = "file", .what = "sentence", CSN_VALUES(1, 2));
    for (size_t n = 1; n < 60; n++) {
        char line[64];
        memset(line, 'Z', sizeof(line));
        caisson_error_format(&err, line, n);
        assert_true(memchr(line, '\0', n) != NULL);
        assert_int_equal(line[n], 'Z');
    }
}

static void late_facts_fill_empty_fields_only(void **state) {
    (void)state;
    caisson_error err;
    (void)CSN_FAIL(&err, CAISSON_E_PARSE, .what = "x", .section = "header");
    csn_error_file(&err, "f");
    csn_error_section(&err, "other");
    csn_error_tensor(&err, CSN_STR("t"));
    assert_string_equal(err.file, "f");
    assert_string_equal(err.section, "header");
    assert_string_equal(err.tensor, "t");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_format),
        cmocka_unit_test(line_has_place_and_both_values),
        cmocka_unit_test(texts_win_over_numbers_and_errno_is_told),
        cmocka_unit_test(hostile_text_is_made_printable),
        cmocka_unit_test(long_text_is_cut_at_a_code_point),
        cmocka_unit_test(short_buffers_are_respected),
        cmocka_unit_test(late_facts_fill_empty_fields_only),
    };
    return cmocka_run_group_tests_name("base/error", tests, NULL, NULL);
}
