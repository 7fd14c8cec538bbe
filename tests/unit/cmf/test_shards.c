/* SPDX-License-Identifier: Apache-2.0 */
/* A model in several files (CMF 10, facts 11): opened by any name, and what is no such model. */
#include "unit/test.h"

#include "fault/faulty_fs.h"
#include "format/cmf/shards.h"
#include "store/store.h"
#include "support/cmf_edit.h"
#include "support/cmf_golden.h"

#define SHARDS CMF_GOLDEN "bad/shards/"
#define TINY CMF_GOLDEN "files/tiny-shard-0000%d-of-00003.cmf"

static caisson_status open_model(csn_fs *fs, const char *path, csn_cmf **ret, caisson_error *err) {
    return csn_cmf_open_model(fs, path, NULL, NULL, ret, err);
}

/* The golden three as m-00001-of-00003.cmf ... in memory. */
static void put_tiny(memory_fs *m) {
    memory_fs_init(m);
    for (int i = 1; i <= 3; i++) {
        char from[512], to[64];
        snprintf(from, sizeof(from), TINY, i);
        snprintf(to, sizeof(to), "m-0000%d-of-00003.cmf", i);
        csn_buf b = golden_read(from);
        memory_fs_put(m, to, b.ptr, b.len);
        csn_buf_free(&b);
    }
}

static void names_are_read_and_made(void **state) {
    (void)state;
    csn_cmf_shard_place p;
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(100);
    assert_true(csn_cmf_shard_name(CSN_STR("d/m-00002-of-00013.cmf"), &p));
    ASSERT_STR(p.base, "d/m");
    assert_int_equal(p.no, 2);
    assert_int_equal(p.count, 13);
    ASSERT_OK(csn_cmf_shard_path(p.base, 2, 13, &b, &err), &err);
    ASSERT_STR(csn_buf_view(&b), "d/m-00002-of-00013.cmf");
    csn_buf_free(&b);
    assert_true(csn_cmf_shard_name(CSN_STR("-00000-of-00000.cmf"), &p));
    static const char *const others[] = {
        "",
        "m.cmf",
        "00001-of-00002.cmf",
        "m-0001-of-0002.cmf",
        "m-0000a-of-00002.cmf",
        "m-00001-of-00002.CMF",
        "m-00001_of-00002.cmf",
        "m-00001-of-00002.cmf.part",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(csn_cmf_shard_name(csn_str_from(others[i]), &p));
    }
}

static void any_name_opens_the_whole_model(void **state) {
    (void)state;
    for (int i = 1; i <= 3; i++) {
        csn_cmf *c = NULL;
        caisson_error err;
        csn_store *store;
        char path[512];
        snprintf(path, sizeof(path), TINY, i);
        ASSERT_OK(open_model(csn_fs_os(), path, &c, &err), &err);
        assert_int_equal(c->n_files, 3);
        assert_int_equal(c->dir.n, 21);
        assert_int_equal(c->shard_no, 1);
        assert_int_equal(c->masks.n, 1); /* of the first */
        uint32_t n = 0;
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(csn_cmf_file_of(c, k)->shard_no, k + 1);
            for (uint32_t t = 0; t < csn_cmf_file_of(c, k)->n_own; t++, n++) {
                assert_int_equal(c->dir.tensors[n].i_file, k);
            }
        }
        assert_int_equal(n, c->dir.n);
        /* each tensor's bytes come from its own file: hashes are compared at the first touch */
        ASSERT_OK(
            csn_store_new(c, &(csn_store_options){.verify = true, .no_mmap = i == 2}, &store, &err),
            &err);
        for (uint32_t t = 0; t < c->dir.n; t++) {
            csn_matrix m;
            ASSERT_OK(csn_store_matrix(store, c->dir.tensors[t].name, &m, &err), &err);
        }
        csn_store_free(store);
    }
}

