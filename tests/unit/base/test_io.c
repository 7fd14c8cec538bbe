/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/alloc.h"

#include "fault/faulty_fs.h"
#include "support/temp_dir.h"

/* The system's own, interrupted so many times first. */
static int n_interrupts;

int fsync(int fd) {
    if (n_interrupts > 0) {
        n_interrupts--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static void put(const char *path, const char *text) {
    caisson_error err;
    ASSERT_OK(csn_fs_write_all(csn_fs_os(), path, csn_str_from(text), &err), &err);
}

static void assert_holds(const char *path, const char *text) {
    csn_buf b = {0};
    caisson_error err;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &b, &err), &err);
    assert_string_equal(b.ptr, text);
    csn_buf_free(&b);
}

static void a_file_is_written_read_and_replaced(void **state) {
    (void)state;
    const char *path = temp_path("a");
    csn_file *f = NULL;
    caisson_error err;
    uint64_t size = 0;
    put(path, "first");
    assert_holds(path, "first");
    put(path, "");
    assert_holds(path, "");
    put(path, "0123456789");
    ASSERT_OK(csn_fs_open(csn_fs_os(), path, CSN_OPEN_READ_WRITE, &f, &err), &err);
    ASSERT_OK(csn_file_write_at(f, 4, "xx", 2, &err), &err);
    ASSERT_OK(csn_file_write_at(f, 12, "end", 3, &err), &err); /* a hole reads as zeros */
    ASSERT_OK(csn_file_size(f, &size, &err), &err);
    assert_int_equal(size, 15);
    char buf[16] = {0};
    ASSERT_OK(csn_file_read_at(f, 0, buf, 15, &err), &err);
    assert_memory_equal(buf, "0123xx6789\0\0end", 15);
    ASSERT_OK(f->ops->truncate(f, 3, &err), &err);
    csn_file_close(f);
    assert_holds(path, "012");
    assert_true(csn_fs_os()->ops->exists(csn_fs_os(), path));
    assert_false(csn_fs_os()->ops->is_dir(csn_fs_os(), path));
    assert_true(csn_fs_os()->ops->is_dir(csn_fs_os(), temp_dir_path));
    ASSERT_OK(csn_fs_os()->ops->remove(csn_fs_os(), path, &err), &err);
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), path));
    csn_file_close(NULL);
}

/* Only what has no name is absent: files that are optional are not left out because they cannot be
 * reached. */
static void what_cannot_be_reached_counts_as_there(void **state) {
    (void)state;
    csn_fs *fs = csn_fs_os();
    caisson_error err;
    csn_file *f;
    const char *to_nothing = temp_path("to-nothing"), *to_itself = temp_path("to-itself");
    assert_int_equal(symlink("no-such-file", to_nothing), 0);
    assert_int_equal(symlink("to-itself", to_itself), 0);
    assert_true(fs->ops->exists(fs, to_nothing));
    assert_true(fs->ops->exists(fs, to_itself));
    ASSERT_STATUS(csn_fs_open(fs, to_nothing, CSN_OPEN_READ, &f, &err), CAISSON_E_IO);
    ASSERT_OK(fs->ops->remove(fs, to_nothing, &err), &err);
    ASSERT_OK(fs->ops->remove(fs, to_itself, &err), &err);
    assert_false(fs->ops->exists(fs, to_nothing));
    ASSERT_OK(csn_fs_write_all(fs, temp_path("file"), CSN_STR("x"), &err), &err);
    assert_false(fs->ops->exists(fs, temp_path("file/below")));
    ASSERT_OK(fs->ops->remove(fs, temp_path("file"), &err), &err);
}

static void an_interrupted_sync_is_repeated(void **state) {
    (void)state;
    const char *path = temp_path("a");
    caisson_error err;
    put(path, "old");
    n_interrupts = 2;
    put(path, "new");
    assert_int_equal(n_interrupts, 0);
    assert_holds(path, "new");
    n_interrupts = 2;
    ASSERT_OK(csn_fs_os()->ops->sync_dir(csn_fs_os(), path, &err), &err);
    assert_int_equal(n_interrupts, 0);
    (void)unlink(path);
}

