/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion under faults: each operation of the file system fails in turn, the disk fills up at
 * each size, each allocation fails. After it: an error, no leak, the old target intact; and the
 * next call makes the very bytes of an undisturbed one. */
#include "../unit/test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "convert/convert.h"
#include "fault/faulty_fs.h"
#include "support/memory_fs.h"

static const char OLD[] = "the old target";

static void load(memory_fs *fs) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    memory_fs_init(fs);
    for (int i = 0; i < 3; i++) {
        char from[512], to[64];
        csn_buf b;
        caisson_error err;
        snprintf(from, sizeof(from), "%s/tests/golden/families/llama/%s", CSN_SOURCE_DIR, files[i]);
        snprintf(to, sizeof(to), "d/%s", files[i]);
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), from, 1 << 24, &b, &err), &err);
        memory_fs_put(fs, to, b.ptr, b.len);
        csn_buf_free(&b);
    }
    memory_fs_put(fs, "out.cmf", OLD, sizeof(OLD));
}

static caisson_status convert(csn_fs *fs, caisson_error *err) {
    csn_convert_options o = {.n_threads = 1, .overwrite = true};
    return csn_convert(fs, "d", "out.cmf", &o, err);
}

/* The bytes that an undisturbed conversion makes. */
static csn_buf reference(void) {
    memory_fs fs;
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 24);
    load(&fs);
    ASSERT_OK(convert(&fs.base, &err), &err);
    memory_fs_node *node = memory_fs_find(&fs, "out.cmf");
    ASSERT_OK(csn_buf_append(&b, node->bytes, node->len, &err), &err);
    memory_fs_done(&fs);
    return b;
}

static void assert_target(memory_fs *fs, const void *bytes, size_t n) {
    memory_fs_node *node = memory_fs_find(fs, "out.cmf");
    assert_non_null(node);
    assert_int_equal(node->len, n);
    assert_memory_equal(node->bytes, bytes, n);
    assert_int_equal(fs->n_open, 0);
}

static void each_failed_operation_leaves_the_old_target(void **state) {
    (void)state;
    csn_buf want = reference();
    for (int64_t i = 0;; i++) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        load(&fs);
        faulty_fs_init(&faulty, &fs.base);
        faulty.kinds = FAULTY_ALL;
        faulty.fail_at = i;
        faulty.stays_broken = true; /* as if killed here: nothing is cleaned up either */
        caisson_status status = convert(&faulty.base, &err);
        if (status == CAISSON_OK) {
            assert_target(&fs, want.ptr, want.len);
            assert_true(i > 50);
            memory_fs_done(&fs);
            break;
        }
        memory_fs_node *node = memory_fs_find(&fs, "out.cmf");
        assert_non_null(node); /* the old one, or, past the rename, the new one: never a mixture */
        assert_true((node->len == sizeof(OLD) && memcmp(node->bytes, OLD, sizeof(OLD)) == 0) ||
                    (node->len == want.len && memcmp(node->bytes, want.ptr, want.len) == 0));
        assert_int_equal(fs.n_open, 0);
        ASSERT_OK(convert(&fs.base, &err), &err); /* resumes or starts anew */
        assert_target(&fs, want.ptr, want.len);
        memory_fs_done(&fs);
    }
    csn_buf_free(&want);
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    csn_buf want = reference();
    for (uint64_t left = 0;; left += 7001) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        load(&fs);
        faulty_fs_init(&faulty, &fs.base);
        faulty.disk_left = left;
        caisson_status status = convert(&faulty.base, &err);
        if (status == CAISSON_OK) {
            assert_true(left > 0);
            assert_target(&fs, want.ptr, want.len);
            memory_fs_done(&fs);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_IO);
        assert_target(&fs, OLD, sizeof(OLD));
        ASSERT_OK(convert(&fs.base, &err), &err);
        assert_target(&fs, want.ptr, want.len);
        memory_fs_done(&fs);
    }
    csn_buf_free(&want);
}

static void short_reads_and_writes_change_nothing(void **state) {
    (void)state;
    csn_buf want = reference();
    memory_fs fs;
    faulty_fs faulty;
    caisson_error err;
    load(&fs);
    faulty_fs_init(&faulty, &fs.base);
    faulty.short_by = 1000;
    ASSERT_OK(convert(&faulty.base, &err), &err);
    assert_target(&fs, want.ptr, want.len);
    memory_fs_done(&fs);
    csn_buf_free(&want);
}

/* U06: told before the first byte of weights is written. */
static void too_little_space_is_told_first(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    load(&fs);
    fs.free_bytes = 20000;
    ASSERT_STATUS(convert(&fs.base, &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_target(&fs, OLD, sizeof(OLD));
    memory_fs_done(&fs);
}

static void each_failed_allocation_is_survived(void **state) {
    (void)state;
    csn_buf want = reference();
    for (int64_t i = 0;; i++) {
        memory_fs fs;
        caisson_error err = {0};
        load(&fs);
        csn_alloc_fail_after(i);
        caisson_status status = convert(&fs.base, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            assert_target(&fs, want.ptr, want.len);
            assert_true(i > 50);
            memory_fs_done(&fs);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
        assert_target(&fs, OLD, sizeof(OLD));
        memory_fs_done(&fs);
    }
    csn_buf_free(&want);
}

typedef struct stop {
    int left;
} stop;

static bool tick(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    assert_true(done <= total);
    return ((stop *)ctx)->left-- > 0;
}

static void a_cancelled_conversion_can_be_taken_up(void **state) {
    (void)state;
    csn_buf want = reference();
    for (int n = 0;; n++) {
        memory_fs fs;
        caisson_error err = {0};
        stop s = {n};
        csn_progress progress = {tick, &s};
        csn_convert_options o = {.n_threads = 2, .overwrite = true, .progress = &progress};
        load(&fs);
        caisson_status status = csn_convert(&fs.base, "d", "out.cmf", &o, &err);
        if (status == CAISSON_OK) {
            assert_true(n > 10);
            memory_fs_done(&fs);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_CANCELLED);
        assert_target(&fs, OLD, sizeof(OLD));
        ASSERT_OK(convert(&fs.base, &err), &err);
        assert_target(&fs, want.ptr, want.len); /* two threads, one thread: the same bytes */
        memory_fs_done(&fs);
    }
    csn_buf_free(&want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_operation_leaves_the_old_target),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(short_reads_and_writes_change_nothing),
        cmocka_unit_test(too_little_space_is_told_first),
        cmocka_unit_test(each_failed_allocation_is_survived),
        cmocka_unit_test(a_cancelled_conversion_can_be_taken_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