/* ../shared/data/cmf/bad/shards/shards.json */
static void bad_sets_are_refused(void **state) {
    (void)state;
    csn_json *sets = golden_json(SHARDS "shards.json");
    for (csn_jiter it = csn_jval_iter(csn_json_root(sets)); csn_jiter_next(&it);) {
        csn_cmf *c = NULL;
        caisson_error err = {0};
        char path[512];
        csn_str set = golden_str(it.value, "set"), want = golden_str(it.value, "error_class");
        snprintf(path, sizeof(path), SHARDS "%.*s", CSN_STR_ARGS(golden_str(it.value, "open")));
        caisson_status status = open_model(csn_fs_os(), path, &c, &err);
        if (csn_str_is(set, "good") || csn_str_is(set, "second-first")) { /* any name opens it */
            ASSERT_OK(status, &err);
            assert_int_equal(c->dir.n, 2);
            csn_cmf_close(c);
        } else {
            ASSERT_STATUS(status,
                          csn_str_is(want, "FileNotFound") ? CAISSON_E_IO : CAISSON_E_PARSE);
            if (!csn_str_is(set, "wrong-name")) { /* the second is the wrong one */
                assert_non_null(strstr(err.file, "-00002-of-00002.cmf"));
            }
        }
    }
    csn_json_free(sets);
}

static void assert_refused(memory_fs *m, const char *path, const char *file, const char *what) {
    csn_cmf *c = NULL;
    caisson_error err = {0};
    ASSERT_STATUS(open_model(&m->base, path, &c, &err), CAISSON_E_PARSE);
    assert_string_equal(err.file, file);
    assert_non_null(strstr(err.what, what));
    assert_int_equal(m->n_open, 0);
}

static void swapped_names_are_told(void **state) {
    (void)state;
    memory_fs m;
    put_tiny(&m);
    memory_fs_node *a = memory_fs_find(&m, "m-00002-of-00003.cmf");
    memory_fs_node *b = memory_fs_find(&m, "m-00003-of-00003.cmf");
    char *path = a->path;
    a->path = b->path;
    b->path = path;
    assert_refused(&m, "m-00001-of-00003.cmf", "m-00002-of-00003.cmf", "another place");
    assert_refused(&m, "m-00003-of-00003.cmf", "m-00003-of-00003.cmf", "another place");
    memory_fs_done(&m);
}

static void joined_files_are_told(void **state) {
    (void)state;
    memory_fs m;
    put_tiny(&m);
    const memory_fs_node *a = memory_fs_find(&m, "m-00001-of-00003.cmf");
    const memory_fs_node *b = memory_fs_find(&m, "m-00002-of-00003.cmf");
    size_t n = a->len + b->len;
    uint8_t *both = malloc(n);
    memcpy(both, a->bytes, a->len);
    memcpy(both + a->len, b->bytes, b->len);
    memory_fs_put(&m, "m-00001-of-00003.cmf", both, n);
    memory_fs_put(&m, "all.cmf", both, n);
    assert_refused(&m, "m-00002-of-00003.cmf", "m-00001-of-00003.cmf", "another file is joined");
    assert_refused(&m, "all.cmf", "all.cmf", "another file is joined");
    free(both);
    memory_fs_done(&m);
}

static void renamed_shards_are_told(void **state) {
    (void)state;
    memory_fs m;
    put_tiny(&m);
    const memory_fs_node *a = memory_fs_find(&m, "m-00001-of-00003.cmf");
    memory_fs_put(&m, "m.cmf", a->bytes, a->len);
    memory_fs_put(&m, "m-00001-of-00004.cmf", a->bytes, a->len);
    memory_fs_put(&m, "m-00000-of-00003.cmf", a->bytes, a->len);
    memory_fs_put(&m, "m-00004-of-00003.cmf", a->bytes, a->len);
    assert_refused(&m, "m.cmf", "m.cmf", "not that of one");
    assert_refused(&m, "m-00001-of-00004.cmf", "m-00001-of-00004.cmf", "another place");
    assert_refused(&m, "m-00000-of-00003.cmf", "m-00000-of-00003.cmf", "number of the shard");
    assert_refused(&m, "m-00004-of-00003.cmf", "m-00004-of-00003.cmf", "number of the shard");
    memory_fs_done(&m);
}

/* Header text of two shards, each with one tensor of its own. */
static void put_pair(memory_fs *m, const char *extra_a, const char *extra_b) {
    const char *const extras[] = {extra_a, extra_b};
    memory_fs_init(m);
    for (int i = 0; i < 2; i++) {
        char header[1024], path[64];
        const char *name = i == 0 ? "a" : "b";
        cmf_record r = {.name = name, .dtype = 0, .n_dims = 1, .dim = {2}, .nbytes = 8};
        snprintf(header, sizeof(header), "%.*s,\"shard\":{\"no\":%d,\"count\":2}%s}",
                 (int)sizeof(CMF_EDIT_HEADER) - 2, CMF_EDIT_HEADER, i + 1, extras[i]);
        cmf_bytes b = cmf_build(csn_str_from(header), &r, 1, 8);
        snprintf(path, sizeof(path), "p-0000%d-of-00002.cmf", i + 1);
        memory_fs_put(m, path, b.p, b.len);
        free(b.p);
    }
}