static void reading_past_the_end_has_both_numbers(void **state) {
    (void)state;
    const char *path = temp_path("a");
    csn_file *f = NULL;
    caisson_error err;
    char buf[16];
    put(path, "12345");
    ASSERT_OK(csn_fs_open(csn_fs_os(), path, CSN_OPEN_READ, &f, &err), &err);
    ASSERT_STATUS(csn_file_read_at(f, 2, buf, 10, &err), CAISSON_E_IO);
    assert_string_equal(err.file, path);
    assert_true(err.has_offset && err.offset == 2);
    assert_string_equal(err.want, "10");
    assert_string_equal(err.got, "3");
    csn_file_close(f);
}

static void limits_and_modes_are_kept(void **state) {
    (void)state;
    const char *path = temp_path("a");
    csn_buf b = {0};
    csn_file *f = NULL;
    caisson_error err;
    put(path, "12345");
    ASSERT_STATUS(csn_fs_read_all(csn_fs_os(), path, 4, &b, &err), CAISSON_E_LIMIT);
    assert_null(b.ptr);
    ASSERT_STATUS(csn_fs_open(csn_fs_os(), path, CSN_OPEN_CREATE_NEW, &f, &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, EEXIST);
    ASSERT_STATUS(csn_fs_open(csn_fs_os(), temp_dir_path, CSN_OPEN_READ, &f, &err), CAISSON_E_IO);
    ASSERT_STATUS(csn_fs_open(csn_fs_os(), temp_path("none"), CSN_OPEN_READ, &f, &err),
                  CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOENT);
    (void)unlink(path);
}

static void short_calls_are_carried_on(void **state) {
    (void)state;
    const char *path = temp_path("a");
    faulty_fs fs;
    csn_buf b = {0};
    caisson_error err;
    faulty_fs_init(&fs, csn_fs_os());
    fs.short_by = 3;
    ASSERT_OK(csn_fs_write_all(&fs.base, path, CSN_STR("a text of some length"), &err), &err);
    ASSERT_OK(csn_fs_read_all(&fs.base, path, 1000, &b, &err), &err);
    ASSERT_STR(csn_buf_view(&b), "a text of some length");
    csn_buf_free(&b);
    assert_int_equal(fs.n_open, 0);
    (void)unlink(path);
}

/* Whatever fails, the old text or the whole new one is there. */
static void replacing_is_all_or_nothing(void **state) {
    (void)state;
    const char *path = temp_path("a");
    for (int64_t n = 0;; n++) {
        faulty_fs fs;
        caisson_error err;
        assert_true(n < 100);
        put(path, "old");
        faulty_fs_init(&fs, csn_fs_os());
        fs.fail_at = n;
        caisson_status status = csn_fs_write_all(&fs.base, path, CSN_STR("new"), &err);
        assert_int_equal(fs.n_open, 0);
        if (status == CAISSON_OK) {
            assert_holds(path, "new");
            break;
        }
        assert_int_equal(status, CAISSON_E_IO);
        csn_buf b = {0};
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 100, &b, &err), &err);
        assert_true(csn_str_is(csn_buf_view(&b), "old") || csn_str_is(csn_buf_view(&b), "new"));
        csn_buf_free(&b);
    }
    faulty_fs fs;
    caisson_error err;
    put(path, "old");
    faulty_fs_init(&fs, csn_fs_os());
    fs.disk_left = 2;
    ASSERT_STATUS(csn_fs_write_all(&fs.base, path, CSN_STR("new"), &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_holds(path, "old");
    (void)unlink(path);
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    const char *path = temp_path("a");
    for (int64_t n = 0;; n++) {
        csn_buf b = {0};
        caisson_error err;
        assert_true(n < 100);
        csn_alloc_fail_after(n);
        caisson_status status = csn_fs_write_all(csn_fs_os(), path, CSN_STR("text"), &err);
        if (status == CAISSON_OK) {
            status = csn_fs_read_all(csn_fs_os(), path, 100, &b, &err);
        }
        csn_alloc_fail_after(-1);
        csn_buf_free(&b);
        if (status == CAISSON_OK) {
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
    }
    (void)unlink(path);
}

static void directories_change_places_and_empty_ones_are_removed(void **state) {
    (void)state;
    csn_fs *fs = csn_fs_os();
    caisson_error err;
    char a[512], b[512], in_a[600], in_b[600];
    snprintf(a, sizeof(a), "%s", temp_path("a.dir"));
    snprintf(b, sizeof(b), "%s", temp_path("b.dir"));
    snprintf(in_a, sizeof(in_a), "%s/x", a);
    snprintf(in_b, sizeof(in_b), "%s/x", b);
    ASSERT_OK(fs->ops->make_dir(fs, a, &err), &err);
    ASSERT_OK(fs->ops->make_dir(fs, b, &err), &err);
    put(in_a, "of a");
    put(in_b, "of b");
    ASSERT_OK(fs->ops->exchange(fs, a, b, &err), &err);
    assert_holds(in_a, "of b");
    assert_holds(in_b, "of a");
    ASSERT_STATUS(fs->ops->remove(fs, a, &err), CAISSON_E_IO); /* it is not empty */
    assert_holds(in_a, "of b");
    ASSERT_OK(fs->ops->remove(fs, in_a, &err), &err);
    ASSERT_OK(fs->ops->remove(fs, a, &err), &err);
    ASSERT_STATUS(fs->ops->exchange(fs, a, b, &err), CAISSON_E_IO); /* one is not there */
    assert_holds(in_b, "of a");
    ASSERT_OK(fs->ops->remove(fs, in_b, &err), &err);
    ASSERT_OK(fs->ops->remove(fs, b, &err), &err);
}

/* Neither hangs in open nor reads from one; what is a file waits as ever. */
static void a_pipe_in_the_place_of_a_file_is_refused(void **state) {
    static const csn_open_mode modes[] = {CSN_OPEN_READ, CSN_OPEN_READ_WRITE};
    (void)state;
    csn_fs *fs = csn_fs_os();
    csn_file *f;
    char pipe[256], path[256];
    caisson_error err = {0};
    snprintf(pipe, sizeof(pipe), "%s", temp_path("pipe"));
    snprintf(path, sizeof(path), "%s", temp_path("file"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    put(path, "text");
    (void)alarm(20);
    for (int i = 0; i < 2; i++) {
        ASSERT_STATUS(csn_fs_open(fs, pipe, modes[i], &f, &err), CAISSON_E_IO);
        assert_string_equal(err.what, "not a regular file");
        ASSERT_OK(csn_fs_open(fs, path, modes[i], &f, &err), &err);
        assert_int_equal(fcntl(csn_file_descriptor(f), F_GETFL) & O_NONBLOCK, 0);
        csn_file_close(f);
    }
    (void)alarm(0);
    ASSERT_OK(fs->ops->remove(fs, pipe, &err), &err);
    ASSERT_OK(fs->ops->remove(fs, path, &err), &err);
}

/* Exit code of a writer that puts texts of one letter there, each of another length. */
static int replace_often(const char *path, char letter) {
    static char text[40000];
    memset(text, letter, sizeof(text));
    for (int i = 0; i < 400; i++) {
        caisson_error err;
        size_t n = 1 + (size_t)(i % 25) * 1500;
        if (csn_fs_write_all(csn_fs_os(), path, csn_str_make(text, n), &err) != CAISSON_OK) {
            return 1;
        }
    }
    return 0;
}

static void who_replaces_one_file_together_takes_turns(void **state) {
    enum { N = 4 };
    (void)state;
    char path[256], temp[300];
    pid_t pids[N];
    snprintf(path, sizeof(path), "%s", temp_path("shared"));
    snprintf(temp, sizeof(temp), "%s.tmp", path);
    put(path, "aaa");
    put(temp, "left by a killed one");
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(replace_often(path, (char)('a' + i)));
        }
    }
    for (int i = 0; i < N;) {
        int how = 0;
        csn_buf b = {0};
        caisson_error err;
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &b, &err), &err);
        assert_true(b.len > 0); /* whole: of one length and of one letter */
        assert_true(b.len == 3 || b.len % 1500 == 1);
        for (size_t k = 1; k < b.len; k++) {
            assert_int_equal(b.ptr[k], b.ptr[0]);
        }
        csn_buf_free(&b);
        if (waitpid(pids[i], &how, WNOHANG) == pids[i]) {
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
            i++;
        }
    }
    assert_int_equal(access(temp, F_OK), -1);
    (void)unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_replaces_one_file_together_takes_turns),
        cmocka_unit_test(a_pipe_in_the_place_of_a_file_is_refused),
        cmocka_unit_test(directories_change_places_and_empty_ones_are_removed),
        cmocka_unit_test(a_file_is_written_read_and_replaced),
        cmocka_unit_test(what_cannot_be_reached_counts_as_there),
        cmocka_unit_test(an_interrupted_sync_is_repeated),
        cmocka_unit_test(reading_past_the_end_has_both_numbers),
        cmocka_unit_test(limits_and_modes_are_kept),
        cmocka_unit_test(short_calls_are_carried_on),
        cmocka_unit_test(replacing_is_all_or_nothing),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
