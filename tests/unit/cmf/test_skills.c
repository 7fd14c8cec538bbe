/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of skills and their descriptors (CMF 9, facts 10.2): what is read, what is refused,
 * and under which name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/cmf_edit.h"
#include "unit/test.h"

/* f16 in base64; the header's hidden_size is 8. */
#define ZEROS "AAAAAAAAAAAAAAAAAAAAAA=="                        /* 8 */
#define ONE_NAN "AH4AAAAAAAAAAAAAAAAAAA=="                      /* NaN and 7 zeros */
#define ONE_INF "AHwAAAAAAAAAAAAAAAAAAA=="                      /* infinity and 7 zeros */
#define TWO_ROWS "ADwAAAAAAAAAAAAAAAAAAAAAADwAAAAAAAAAAAAAAAA=" /* e0 and e1 */

static memory_fs fs;

static int setup(void **state) {
    (void)state;
    memory_fs_init(&fs);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_fs_done(&fs);
    return 0;
}

/* A file whose header has these skills, and one tensor of skill "a". */
static caisson_status open_with(const char *skills, csn_cmf **ret, caisson_error *err) {
    static const cmf_record tensor = {
        .name = "skill.a.model.norm.weight", .dtype = 2, .n_dims = 1, .dim = {8}, .nbytes = 16};
    csn_buf header = CSN_BUF_INIT(1 << 24);
    caisson_error oom;
    size_t n = sizeof(CMF_EDIT_HEADER) - 2;
    ASSERT_OK(csn_buf_printf(&header, &oom, "%.*s,\"skills\":%s}", (int)n, CMF_EDIT_HEADER, skills),
              &oom);
    cmf_bytes b = cmf_build(csn_buf_view(&header), &tensor, 1, 64);
    caisson_status s = cmf_open_bytes(&fs, b, ret, err);
    csn_buf_free(&header);
    free(b.p);
    return s;
}

static void a_descriptor_is_read(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    ASSERT_OK(open_with("[{\"id\":\"a\",\"layers\":[0],\"selection\":{\"metric\":\"mse_unit\","
                        "\"phi_layer\":0,\"mean\":\"" ZEROS "\",\"basis\":\"" TWO_ROWS
                        "\",\"rank\":2,\"err_mean\":0.5}},"
                        "{\"id\":\"b\",\"selection\":null}]",
                        &c, &err),
              &err);
    assert_int_equal(c->n_skills, 2);
    const csn_cmf_selection *s = c->skills[0].selection;
    assert_non_null(s);
    assert_true(s->is_unit && s->phi_layer == 0 && s->rank == 2);
    assert_true(s->err_mean == 0.5f && s->err_std == 1.0f);
    assert_true(s->basis[0] == 1.0f && s->basis[9] == 1.0f && s->basis[8] == 0.0f);
    assert_null(c->skills[1].selection);
    csn_cmf_close(c);
}

static void without_rank_the_basis_tells_it(void **state) {
    (void)state;
    static const struct {
        const char *basis;
        uint32_t rank;
    } cases[] = {{TWO_ROWS, 2}, {ZEROS, 1}, {"", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        csn_cmf *c = NULL;
        caisson_error err;
        snprintf(
            text, sizeof(text),
            "[{\"id\":\"a\",\"selection\":{\"metric\":\"mse\",\"phi_layer\":0,\"mean\":\"" ZEROS
            "\",\"basis\":\"%s\"}}]",
            cases[i].basis);
        ASSERT_OK(open_with(text, &c, &err), &err);
        assert_int_equal(c->skills[0].selection->rank, cases[i].rank);
        csn_cmf_close(c);
    }
}

static void bad_descriptors_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *phi_layer, *mean, *basis, *more, *what;
    } cases[] = {
        {"1", ZEROS, ZEROS, "", "phi_layer"},
        {"2147483647", ZEROS, ZEROS, "", "phi_layer"},
        {"0", ONE_NAN, ZEROS, "", "not a finite number"},
        {"0", ONE_INF, ZEROS, "", "not a finite number"},
        {"0", ZEROS, ONE_NAN, "", "not a finite number"},
        {"0", "", ZEROS, "", "mean"},
        {"0", TWO_ROWS, ZEROS, "", "mean"},
        {"0", "AAAAAAAAAAAAAAAAAAAAAAAA", ZEROS, "", "mean"}, /* 18 bytes */
        {"0", "AAAAAAAAAAAAAAAAAAAAA-==", ZEROS, "", "mean"},
        {"0", "AAAAAAAAAAAAAAAAAAAAAB==", ZEROS, "", "mean"}, /* bits behind the last byte */
        {"0", ZEROS, TWO_ROWS, ",\"rank\":1", "basis"},
        {"0", ZEROS, TWO_ROWS, ",\"rank\":3", "basis"},
        {"0", ZEROS, ZEROS, ",\"rank\":0", "basis"},
        {"0", ZEROS, ZEROS, ",\"rank\":9", "rank"},
        {"0", ZEROS, ZEROS, ",\"rank\":2147483647", "rank"},
        {"0", ZEROS, "AAAA", "", "basis"}, /* less than a row */
        {"0", ZEROS, "AAA", "", "basis"},
        {"0", ZEROS, "=", "", "basis"},
        {"0", ZEROS, "==", "", "basis"},
        {"0", ZEROS, ZEROS, ",\"holdout_n\":2,\"holdout\":\"" ZEROS "\"", "holdout"},
        {"0", ZEROS, ZEROS, ",\"holdout\":\"" ZEROS "\"", "holdout"},
        {"0", ZEROS, ZEROS, ",\"holdout_n\":2147483647", "holdout"},
        {"0", ZEROS, ZEROS, ",\"holdout_n\":1,\"holdout\":\"" ONE_NAN "\"", "not a finite number"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        csn_cmf *c = NULL;
        caisson_error err = {0};
        snprintf(
            text, sizeof(text),
            "[{\"id\":\"a\",\"selection\":{\"metric\":\"mse\",\"phi_layer\":%s,\"mean\":\"%s\","
            "\"basis\":\"%s\"%s}}]",
            cases[i].phi_layer, cases[i].mean, cases[i].basis, cases[i].more);
        ASSERT_STATUS(open_with(text, &c, &err), CAISSON_E_PARSE);
        assert_string_equal(err.section, "header");
        assert_string_equal(err.tensor, "a");
        assert_non_null(strstr(err.what, cases[i].what));
    }
}