static void shards_of_other_models_are_told(void **state) {
    (void)state;
    memory_fs m;
    csn_cmf *c = NULL;
    caisson_error err;
    put_pair(&m, "", "");
    ASSERT_OK(open_model(&m.base, "p-00002-of-00002.cmf", &c, &err), &err);
    assert_int_equal(c->dir.n, 2);
    csn_cmf_close(c);
    memory_fs_done(&m);
    put_pair(&m, ",\"caisson.shard_set\":\"1\"", ",\"caisson.shard_set\":\"1\"");
    ASSERT_OK(open_model(&m.base, "p-00001-of-00002.cmf", &c, &err), &err);
    csn_cmf_close(c);
    memory_fs_done(&m);
    put_pair(&m, ",\"caisson.shard_set\":\"1\"", ",\"caisson.shard_set\":\"2\"");
    assert_refused(&m, "p-00001-of-00002.cmf", "p-00002-of-00002.cmf", "another model");
    memory_fs_done(&m);
    csn_buf b = golden_read(SHARDS "good-00002-of-00002.cmf"); /* another arch */
    put_pair(&m, "", "");
    memory_fs_put(&m, "p-00002-of-00002.cmf", b.ptr, b.len);
    assert_refused(&m, "p-00001-of-00002.cmf", "p-00002-of-00002.cmf", "another model");
    csn_buf_free(&b);
    memory_fs_done(&m);
}

static void a_damaged_tensor_names_its_own_file(void **state) {
    (void)state;
    memory_fs m;
    csn_cmf *c = NULL;
    caisson_error err;
    csn_store *store;
    csn_matrix matrix;
    put_pair(&m, "", "");
    memory_fs_node *b = memory_fs_find(&m, "p-00002-of-00002.cmf");
    b->bytes[b->len - 1] ^= 1;
    ASSERT_OK(open_model(&m.base, "p-00001-of-00002.cmf", &c, &err), &err);
    ASSERT_OK(csn_store_new(c, &(csn_store_options){.verify = true}, &store, &err), &err);
    ASSERT_OK(csn_store_matrix(store, CSN_STR("a"), &matrix, &err), &err);
    ASSERT_STATUS(csn_store_matrix(store, CSN_STR("b"), &matrix, &err), CAISSON_E_HASH);
    assert_string_equal(err.file, "p-00002-of-00002.cmf");
    csn_store_free(store);
    memory_fs_done(&m);
}

/* Every operation and every allocation fails in turn: an error, and nothing stays open. */
static void faults_leave_nothing_open(void **state) {
    (void)state;
    memory_fs m;
    put_tiny(&m);
    for (int kind = 0; kind < 2; kind++) {
        for (int64_t i = 0;; i++) {
            faulty_fs f;
            csn_cmf *c = NULL;
            caisson_error err = {0};
            faulty_fs_init(&f, &m.base);
            f.fail_at = kind == 0 ? i : -1;
            csn_alloc_fail_after(kind == 0 ? -1 : i);
            caisson_status status = open_model(&f.base, "m-00002-of-00003.cmf", &c, &err);
            csn_alloc_fail_after(-1);
            if (status == CAISSON_OK) {
                csn_cmf_close(c);
                assert_int_equal(f.n_open, 0);
                assert_true(i > 10);
                break;
            }
            ASSERT_STATUS(status, kind == 0 ? CAISSON_E_IO : CAISSON_E_NOMEM);
            assert_int_equal(f.n_open, 0);
        }
    }
    memory_fs_done(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_and_made),
        cmocka_unit_test(any_name_opens_the_whole_model),
        cmocka_unit_test(bad_sets_are_refused),
        cmocka_unit_test(swapped_names_are_told),
        cmocka_unit_test(joined_files_are_told),
        cmocka_unit_test(renamed_shards_are_told),
        cmocka_unit_test(shards_of_other_models_are_told),
        cmocka_unit_test(a_damaged_tensor_names_its_own_file),
        cmocka_unit_test(faults_leave_nothing_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
