/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion to a WARP directory under faults: after a failure the old target is what it was, and
 * the next call makes the very bytes of an undisturbed one; banks that were whole are not made
 * again. */
#include "../unit/test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "convert/convert.h"
#include "fault/faulty_fs.h"
#include "support/memory_fs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 27 }; /* one place of a fault of so many: training is slow there */
#else
enum { EVERY = 9 };
#endif

static const char OLD[] = "{\"format_version\": 0}";

static void load(memory_fs *fs, bool has_old) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    memory_fs_init(fs);
    for (int i = 0; i < 3; i++) {
        char from[512], to[64];
        csn_buf b;
        caisson_error err;
        snprintf(from, sizeof(from), "%s/tests/golden/families/deepseek_v3/%s", CSN_SOURCE_DIR,
                 files[i]);
        snprintf(to, sizeof(to), "d/%s", files[i]);
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), from, 1 << 24, &b, &err), &err);
        memory_fs_put(fs, to, b.ptr, b.len);
        csn_buf_free(&b);
    }
    if (has_old) {
        memory_fs_put(fs, "out.waste/manifest.json", OLD, sizeof(OLD));
        memory_fs_put(fs, "out.waste/trunk.bin", "old", 3);
    }
}

/* vq4p: its codebooks take half as long to train as those of vq3r. */
static caisson_status convert(csn_fs *fs, caisson_error *err) {
    csn_convert_options o = {.n_threads = 1, .overwrite = true, .expert_quant = CSN_STR("vq4p")};
    return csn_convert(fs, "d", "out.waste", &o, err);
}

/* The files of the target, beside the source: all there are. */
static void assert_same(memory_fs *got, memory_fs *want) {
    int n_got = 0, n_want = 0;
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        n_got += got->nodes[i].path != NULL;
        const memory_fs_node *node = &want->nodes[i];
        if (node->path != NULL) {
            const memory_fs_node *other = memory_fs_find(got, node->path);
            n_want++;
            assert_non_null(other);
            assert_int_equal(other->len, node->len);
            assert_memory_equal(other->bytes, node->bytes, node->len);
        }
    }
    assert_int_equal(n_got, n_want);
    assert_int_equal(got->n_open, 0);
}

static bool is_old(memory_fs *fs) {
    const memory_fs_node *m = memory_fs_find(fs, "out.waste/manifest.json");
    const memory_fs_node *t = memory_fs_find(fs, "out.waste/trunk.bin");
    return m != NULL && t != NULL && m->len == sizeof(OLD) && memcmp(m->bytes, OLD, m->len) == 0 &&
           t->len == 3;
}

static bool is_new(memory_fs *fs, memory_fs *want) {
    const memory_fs_node *m = memory_fs_find(fs, "out.waste/manifest.json");
    const memory_fs_node *w = memory_fs_find(want, "out.waste/manifest.json");
    return m != NULL && m->len == w->len && memcmp(m->bytes, w->bytes, m->len) == 0;
}

static void make_reference(memory_fs *want) {
    caisson_error err;
    load(want, false);
    ASSERT_OK(convert(&want->base, &err), &err);
}

static void each_failed_write_leaves_the_old_target_and_can_be_resumed(void **state) {
    (void)state;
    memory_fs want;
    make_reference(&want);
    for (int64_t i = 0;; i += i < 12 ? 1 : EVERY) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        load(&fs, true);
        faulty_fs_init(&faulty, &fs.base);
        faulty.kinds = FAULTY_WRITE | FAULTY_SYNC | FAULTY_RENAME | FAULTY_REMOVE |
                       FAULTY_TRUNCATE | FAULTY_LOCK | FAULTY_SPACE | FAULTY_SYNC_DIR;
        faulty.fail_at = i;
        faulty.stays_broken = true; /* as if killed here: nothing is cleaned up either */
        caisson_status status = convert(&faulty.base, &err);
        bool is_done = status == CAISSON_OK && faulty.n <= i;
        assert_true(is_old(&fs) || is_new(&fs, &want)); /* never a mixture */
        assert_int_equal(fs.n_open, 0);
        ASSERT_OK(convert(&fs.base, &err), &err);
        assert_same(&fs, &want);
        memory_fs_done(&fs);
        if (is_done) {
            assert_true(i > 50);
            break;
        }
    }
    memory_fs_done(&want);
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    memory_fs want;
    make_reference(&want);
    for (uint64_t left = 0;; left += EVERY * 10001) {
        memory_fs fs;
        faulty_fs faulty;
        caisson_error err = {0};
        load(&fs, true);
        faulty_fs_init(&faulty, &fs.base);
        faulty.disk_left = left;
        caisson_status status = convert(&faulty.base, &err);
        if (status == CAISSON_OK) {
            assert_same(&fs, &want);
            memory_fs_done(&fs);
            assert_true(left > 0);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_IO);
        assert_true(is_old(&fs));
        ASSERT_OK(convert(&fs.base, &err), &err);
        assert_same(&fs, &want);
        memory_fs_done(&fs);
    }
    memory_fs_done(&want);
}

