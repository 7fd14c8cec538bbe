/* SPDX-License-Identifier: Apache-2.0 */
/* Export under faults: each operation and each allocation fails in turn. After it: an error,
 * nothing left open, no half a file, and no config.json, so that nobody takes the directory for a
 * model. */
#include "../unit/test.h"

#include "base/alloc.h"
#include "convert/export.h"
#include "fault/faulty_fs.h"
#include "format/safetensors/safetensors.h"
#include "support/cmf_golden.h"
#include "support/memory_fs.h"

static caisson_status run(csn_fs *fs, caisson_error *err) {
    csn_cmf *c;
    csn_store *store;
    csn_export_options o = {.dtype = csn_dtype_by_name(CSN_STR("f32")),
                            .shard_max_bytes = 60000,
                            .overwrite = true,
                            .n_threads = 1};
    CSN_TRY(csn_cmf_open(fs, "m.cmf", &c, err));
    caisson_status status = csn_store_new(c, &(csn_store_options){.verify = true}, &store, err);
    if (status != CAISSON_OK) {
        csn_cmf_close(c);
        return status;
    }
    status = csn_export(store, fs, "hf", &o, err);
    csn_store_free(store);
    return status;
}

static void load(memory_fs *m) {
    csn_buf b = golden_read(CMF_GOLDEN "files/tiny-f32.cmf");
    memory_fs_init(m);
    memory_fs_put(m, "m.cmf", b.ptr, b.len);
    csn_buf_free(&b);
}

static void assert_whole(memory_fs *m) {
    csn_safetensors *s;
    caisson_error err;
    ASSERT_OK(csn_safetensors_open_dir(&m->base, "hf", &s, &err), &err);
    assert_true(s->n_files > 2);
    csn_safetensors_close(s);
    assert_non_null(memory_fs_find(m, "hf/config.json"));
    assert_non_null(memory_fs_find(m, "hf/tokenizer.json"));
}

static void each_failed_operation_is_told(void **state) {
    (void)state;
    memory_fs m;
    load(&m);
    for (int64_t i = 0;; i++) {
        faulty_fs f;
        caisson_error err = {0};
        faulty_fs_init(&f, &m.base);
        f.fail_at = i;
        caisson_status status = run(&f.base, &err);
        assert_int_equal(m.n_open, 0);
        if (f.n <= i) {
            ASSERT_OK(status, &err);
            assert_true(i > 50);
            break;
        }
        memory_fs_node *config = memory_fs_find(&m, "hf/config.json");
        if (config != NULL) { /* all is there: what failed did not matter, or was the last sync */
            assert_whole(&m);
            memory_fs_drop(config);
        } else {
            assert_true(status != CAISSON_OK);
        }
    }
    assert_whole(&m);
    memory_fs_done(&m);
}

static void each_failed_allocation_is_survived(void **state) {
    (void)state;
    memory_fs m;
    load(&m);
    for (int64_t i = 0;; i++) {
        caisson_error err = {0};
        csn_alloc_fail_after(i);
        caisson_status status = run(&m.base, &err);
        csn_alloc_fail_after(-1);
        assert_int_equal(m.n_open, 0);
        if (status == CAISSON_OK) {
            assert_true(i > 20);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
        assert_null(memory_fs_find(&m, "hf/config.json"));
    }
    assert_whole(&m);
    memory_fs_done(&m);
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    memory_fs m;
    load(&m);
    for (uint64_t left = 0;; left += 7001) {
        faulty_fs f;
        caisson_error err = {0};
        faulty_fs_init(&f, &m.base);
        f.disk_left = left;
        caisson_status status = run(&f.base, &err);
        if (status == CAISSON_OK) {
            assert_true(left > 100000);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        assert_null(memory_fs_find(&m, "hf/config.json"));
        assert_null(memory_fs_find(&m, "hf/model-00001-of-00004.safetensors.part"));
    }
    assert_whole(&m);
    memory_fs_done(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_operation_is_told),
        cmocka_unit_test(each_failed_allocation_is_survived),
        cmocka_unit_test(a_full_disk_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