static void records_that_contradict_the_file_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *skills, *what;
    } cases[] = {
        {"[{\"id\":\"a\",\"layers\":[1]}]", "does not have"},
        {"[{\"id\":\"a\",\"layers\":[18446744073709551615]}]", "does not have"},
        {"[{\"id\":\"a\",\"selection\":{\"metric\":\"cosine\",\"phi_layer\":0,\"mean\":\"" ZEROS
         "\",\"basis\":\"\"}}]",
         "metric"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_cmf *c = NULL;
        caisson_error err = {0};
        ASSERT_STATUS(open_with(cases[i].skills, &c, &err), CAISSON_E_PARSE);
        assert_non_null(strstr(err.what, cases[i].what));
    }
    csn_cmf *c = NULL;
    caisson_error err;
    ASSERT_OK(open_with("[{\"id\":\"b\",\"layers\":[0],\"input_mask_task\":\"x\"}]", &c, &err),
              &err);
    csn_cmf_close(c); /* a skill may be a mask alone, or have been applied */
}

/* The format's reference leaves the hash of the tokenizer in a skill file, which has none. */
static void a_skill_file_may_tell_the_hash_of_its_models_tokenizer(void **state) {
    (void)state;
    static const char keys[] = ",\"section_hashes\":{\"vocab\":\"0123456789abcdef\"}}";
    csn_buf header = CSN_BUF_INIT(1 << 16);
    caisson_error err;
    csn_cmf *c = NULL;
    size_t n = sizeof(CMF_EDIT_HEADER) - 2;
    ASSERT_OK(csn_buf_printf(&header, &err, "%.*s%s", (int)n, CMF_EDIT_HEADER, keys), &err);
    cmf_bytes b = cmf_build(csn_buf_view(&header), NULL, 0, 0);
    ASSERT_STATUS(cmf_open_bytes(&fs, b, &c, &err), CAISSON_E_PARSE);
    cmf_put(b, 12, 4, 1 | 1 << 6);
    ASSERT_OK(cmf_open_bytes(&fs, b, &c, &err), &err);
    csn_cmf_close(c);
    csn_buf_free(&header);
    free(b.p);
}

/* Each dot of an id costs a look at every tensor of a skill. */
static void an_id_of_many_dots_is_refused(void **state) {
    (void)state;
    char text[256] = "[{\"id\":\"";
    for (int n_dots = 64; n_dots <= 65; n_dots++) {
        caisson_error err = {0};
        csn_cmf *c = NULL;
        memset(text + 8, '.', (size_t)n_dots);
        snprintf(text + 8 + n_dots, sizeof(text) - 8 - (size_t)n_dots, "\"}]");
        caisson_status s = open_with(text, &c, &err);
        assert_int_equal(s, n_dots == 64 ? CAISSON_OK : CAISSON_E_LIMIT);
        csn_cmf_close(c);
    }
}

/* What a removal of shards has left is nobody's (docs/cmf.md, "Shards"). */
static void tensors_of_a_removed_skill_are_nobodys(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err = {0};
    ASSERT_OK(open_with("[],\"caisson.removed_skills\":[\"a\"]", &c, &err), &err);
    assert_int_equal(c->n_skills, 0);
    assert_true(csn_cmf_is_removed_skill(c, CSN_STR("a")));
    csn_cmf_close(c);
    ASSERT_STATUS(open_with("[],\"caisson.removed_skills\":[1]", &c, &err), CAISSON_E_PARSE);
    ASSERT_STATUS(open_with("[],\"caisson.removed_skills\":\"a\"", &c, &err), CAISSON_E_PARSE);
}

/* Megabytes of text are refused by their length, whatever they say. */
static void absurd_base64_is_not_decoded(void **state) {
    (void)state;
    enum { LEN = 8 << 20 };
    csn_buf text = CSN_BUF_INIT(1 << 24);
    caisson_error err;
    csn_cmf *c = NULL;
    ASSERT_OK(csn_buf_printf(&text, &err,
                             "[{\"id\":\"a\",\"selection\":{\"metric\":\"mse\",\"phi_layer\":0,"
                             "\"basis\":\"\",\"mean\":\""),
              &err);
    ASSERT_OK(csn_buf_reserve(&text, LEN + 8, &err), &err);
    memset(text.ptr + text.len, 'A', LEN);
    text.len += LEN;
    ASSERT_OK(csn_buf_printf(&text, &err, "\"}}]"), &err);
    ASSERT_STATUS(open_with(text.ptr, &c, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "a");
    csn_buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_is_read),
        cmocka_unit_test(without_rank_the_basis_tells_it),
        cmocka_unit_test(bad_descriptors_are_refused_by_name),
        cmocka_unit_test(records_that_contradict_the_file_are_refused),
        cmocka_unit_test(a_skill_file_may_tell_the_hash_of_its_models_tokenizer),
        cmocka_unit_test(an_id_of_many_dots_is_refused),
        cmocka_unit_test(tensors_of_a_removed_skill_are_nobodys),
        cmocka_unit_test(absurd_base64_is_not_decoded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
