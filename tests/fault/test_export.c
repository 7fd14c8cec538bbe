/* SPDX-License-Identifier: Apache-2.0 */
/* Export under faults: each operation and each allocation fails in turn. After it: an error,
 * nothing left open, and of the export nothing at all. Killed at each operation it leaves no
 * config.json, so that nobody takes the directory for a model, and what the next export, also one
 * into fewer files, takes away. */
#include "../unit/test.h"

#include <sys/wait.h>

#include "base/alloc.h"
#include "convert/export.h"
#include "fault/faulty_fs.h"
#include "format/safetensors/safetensors.h"
#include "support/cmf_golden.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

static caisson_status export_to(csn_fs *fs, const char *source, const char *dir,
                                uint64_t shard_max_bytes, bool overwrite, caisson_error *err) {
    csn_cmf *c;
    csn_store *store;
    csn_export_options o = {.dtype = csn_dtype_by_name(CSN_STR("f32")),
                            .shard_max_bytes = shard_max_bytes,
                            .overwrite = overwrite,
                            .n_threads = 1};
    CSN_TRY(csn_cmf_open(fs, source, &c, err));
    caisson_status status = csn_store_new(c, &(csn_store_options){.verify = true}, &store, err);
    if (status != CAISSON_OK) {
        csn_cmf_close(c);
        return status;
    }
    status = csn_export(store, fs, dir, &o, err);
    csn_store_free(store);
    return status;
}

enum { SHARD = 60000 };

static caisson_status run(csn_fs *fs, caisson_error *err) {
    return export_to(fs, "m.cmf", "hf", SHARD, false, err);
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
        if (status == CAISSON_OK) { /* what failed did not matter */
            assert_whole(&m);
            memory_fs_done(&m);
            load(&m);
        }
        assert_false(m.base.ops->is_dir(&m.base, "hf"));
    }
    assert_whole(&m);
    assert_null(memory_fs_find(&m, "hf/caisson.export.part"));
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
        assert_false(m.base.ops->is_dir(&m.base, "hf"));
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
        assert_false(m.base.ops->is_dir(&m.base, "hf"));
    }
    assert_whole(&m);
    memory_fs_done(&m);
}

/* A model that is whole is not touched, nor a directory with something else in it removed. */
static void what_was_there_stays(void **state) {
    (void)state;
    memory_fs m;
    faulty_fs f;
    caisson_error err = {0};
    load(&m);
    ASSERT_OK(run(&m.base, &err), &err);
    ASSERT_STATUS(run(&m.base, &err), CAISSON_E_EXISTS);
    assert_whole(&m);
    memory_fs_done(&m);
    load(&m);
    memory_fs_put(&m, "hf/notes.txt", "mine", 4);
    memory_fs_put(&m, "hf/tokenizer.json", "mine", 4);
    for (uint64_t left = 0;; left += 7001) {
        faulty_fs_init(&f, &m.base);
        f.disk_left = left;
        if (run(&f.base, &err) == CAISSON_OK) {
            break;
        }
        assert_non_null(memory_fs_find(&m, "hf/tokenizer.json"));
    }
    assert_non_null(memory_fs_find(&m, "hf/notes.txt"));
    memory_fs_done(&m);
}

static void count_name(void *ctx, csn_str name) {
    (void)name;
    ++*(int *)ctx;
}

static int n_files_in(csn_fs *fs, const char *dir) {
    int n = 0;
    caisson_error err;
    ASSERT_OK(fs->ops->list(fs, dir, count_name, &n, &err), &err);
    return n;
}

static const char *const old_files[] = {"hf/config.json", "hf/model.safetensors",
                                        "hf/tokenizer.json"};
enum { N_OLD = 3 };

/* A model that may be replaced stays, byte for byte, until the new one is written. */
static void a_full_disk_leaves_the_old_model(void **state) {
    (void)state;
    memory_fs m;
    uint64_t left = 0;
    load(&m);
    for (size_t i = 0; i < N_OLD; i++) {
        memory_fs_put(&m, old_files[i], "mine", 4);
    }
    for (;; left += 7001) {
        faulty_fs f;
        caisson_error err = {0};
        faulty_fs_init(&f, &m.base);
        f.disk_left = left;
        if (export_to(&f.base, "m.cmf", "hf", SHARD, true, &err) == CAISSON_OK) {
            break;
        }
        assert_int_equal(err.sys_errno, ENOSPC);
        for (size_t i = 0; i < N_OLD; i++) {
            memory_fs_node *file = memory_fs_find(&m, old_files[i]);
            assert_non_null(file);
            assert_int_equal(file->len, 4);
        }
        assert_int_equal(n_files_in(&m.base, "hf"), N_OLD);
    }
    assert_true(left > 100000);
    assert_null(memory_fs_find(&m, "hf/model.safetensors"));
    assert_null(memory_fs_find(&m, "hf/caisson.export.part"));
    assert_whole(&m);
    memory_fs_done(&m);
}

