/* SPDX-License-Identifier: Apache-2.0 */
/* Growing a file under faults: each operation fails in turn, the disk fills up, allocations fail,
 * the process is killed at each write and sync. After each: the old model or the new one, and while
 * the old one, its bytes. */
#include "unit/test.h"

#include <sys/wait.h>

#include "fault/faulty_fs.h"
#include "support/cmf_grow.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

static void fail_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    fail_msg("%s", caisson_error_format(fault, line, sizeof(line)));
}

static csn_buf make(void) {
    memory_fs fs;
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 24);
    memory_fs_init(&fs);
    ASSERT_OK(cmf_make(&fs.base, "m.cmf", -1, NULL, &err), &err);
    memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
    ASSERT_OK(csn_buf_append(&b, node->bytes, node->len, &err), &err);
    memory_fs_done(&fs);
    return b;
}

static csn_buf grown(const csn_buf *old, cmf_grow_kind kind) {
    memory_fs fs;
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 24);
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.cmf", old->ptr, old->len);
    ASSERT_OK(cmf_grow(&fs.base, "m.cmf", kind, &err), &err);
    memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
    ASSERT_OK(csn_buf_append(&b, node->bytes, node->len, &err), &err);
    memory_fs_done(&fs);
    return b;
}

/* Opens and verifies; returns whether it is the grown one. */
static bool assert_old_or_new(csn_fs *fs, const char *path, const csn_buf *old,
                              const csn_buf *want) {
    enum { ENVELOPE = 128 };
    csn_cmf *c = NULL;
    caisson_error err;
    uint64_t n = 0;
    csn_buf now;
    ASSERT_OK(csn_fs_read_all(fs, path, 1 << 24, &now, &err), &err);
    assert_true(now.len >= old->len);
    assert_memory_equal(now.ptr + ENVELOPE, old->ptr + ENVELOPE, old->len - ENVELOPE);
    bool is_old = memcmp(now.ptr, old->ptr, ENVELOPE) == 0;
    bool is_new = now.len >= want->len && memcmp(now.ptr, want->ptr, want->len) == 0;
    assert_true(is_old || is_new);
    csn_buf_free(&now);
    ASSERT_OK(csn_cmf_open(fs, path, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, fail_fault, NULL, &n, &err), &err);
    csn_cmf_close(c);
    return is_new;
}

/* stays_broken: all that follows fails too, so nothing is cleaned up. */
static void each_operation(cmf_grow_kind kind, bool stays_broken) {
    csn_buf old = make(), want = grown(&old, kind);
    for (int64_t i = 0;; i++) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        memory_fs_init(&fs);
        memory_fs_put(&fs, "m.cmf", old.ptr, old.len);
        faulty_fs_init(&faulty, &fs.base);
        faulty.fail_at = i;
        faulty.stays_broken = stays_broken;
        caisson_status status = cmf_grow(&faulty.base, "m.cmf", kind, &err);
        assert_int_equal(fs.n_open, 0);
        bool is_new = assert_old_or_new(&fs.base, "m.cmf", &old, &want);
        if (status == CAISSON_OK && faulty.n <= i) {
            assert_true(is_new && i > 10);
            memory_fs_done(&fs);
            break;
        }
        if (status != CAISSON_OK) {
            assert_string_equal(err.what, "injected fault");
            ASSERT_OK(cmf_grow(&fs.base, "m.cmf", CMF_GROW_HEADER, &err), &err); /* goes on */
        }
        memory_fs_done(&fs);
    }
    csn_buf_free(&old);
    csn_buf_free(&want);
}

static void each_failed_operation_leaves_the_old_or_the_new_model(void **state) {
    (void)state;
    for (int k = 0; k < CMF_GROW_N_KINDS; k++) {
        each_operation((cmf_grow_kind)k, false);
        each_operation((cmf_grow_kind)k, true);
    }
}

