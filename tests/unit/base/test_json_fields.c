/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include "base/json_fields.h"

struct thing {
    csn_str name;
    bool flag;
    uint32_t count, id;
    uint64_t big;
    float f;
    double d;
    const csn_jval *list, *object, *any;
};

static const csn_jfield fields[] = {
    CSN_JFIELD(struct thing, name, "name", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct thing, flag, "flag", CSN_JT_BOOL, 0),
    CSN_JFIELD(struct thing, count, "count", CSN_JT_U32, 0),
    CSN_JFIELD(struct thing, id, "id", CSN_JT_ID, 0),
    CSN_JFIELD(struct thing, big, "big", CSN_JT_U64, 0),
    CSN_JFIELD(struct thing, f, "f", CSN_JT_F32, CSN_JF_NULLABLE),
    CSN_JFIELD(struct thing, d, "d", CSN_JT_F64, 0),
    CSN_JFIELD(struct thing, list, "list", CSN_JT_ARRAY, 0),
    CSN_JFIELD(struct thing, object, "object", CSN_JT_OBJECT, 0),
    CSN_JFIELD(struct thing, any, "any", CSN_JT_ANY, 0),
    CSN_JCHECK("checked", CSN_JT_STR, 0),
};

static caisson_status read(const char *text, struct thing *ret, uint64_t *seen,
                           caisson_error *err) {
    csn_json *doc = NULL;
    ASSERT_OK(csn_json_parse(csn_str_from(text), 0, &doc, err), err);
    caisson_status status =
        csn_jfields_read(csn_json_root(doc), fields, CSN_N_FIELDS(fields), "thing", ret, seen, err);
    csn_json_free(doc);
    return status;
}

static void values_land_in_their_members(void **state) {
    (void)state;
    struct thing t = {.count = 9};
    uint64_t seen = 0;
    caisson_error err;
    ASSERT_OK(read("{\"name\":\"n\",\"flag\":true,\"id\":4294967295,\"big\":18446744073709551615,"
                   "\"f\":0.5,\"d\":1e300,\"list\":[],\"object\":{},\"any\":null,"
                   "\"checked\":\"x\",\"unknown\":[1,2]}",
                   &t, &seen, &err),
              &err);
    assert_true(t.flag && t.id == UINT32_MAX && t.big == UINT64_MAX);
    assert_true(t.f == 0.5f && t.d == 1e300 && t.count == 9); /* absent: left as it was */
    assert_int_equal(seen, 0x7fb);                            /* all but count */
    ASSERT_OK(read("{\"name\":\"n\",\"f\":null}", &t, &seen, &err), &err);
    assert_int_equal(seen, 1);
    assert_true(csn_jfields_know(fields, CSN_N_FIELDS(fields), CSN_STR("any")));
    assert_false(csn_jfields_know(fields, CSN_N_FIELDS(fields), CSN_STR("an")));
    assert_false(csn_jfields_know(fields, CSN_N_FIELDS(fields), CSN_STR("")));
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *key, *got;
    } cases[] = {
        {"{}", "thing.name", ""},
        {"[]", "thing", "an array"},
        {"-3", "thing", "-3"},
        {"{\"name\":null}", "thing.name", "null"},
        {"{\"name\":1}", "thing.name", "1"},
        {"{\"name\":\"n\",\"name\":\"n\"}", "thing.name", ""},
        {"{\"name\":\"n\",\"f\":null,\"f\":1}", "thing.f", ""},
        {"{\"name\":\"n\",\"flag\":1}", "thing.flag", "1"},
        {"{\"name\":\"n\",\"count\":2147483648}", "thing.count", "2147483648"},
        {"{\"name\":\"n\",\"count\":-1}", "thing.count", "-1"},
        {"{\"name\":\"n\",\"count\":1.5}", "thing.count", "1.5"},
        {"{\"name\":\"n\",\"id\":18446744073709551615}", "thing.id", "18446744073709551615"},
        {"{\"name\":\"n\",\"big\":18446744073709551616}", "thing.big", "1.8446744073709552e19"},
        {"{\"name\":\"n\",\"f\":1e39}", "thing.f", "1e39"},
        {"{\"name\":\"n\",\"d\":\"1\"}", "thing.d", "\"1\""},
        /* 40 bytes at most, and no half of a letter */
        {"{\"name\":\"n\",\"d\":\"abcdefghijklmnopqrstuvwxyzabcdefghijklm\xc3\xa9\"}", "thing.d",
         "\"abcdefghijklmnopqrstuvwxyzabcdefghijklm\""},
        {"{\"name\":\"n\",\"d\":\"abcdefghijklmnopqrstuvwxyzabcdefghijkl\xc3\xa9!\"}", "thing.d",
         "\"abcdefghijklmnopqrstuvwxyzabcdefghijkl\xc3\xa9\""},
        {"{\"name\":\"n\",\"list\":{}}", "thing.list", "an object"},
        {"{\"name\":\"n\",\"object\":false}", "thing.object", "false"},
        {"{\"name\":\"n\",\"checked\":true}", "thing.checked", "true"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct thing t = {0};
        caisson_error err;
        ASSERT_STATUS(read(cases[i].text, &t, NULL, &err), CAISSON_E_PARSE);
        assert_string_equal(err.tensor, cases[i].key);
        assert_string_equal(err.got, cases[i].got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_land_in_their_members),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