static void two_exports_do_not_meet(void **state) {
    (void)state;
    memory_fs m;
    csn_file *f;
    bool is_ours = false;
    caisson_error err = {0};
    load(&m);
    memory_fs_put(&m, "hf/config.json", "mine", 4);
    memory_fs_put(&m, "hf/caisson.export.part", "1\n", 2);
    ASSERT_OK(csn_fs_open(&m.base, "hf/caisson.export.part", CSN_OPEN_READ_WRITE, &f, &err), &err);
    ASSERT_OK(f->ops->lock(f, &is_ours, &err), &err);
    assert_true(is_ours);
    ASSERT_STATUS(export_to(&m.base, "m.cmf", "hf", SHARD, true, &err), CAISSON_E_BUSY);
    assert_int_equal(n_files_in(&m.base, "hf"), 2);
    csn_file_close(f);
    ASSERT_OK(export_to(&m.base, "m.cmf", "hf", SHARD, true, &err), &err);
    assert_whole(&m);
    memory_fs_done(&m);
}

/* ---- on the system's files ---- */

static void remove_dir(const char *dir) {
    char command[1024];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void a_full_disk_leaves_no_directory(void **state) {
    (void)state;
    faulty_fs f;
    caisson_error err = {0};
    const char *dir = temp_path("hf");
    faulty_fs_init(&f, csn_fs_os());
    f.disk_left = 150000;
    ASSERT_STATUS(export_to(&f.base, CMF_GOLDEN "files/tiny-f32.cmf", dir, SHARD, false, &err),
                  CAISSON_E_IO);
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), dir));
}

/* Whether the file is the one that the test wrote as old. */
static bool is_old(const char *path) {
    csn_buf b = {0};
    caisson_error err;
    bool is = csn_fs_read_all(csn_fs_os(), path, 1 << 20, &b, &err) == CAISSON_OK && b.len == 4;
    csn_buf_free(&b);
    return is;
}

/* The same with an old model that may be replaced: it is there, or its place is free. */
static void killed_exports(bool has_old) {
    const char *source = CMF_GOLDEN "files/tiny-f32.cmf";
    char dir[512];
    char config[512];
    snprintf(dir, sizeof(dir), "%s", temp_path("hf"));
    snprintf(config, sizeof(config), "%s", temp_path("hf/config.json"));
    caisson_error err = {0};
    faulty_fs f;
    int64_t n_kills = 0, n_kept = 0;
    for (int64_t at = 0;; at++) {
        if (has_old) {
            ASSERT_OK(csn_fs_os()->ops->make_dir(csn_fs_os(), dir, &err), &err);
        }
        for (size_t i = 0; has_old && i < N_OLD; i++) {
            ASSERT_OK(csn_fs_write_all(csn_fs_os(), temp_path(old_files[i]), CSN_STR("mine"), &err),
                      &err);
        }
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_OPEN | FAULTY_WRITE | FAULTY_SYNC | FAULTY_RENAME | FAULTY_REMOVE |
                  FAULTY_SYNC_DIR;
        f.fail_at = at;
        f.kill = true;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(export_to(&f.base, source, dir, SHARD, has_old, &err) == CAISSON_OK ? 0 : 1);
        }
        int how = 0;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        if (!WIFSIGNALED(how)) {
            assert_int_equal(how, 0);
            break;
        }
        n_kills++;
        if (has_old && is_old(config)) {
            n_kept++;
            assert_true(is_old(temp_path(old_files[1])) && is_old(temp_path(old_files[2])));
            ASSERT_OK(export_to(csn_fs_os(), source, dir, 0, true, &err), &err);
            assert_int_equal(n_files_in(csn_fs_os(), dir), 4);
        } else if (!csn_fs_os()->ops->exists(csn_fs_os(), config)) {
            ASSERT_OK(export_to(csn_fs_os(), source, dir, 0, false, &err), &err);
            /* no shard of the first, no mark */
            assert_int_equal(n_files_in(csn_fs_os(), dir), 4);
        }
        remove_dir(dir);
    }
    assert_true(n_kills > 30);
    assert_true(n_kept > 20 || !has_old);
    remove_dir(dir);
}

static void a_killed_export_is_taken_over(void **state) {
    (void)state;
    killed_exports(false);
}

static void a_killed_export_over_a_model_is_taken_over(void **state) {
    (void)state;
    killed_exports(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_operation_is_told),
        cmocka_unit_test(each_failed_allocation_is_survived),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(what_was_there_stays),
        cmocka_unit_test(a_full_disk_leaves_the_old_model),
        cmocka_unit_test(two_exports_do_not_meet),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_no_directory, temp_dir_make,
                                        temp_dir_remove),
        cmocka_unit_test_setup_teardown(a_killed_export_is_taken_over, temp_dir_make,
                                        temp_dir_remove),
        cmocka_unit_test_setup_teardown(a_killed_export_over_a_model_is_taken_over, temp_dir_make,
                                        temp_dir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