/* Nothing is pointed at before the disk has it. */
static void the_envelope_waits_for_the_disk(void **state) {
    (void)state;
    csn_buf old = make(), want = grown(&old, CMF_GROW_TENSORS);
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        memory_fs_init(&fs);
        memory_fs_put(&fs, "m.cmf", old.ptr, old.len);
        faulty_fs_init(&faulty, &fs.base);
        faulty.kinds = FAULTY_SYNC;
        faulty.fail_at = i;
        ASSERT_STATUS(cmf_grow(&faulty.base, "m.cmf", CMF_GROW_TENSORS, &err), CAISSON_E_IO);
        assert_int_equal(assert_old_or_new(&fs.base, "m.cmf", &old, &want), i == 1);
        memory_fs_done(&fs);
    }
    csn_buf_free(&old);
    csn_buf_free(&want);
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    csn_buf old = make(), want = grown(&old, CMF_GROW_TENSORS);
    for (uint64_t left = 0;; left += 997) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        memory_fs_init(&fs);
        memory_fs_put(&fs, "m.cmf", old.ptr, old.len);
        faulty_fs_init(&faulty, &fs.base);
        faulty.disk_left = left;
        caisson_status status = cmf_grow(&faulty.base, "m.cmf", CMF_GROW_TENSORS, &err);
        memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
        if (status == CAISSON_OK) {
            assert_true(left > 10000);
            assert_int_equal(node->len, want.len);
            memory_fs_done(&fs);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        assert_int_equal(node->len, old.len); /* what was written is given back */
        assert_memory_equal(node->bytes, old.ptr, old.len);
        memory_fs_done(&fs);
    }
    csn_buf_free(&old);
    csn_buf_free(&want);
}

static void each_failed_allocation_leaves_the_old_file(void **state) {
    (void)state;
    for (int k = 0; k < CMF_GROW_N_KINDS; k++) {
        csn_buf old = make();
        for (int64_t i = 0;; i++) {
            memory_fs fs;
            caisson_error err = {0};
            memory_fs_init(&fs);
            memory_fs_put(&fs, "m.cmf", old.ptr, old.len);
            csn_alloc_fail_after(i);
            caisson_status status = cmf_grow(&fs.base, "m.cmf", (cmf_grow_kind)k, &err);
            csn_alloc_fail_after(-1);
            assert_int_equal(fs.n_open, 0);
            memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
            if (status == CAISSON_OK) {
                assert_true(i > 10);
                memory_fs_done(&fs);
                break;
            }
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
            assert_int_equal(node->len, old.len);
            assert_memory_equal(node->bytes, old.ptr, old.len);
            memory_fs_done(&fs);
        }
        csn_buf_free(&old);
    }
}

/* ---- killed for good ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_KILLS = 1, PIECE = 1024 }; /* fewer places, and each once: forking is slow there */
#else
enum { N_KILLS = 1000, PIECE = 128 };
#endif
/* One call writes PIECE bytes: the envelope is one call. */

/* Kills the process that grows the file at operation i of its writes and syncs; false: it was
 * through before. */
static bool kill_at(const char *path, cmf_grow_kind kind, int64_t i) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_WRITE | FAULTY_SYNC;
        f.short_by = PIECE;
        f.fail_at = i;
        f.kill = true;
        _exit(cmf_grow(&f.base, path, kind, &err) == CAISSON_OK ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == 0));
    return WIFSIGNALED(how);
}

/* SIGKILL at each write and each sync of each kind of growth, and again until it was N_KILLS. */
static void a_thousand_kills_lose_no_file(void **state) {
    (void)state;
    caisson_error err;
    const char *path = temp_path("m.cmf");
    csn_buf old = make();
    int n_kills = 0, n_old = 0, n_new = 0;
    while (n_kills < N_KILLS) {
        for (int k = 0; k < CMF_GROW_N_KINDS; k++) {
            csn_buf want = grown(&old, (cmf_grow_kind)k);
            for (int64_t i = 0;; i++) {
                ASSERT_OK(csn_fs_write_all(csn_fs_os(), path, csn_buf_view(&old), &err), &err);
                if (!kill_at(path, (cmf_grow_kind)k, i)) {
                    break;
                }
                n_kills++;
                bool is_new = assert_old_or_new(csn_fs_os(), path, &old, &want);
                n_new += is_new;
                n_old += !is_new;
            }
            csn_buf_free(&want);
        }
    }
    print_message("%d kills during append: 0 files lost (%d old, %d new)\n", n_kills, n_old, n_new);
    assert_true(n_old > 0 && n_new > 0);
    csn_buf_free(&old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_operation_leaves_the_old_or_the_new_model),
        cmocka_unit_test(the_envelope_waits_for_the_disk),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(each_failed_allocation_leaves_the_old_file),
        cmocka_unit_test_setup_teardown(a_thousand_kills_lose_no_file, temp_dir_make,
                                        temp_dir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
