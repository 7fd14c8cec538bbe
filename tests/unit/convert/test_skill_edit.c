/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of which one begins another, with and without dots (CMF 9: the id of a tensor is the longest
 * one of the registry): each skill is counted, removed and cut out with its own tensors alone. */
#include "unit/test.h"

#include "convert/skill_add.h"
#include "convert/skill_cut.h"
#include "format/cmf/cmf.h"
#include "support/cmf_golden.h"
#include "support/memory_fs.h"

static memory_fs fs;

static const char *const ids[] = {"sql", "sql.x", "sql.x.y", "sql-x"};
enum { N_IDS = sizeof(ids) / sizeof(ids[0]) };

/* Adds skill `id` with the first n of sql's tensors. */
static caisson_status add(csn_cmf_append *a, const char *id, uint32_t n, caisson_error *err) {
    const csn_cmf *c = csn_cmf_append_cmf(a);
    csn_str name;
    uint32_t n_added = 0;
    for (uint32_t i = 0; i < c->dir.n && n_added < n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        const csn_cmf_skill *s = csn_cmf_skill_of(c, t->name, &name);
        if (s == NULL || !csn_str_is(s->id, "sql")) {
            continue;
        }
        csn_buf path = CSN_BUF_INIT(1 << 12);
        uint8_t bytes[1 << 14];
        assert_true(t->nbytes <= sizeof(bytes));
        CSN_TRY(csn_buf_printf(&path, err, "skill.%s.%.*s", id, CSN_STR_ARGS(name)));
        CSN_TRY(csn_file_read_at(c->file, t->offset, bytes, (size_t)t->nbytes, err));
        csn_cmf_plan_tensor plan = {csn_buf_view(&path), t->dtype, t->shape, t->nbytes};
        CSN_TRY(csn_cmf_append_tensor(a, &plan, bytes, t->nbytes, err));
        csn_buf_free(&path);
        n_added++;
    }
    assert_int_equal(n_added, n);
    return CAISSON_OK;
}

/* The reference's file with two skills, and three more: of sql.x 1 tensor, of the next 2, ... */
static caisson_status grow(csn_cmf_append *a, caisson_error *err) {
    csn_buf list = CSN_BUF_INIT(1 << 16), header = CSN_BUF_INIT(1 << 20);
    csn_jw w = csn_jw_begin(&list, err);
    csn_jw_array(&w);
    csn_jiter it = csn_jval_iter(csn_jval_get(csn_cmf_append_cmf(a)->header, "skills"));
    while (csn_jiter_next(&it)) {
        csn_jw_value(&w, it.value);
    }
    for (int i = 1; i < N_IDS; i++) {
        CSN_TRY(add(a, ids[i], (uint32_t)i, err));
        csn_jw_object(&w);
        csn_jw_put_str(&w, "id", csn_str_from(ids[i]));
        csn_jw_object_end(&w);
    }
    csn_jw_array_end(&w);
    CSN_TRY(csn_jw_end(&w));
    const csn_cmf_header_edit edit = {"skills", csn_buf_view(&list)};
    w = csn_jw_begin(&header, err);
    csn_cmf_header_edit_write(csn_cmf_append_cmf(a), &edit, 1, &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_cmf_append_header(a, csn_buf_view(&header), err));
    csn_buf_free(&list);
    csn_buf_free(&header);
    return csn_cmf_append_commit(a, err);
}

static int setup(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_cmf_append *a;
    csn_buf b = golden_read(CMF_GOLDEN "files/tiny-skills.cmf");
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.cmf", b.ptr, b.len);
    csn_buf_free(&b);
    ASSERT_OK(csn_cmf_append_begin(&fs.base, "m.cmf", &a, &err), &err);
    ASSERT_OK(grow(a, &err), &err);
    csn_cmf_append_close(a);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_fs_done(&fs);
    return 0;
}

