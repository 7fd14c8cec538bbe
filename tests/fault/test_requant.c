/* SPDX-License-Identifier: Apache-2.0 */
/* A file that gets other types in its place, under faults: the old model or the new one, always. */
#include "../unit/test.h"

#include "base/alloc.h"
#include "convert/convert.h"
#include "fault/faulty_fs.h"
#include "format/cmf/cmf.h"
#include "support/cmf_golden.h"
#include "support/memory_fs.h"

static void fail_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    fail_msg("%s", caisson_error_format(fault, line, sizeof(line)));
}

static void load(memory_fs *m) {
    csn_buf b = golden_read(CMF_GOLDEN "files/tiny-f32.cmf");
    memory_fs_init(m);
    memory_fs_put(m, "m.cmf", b.ptr, b.len);
    csn_buf_free(&b);
}

static caisson_status requant(csn_fs *fs, caisson_error *err) {
    const csn_convert_rule rule = {CSN_STR("*.mlp.*"), csn_dtype_by_name(CSN_STR("q8_row"))};
    csn_convert_options o = {.rules = &rule, .n_rules = 1, .n_threads = 1};
    return csn_convert(fs, "m.cmf", NULL, &o, err);
}

/* Opens, verifies; true: it is the new one. */
static bool assert_old_or_new(memory_fs *m) {
    csn_cmf *c = NULL;
    caisson_error err;
    uint64_t n = 0, n_new = 0, n_mlp = 0;
    ASSERT_OK(csn_cmf_open(&m->base, "m.cmf", &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, fail_fault, NULL, &n, &err), &err);
    for (uint32_t i = 0; i < c->dir.n; i++) {
        bool is_mlp = csn_str_find(c->dir.tensors[i].name, CSN_STR(".mlp."), 0) != SIZE_MAX;
        n_mlp += is_mlp;
        n_new += is_mlp && strcmp(c->dir.tensors[i].dtype->name, "q8_row") == 0;
    }
    assert_true(n_mlp > 0 && (n_new == 0 || n_new == n_mlp));
    csn_cmf_close(c);
    return n_new > 0;
}

static void each_failed_operation_leaves_a_model(void **state) {
    (void)state;
    for (int stays_broken = 0; stays_broken < 2; stays_broken++) {
        for (int64_t i = 0;; i++) {
            memory_fs m;
            faulty_fs f;
            caisson_error err = {0};
            load(&m);
            faulty_fs_init(&f, &m.base);
            f.fail_at = i;
            f.stays_broken = stays_broken != 0;
            caisson_status status = requant(&f.base, &err);
            bool is_new = assert_old_or_new(&m);
            assert_int_equal(m.n_open, 0);
            memory_fs_done(&m);
            if (status == CAISSON_OK) {
                assert_true(is_new && i > 20);
                break;
            }
        }
    }
}

static void each_failed_allocation_leaves_the_old_model(void **state) {
    (void)state;
    for (int64_t i = 0;; i++) {
        memory_fs m;
        caisson_error err = {0};
        load(&m);
        size_t n_before = memory_fs_find(&m, "m.cmf")->len;
        csn_alloc_fail_after(i);
        caisson_status status = requant(&m.base, &err);
        csn_alloc_fail_after(-1);
        bool is_new = assert_old_or_new(&m);
        assert_int_equal(m.n_open, 0);
        if (status == CAISSON_OK) {
            assert_true(is_new && i > 20);
            memory_fs_done(&m);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
        assert_false(is_new);
        assert_int_equal(memory_fs_find(&m, "m.cmf")->len, n_before);
        memory_fs_done(&m);
    }
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    for (uint64_t left = 0;; left += 3001) {
        memory_fs m;
        faulty_fs f;
        caisson_error err = {0};
        load(&m);
        size_t n_before = memory_fs_find(&m, "m.cmf")->len;
        faulty_fs_init(&f, &m.base);
        f.disk_left = left;
        caisson_status status = requant(&f.base, &err);
        bool is_new = assert_old_or_new(&m);
        size_t n_now = memory_fs_find(&m, "m.cmf")->len;
        memory_fs_done(&m);
        if (status == CAISSON_OK) {
            assert_true(is_new && left > 0);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        assert_false(is_new);
        assert_int_equal(n_now, n_before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_operation_leaves_a_model),
        cmocka_unit_test(each_failed_allocation_leaves_the_old_model),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
