/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion under faults: each operation of the file system fails in turn, the disk fills up at
 * each size, each allocation fails. After it: an error, no leak, the old target intact; and the
 * next call makes the very bytes of an undisturbed one. */
#include "../unit/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "convert/convert.h"
#include "fault/faulty_fs.h"
#include "format/safetensors/safetensors.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

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

/* Some shards have their names when it stops: they are this conversion's own, and no reason for the
 * next one to ask whether they may be replaced. */
static void shards_that_were_being_renamed_are_finished(void **state) {
    (void)state;
    const csn_convert_options o = {.n_threads = 1, .shard_max_bytes = 20000};
    memory_fs fs, whole;
    faulty_fs f;
    caisson_error err;
    int n_renames = 0;
    load(&whole);
    ASSERT_OK(csn_convert(&whole.base, "d", "new.cmf", &o, &err), &err);
    for (bool is_done = false; !is_done; n_renames++) {
        load(&fs);
        faulty_fs_init(&f, &fs.base);
        f.kinds = FAULTY_RENAME;
        f.fail_at = n_renames;
        is_done = csn_convert(&f.base, "d", "new.cmf", &o, &err) == CAISSON_OK;
        if (!is_done) {
            ASSERT_OK(csn_convert(&fs.base, "d", "new.cmf", &o, &err), &err);
        }
        for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
            const memory_fs_node *want = &whole.nodes[i];
            if (want->path == NULL) {
                continue;
            }
            const memory_fs_node *got = memory_fs_find(&fs, want->path);
            assert_non_null(got);
            assert_int_equal(got->len, want->len);
            assert_memory_equal(got->bytes, want->bytes, want->len);
        }
        memory_fs_done(&fs);
    }
    assert_true(n_renames > 3);
    memory_fs_done(&whole);
}

/* The first shard is on the disk, not yet under its name: what has a later one's is not ours. */
static void another_s_shard_is_left_alone(void **state) {
    (void)state;
    const csn_convert_options o = {.n_threads = 1, .shard_max_bytes = 20000};
    static const char part[] = ".part";
    memory_fs fs;
    faulty_fs f;
    caisson_error err;
    char name[64] = "";
    load(&fs);
    faulty_fs_init(&f, &fs.base);
    f.kinds = FAULTY_RENAME;
    f.fail_at = 0;
    ASSERT_STATUS(csn_convert(&f.base, "d", "new.cmf", &o, &err), CAISSON_E_IO);
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) { /* the last of the parts */
        const char *path = fs.nodes[i].path;
        if (path != NULL && strncmp(path, "new-", 4) == 0 && strcmp(path, name) > 0 &&
            strcmp(path + strlen(path) - strlen(part), part) == 0) {
            snprintf(name, sizeof(name), "%.*s", (int)(strlen(path) - strlen(part)), path);
        }
    }
    memory_fs_put(&fs, name, OLD, sizeof(OLD));
    ASSERT_STATUS(csn_convert(&fs.base, "d", "new.cmf", &o, &err), CAISSON_E_EXISTS);
    assert_string_equal(err.file, name);
    assert_memory_equal(memory_fs_find(&fs, name)->bytes, OLD, sizeof(OLD));
    memory_fs_done(&fs);
}

/* ---- killed for good ---- */

enum { N_KILLS = 60 };

/* The same source on the disk, with a value beyond f16 in a norm of its second layer: the tensor
 * stays f32 and those behind it move. */
static void put_source(void) {
    memory_fs fs;
    csn_safetensors *s;
    caisson_error err;
    load(&fs);
    ASSERT_OK(csn_safetensors_open_dir(&fs.base, "d", &s, &err), &err);
    const csn_tensor *t =
        csn_directory_find(&s->dir, CSN_STR("model.layers.1.input_layernorm.weight"));
    assert_non_null(t);
    uint8_t *bytes = memory_fs_find(&fs, "d/model.safetensors")->bytes;
    bytes[t->offset + 6] = 0x80; /* bf16 262144 */
    bytes[t->offset + 7] = 0x48;
    csn_safetensors_close(s);
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof(name), "d/%s", files[i]);
        const memory_fs_node *node = memory_fs_find(&fs, name);
        ASSERT_OK(csn_fs_write_all(csn_fs_os(), temp_path(files[i]),
                                   csn_str_make((const char *)node->bytes, node->len), &err),
                  &err);
    }
    memory_fs_done(&fs);
}

typedef struct told {
    uint32_t n_resumed, n_kept;
} told;

static void hear(void *ctx, csn_log_level level, const char *line) {
    told *t = ctx;
    (void)level;
    (void)sscanf(line, "resuming behind %" SCNu32, &t->n_resumed);
    t->n_kept += strstr(line, "the tensor stays f32") != NULL;
}

/* One mark a tensor, and system calls that move at most 61 bytes: a payload takes many of them. */
static caisson_status convert_on_disk(csn_fs *fs, const char *target, told *t, caisson_error *err) {
    csn_log log = {hear, t, CSN_LOG_INFO};
    csn_convert_options o = {.n_threads = 1, .overwrite = true, .sync_bytes = 1, .log = &log};
    return csn_convert(fs, temp_dir_path, target, &o, err);
}

/* SIGKILL at sixty writes from the first to the last, most of them inside a payload; each time the
 * next run goes on where the disk was sure, and the file is that of an undisturbed run. */
static void a_killed_conversion_gives_the_same_bytes(void **state) {
    (void)state;
    caisson_error err;
    faulty_fs f;
    told t = {0};
    uint32_t most = 0;
    const char *target = temp_path("out.cmf");
    put_source();
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_WRITE;
    f.short_by = 61;
    ASSERT_OK(convert_on_disk(&f.base, temp_path("want.cmf"), &t, &err), &err);
    assert_int_equal(t.n_kept, 1);
    int64_t n_writes = f.n;
    assert_true(n_writes > 10 * N_KILLS);
    csn_buf want, got;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), temp_path("want.cmf"), 1 << 24, &want, &err), &err);
    for (int i = 0; i < N_KILLS; i++) {
        f.fail_at = i * n_writes / N_KILLS;
        f.n = 0;
        f.kill = true;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)convert_on_disk(&f.base, target, &t, &err);
            _exit(0); /* not reached */
        }
        int how = 0;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFSIGNALED(how));
        assert_false(csn_fs_os()->ops->exists(csn_fs_os(), target));
        t = (told){0};
        ASSERT_OK(convert_on_disk(csn_fs_os(), target, &t, &err), &err);
        assert_int_equal(t.n_kept, 1); /* told again, whichever run found it out */
        most = t.n_resumed > most ? t.n_resumed : most;
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), target, 1 << 24, &got, &err), &err);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.ptr, want.ptr, want.len);
        csn_buf_free(&got);
        (void)unlink(target);
    }
    assert_true(most >= 20); /* of 21 tensors: the work was not done again */
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
        cmocka_unit_test(shards_that_were_being_renamed_are_finished),
        cmocka_unit_test(another_s_shard_is_left_alone),
        cmocka_unit_test_setup_teardown(a_killed_conversion_gives_the_same_bytes, temp_dir_make,
                                        temp_dir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