static void too_little_space_is_told_first(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    load(&fs, true);
    fs.free_bytes = 20000;
    ASSERT_STATUS(convert(&fs.base, &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_true(is_old(&fs));
    assert_null(memory_fs_find(&fs, "out.waste.part/trunk.bin"));
    memory_fs_done(&fs);
}

/* A bank that is whole keeps its bytes and the numbers of its codebooks. */
static void whole_banks_are_kept(void **state) {
    (void)state;
    memory_fs fs;
    faulty_fs faulty;
    caisson_error err = {0};
    memory_fs_node *bank = NULL;
    for (int64_t i = 0; bank == NULL; i++) {
        load(&fs, false);
        faulty_fs_init(&faulty, &fs.base);
        faulty.kinds = FAULTY_SYNC;
        faulty.fail_at = i;
        faulty.stays_broken = true;
        assert_int_not_equal(convert(&faulty.base, &err), CAISSON_OK);
        bank = memory_fs_find(&fs, "out.waste.part/experts-L2.bin");
        if (bank == NULL) {
            memory_fs_done(&fs);
        }
    }
    memory_fs_node *first = memory_fs_find(&fs, "out.waste.part/experts-L1.bin");
    assert_non_null(first);
    first->bytes[first->len - 1] ^= 1; /* padding: only who writes it again sets it right */
    ASSERT_OK(convert(&fs.base, &err), &err);
    first = memory_fs_find(&fs, "out.waste/experts-L1.bin");
    assert_non_null(first);
    assert_int_equal(first->bytes[first->len - 1], 1);
    memory_fs_done(&fs);
}

/* Another coding or another source begins anew. */
static void a_journal_of_another_conversion_is_discarded(void **state) {
    (void)state;
    memory_fs fs, want;
    faulty_fs faulty;
    caisson_error err = {0};
    make_reference(&want);
    load(&fs, false);
    faulty_fs_init(&faulty, &fs.base);
    faulty.kinds = FAULTY_SYNC;
    faulty.fail_at = 3;
    faulty.stays_broken = true;
    csn_convert_options o = {.n_threads = 1, .expert_quant = CSN_STR("vq3r")};
    assert_int_not_equal(csn_convert(&faulty.base, "d", "out.waste", &o, &err), CAISSON_OK);
    ASSERT_OK(convert(&fs.base, &err), &err);
    assert_same(&fs, &want);
    memory_fs_done(&fs);
    memory_fs_done(&want);
}

static void each_failed_allocation_is_told(void **state) {
    (void)state;
    memory_fs want;
    make_reference(&want);
    for (int64_t i = 0;; i += 1 + i / 4) {
        memory_fs fs;
        caisson_error err = {0};
        load(&fs, true);
        csn_alloc_fail_after(i);
        caisson_status status = convert(&fs.base, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            assert_same(&fs, &want);
            memory_fs_done(&fs);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
        assert_int_equal(fs.n_open, 0);
        assert_true(is_old(&fs) || is_new(&fs, &want));
        memory_fs_done(&fs);
    }
    memory_fs_done(&want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_write_leaves_the_old_target_and_can_be_resumed),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(too_little_space_is_told_first),
        cmocka_unit_test(whole_banks_are_kept),
        cmocka_unit_test(a_journal_of_another_conversion_is_discarded),
        cmocka_unit_test(each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