/* Tensors of the skill; 0: it is not there. */
static uint64_t n_tensors(const char *id) {
    caisson_error err;
    csn_cmf *c;
    const csn_cmf_skill *s;
    uint64_t n = 0;
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    if (csn_cmf_find_skill(c, csn_str_from(id), &s, &err) == CAISSON_OK) {
        n = s->n_tensors;
    }
    csn_cmf_close(c);
    return n;
}

static void each_id_has_its_own_tensors(void **state) {
    (void)state;
    uint64_t n_sql = n_tensors("sql"), n_poem = n_tensors("poem");
    assert_true(n_sql >= N_IDS - 1 && n_poem > 0);
    for (int i = 1; i < N_IDS; i++) {
        assert_int_equal(n_tensors(ids[i]), i);
    }
    caisson_error err;
    csn_cmf *c;
    const csn_tensor *t;
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    assert_int_equal(c->n_skills, N_IDS + 1); /* no "sql" made up of what stands before a dot */
    csn_str id, name;
    for (uint32_t i = 0; i < c->dir.n; i++) { /* as runs ask for it */
        if (csn_cmf_skill_name(c, c->dir.tensors[i].name, &id, &name)) {
            assert_true(csn_str_starts(name, CSN_STR("model.")));
            ASSERT_OK(csn_cmf_skill_tensor(c, id, name, &t, &err), &err);
            assert_ptr_equal(t, &c->dir.tensors[i]);
            char wrong[256];
            snprintf(wrong, sizeof(wrong), "x.%.*s", CSN_STR_ARGS(name));
            ASSERT_OK(csn_cmf_skill_tensor(c, CSN_STR("sql"), csn_str_from(wrong), &t, &err), &err);
            assert_null(t); /* "skill.sql.x.NAME" is of sql.x, if there is one */
        }
    }
    csn_cmf_close(c);
}

static void a_removal_takes_its_own_tensors_alone(void **state) {
    (void)state;
    caisson_error err = {0};
    uint64_t n_sql = n_tensors("sql");
    ASSERT_OK(csn_skill_remove(&fs.base, "m.cmf", CSN_STR("sql.x"), &err), &err);
    assert_int_equal(n_tensors("sql.x"), 0);
    assert_int_equal(n_tensors("sql"), n_sql);
    assert_int_equal(n_tensors("sql.x.y"), 2);
    ASSERT_OK(csn_skill_remove(&fs.base, "m.cmf", CSN_STR("sql"), &err), &err);
    assert_int_equal(n_tensors("sql"), 0);
    for (int i = 2; i < N_IDS; i++) {
        assert_int_equal(n_tensors(ids[i]), i);
    }
    ASSERT_STATUS(csn_skill_remove(&fs.base, "m.cmf", CSN_STR("sql"), &err), CAISSON_E_MISSING);
}

static void a_skill_is_cut_out_with_its_own_tensors(void **state) {
    (void)state;
    const csn_skill_cut_options o = {0};
    caisson_error err = {0};
    csn_cmf *c, *cut;
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    ASSERT_OK(csn_skill_cut(&fs.base, c, c, CSN_STR("sql.x.y"), "s.cmf", &o, &err), &err);
    csn_cmf_close(c);
    ASSERT_OK(csn_cmf_open(&fs.base, "s.cmf", &cut, &err), &err);
    assert_int_equal(cut->dir.n, 2);
    assert_true(csn_str_starts(cut->dir.tensors[0].name, CSN_STR("model.")));
    csn_cmf_close(cut);
}

/* New ids cannot be taken for another's tensors. */
static void a_new_id_has_no_dot(void **state) {
    (void)state;
    const csn_skill_add_options o = {.n_threads = 1};
    caisson_error err = {0};
    ASSERT_STATUS(csn_skill_add(&fs.base, "m.cmf", CSN_STR("a.b"), "m.cmf", &o, &err),
                  CAISSON_E_ARG);
    assert_non_null(strstr(err.what, "A-Z a-z 0-9 _ -"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_id_has_its_own_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_removal_takes_its_own_tensors_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_skill_is_cut_out_with_its_own_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_id_has_no_dot, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
