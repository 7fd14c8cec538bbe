/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion to a WARP directory under faults: after a failure the old target is what it was, and
 * the next call makes the very bytes of an undisturbed one; banks that were whole are not made
 * again. */
#include "../unit/test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "convert/convert.h"
#include "convert/synth.h"
#include "fault/faulty_fs.h"
#include "support/memory_fs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 27 }; /* one place of a fault of so many: training is slow there */
#else
enum { EVERY = 9 };
#endif

/* old: the model whose files, every bit of them turned over, are the old target: of the same sizes,
 * as those of another training of the same network; NULL: there is none. */
static void load(memory_fs *fs, const memory_fs *old) {
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
    for (int i = 0; old != NULL && i < MEMORY_FS_MAX_FILES; i++) {
        const memory_fs_node *node = &old->nodes[i];
        if (node->path != NULL && strncmp(node->path, "out.waste/", 10) == 0) {
            memory_fs_node *copy = memory_fs_put(fs, node->path, node->bytes, node->len);
            for (size_t k = 0; k < copy->len; k++) {
                copy->bytes[k] ^= 0xff;
            }
        }
    }
}

static void copy(memory_fs *to, const memory_fs *from) {
    memory_fs_init(to);
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        const memory_fs_node *node = &from->nodes[i];
        if (node->path != NULL) {
            memory_fs_put(to, node->path, node->bytes, node->len);
        }
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

/* Whether every file of the target is want's, its bits turned over by `mask`. */
static bool is_model(memory_fs *fs, const memory_fs *want, uint8_t mask) {
    bool is = true;
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        const memory_fs_node *node = &want->nodes[i];
        if (node->path != NULL && strncmp(node->path, "out.waste/", 10) == 0) {
            const memory_fs_node *got = memory_fs_find(fs, node->path);
            is = is && got != NULL && got->len == node->len;
            for (size_t k = 0; is && k < node->len; k++) {
                is = got->bytes[k] == (node->bytes[k] ^ mask);
            }
        }
    }
    return is;
}

static bool is_old(memory_fs *fs, const memory_fs *want) {
    return is_model(fs, want, 0xff);
}

static bool is_new(memory_fs *fs, const memory_fs *want) {
    return is_model(fs, want, 0);
}

static void make_reference(memory_fs *want) {
    caisson_error err;
    load(want, NULL);
    ASSERT_OK(convert(&want->base, &err), &err);
}

/* Change i of the file system fails, and all later ones if the disk stays broken: nothing is
 * cleaned up either, as if killed there. Returns how many there were. */
static int64_t convert_until(memory_fs *fs, int64_t i, bool stays_broken) {
    faulty_fs faulty;
    caisson_error err = {0};
    faulty_fs_init(&faulty, &fs->base);
    faulty.kinds = FAULTY_WRITE | FAULTY_SYNC | FAULTY_RENAME | FAULTY_REMOVE | FAULTY_TRUNCATE |
                   FAULTY_LOCK | FAULTY_SPACE | FAULTY_SYNC_DIR;
    faulty.fail_at = i;
    faulty.stays_broken = stays_broken;
    (void)convert(&faulty.base, &err);
    return faulty.n;
}

/* Stopped at change i, it leaves the old model or the new one, and the next call makes the new one.
 * from: what lies there before. */
static void stop_and_resume(const memory_fs *from, int64_t i, bool stays_broken, memory_fs *want) {
    memory_fs fs;
    caisson_error err = {0};
    copy(&fs, from);
    (void)convert_until(&fs, i, stays_broken);
    assert_true(is_old(&fs, want) || is_new(&fs, want)); /* never a mixture */
    assert_int_equal(fs.n_open, 0);
    ASSERT_OK(convert(&fs.base, &err), &err);
    assert_same(&fs, want);
    memory_fs_done(&fs);
}

static void each_failed_write_leaves_the_old_target_and_can_be_resumed(void **state) {
    enum { LAST = 24 }; /* changes with which the model is put in place: each of them */
    (void)state;
    memory_fs want, old, ready, whole;
    make_reference(&want);
    load(&old, &want);
    copy(&whole, &old);
    int64_t n_all = convert_until(&whole, INT64_MAX, true);
    assert_true(n_all > 50 && is_new(&whole, &want));
    for (int64_t i = 0; i < n_all - LAST; i += i < 12 ? 1 : EVERY) {
        stop_and_resume(&old, i, true, &want);
    }
    copy(&ready, &old); /* its codebooks need not be trained again */
    (void)convert_until(&ready, n_all - LAST, true);
    assert_true(is_old(&ready, &want));
    memory_fs_done(&whole);
    copy(&whole, &ready);
    int64_t n_rest = convert_until(&whole, INT64_MAX, true);
    assert_true(n_rest >= LAST && n_rest < n_all / 2);
    for (int64_t i = 0; i < n_rest; i++) {
        stop_and_resume(&ready, i, true, &want);
        stop_and_resume(&ready, i, false, &want);
    }
    memory_fs_done(&whole);
    memory_fs_done(&ready);
    memory_fs_done(&old);
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
        load(&fs, &want);
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
        assert_true(is_old(&fs, &want));
        ASSERT_OK(convert(&fs.base, &err), &err);
        assert_same(&fs, &want);
        memory_fs_done(&fs);
    }
    memory_fs_done(&want);
}

static void too_little_space_is_told_first(void **state) {
    (void)state;
    memory_fs want, fs;
    caisson_error err = {0};
    make_reference(&want);
    load(&fs, &want);
    fs.free_bytes = 20000;
    ASSERT_STATUS(convert(&fs.base, &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_true(is_old(&fs, &want));
    assert_null(memory_fs_find(&fs, "out.waste.part/trunk.bin"));
    memory_fs_done(&fs);
    memory_fs_done(&want);
}

/* A bank that is whole keeps its bytes and the numbers of its codebooks. */
static void whole_banks_are_kept(void **state) {
    (void)state;
    memory_fs fs;
    faulty_fs faulty;
    caisson_error err = {0};
    memory_fs_node *bank = NULL;
    for (int64_t i = 0; bank == NULL; i++) {
        load(&fs, NULL);
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
    load(&fs, NULL);
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

/* A synthesis is never resumed: what another seed left of one is nothing to go on from. */
static void a_killed_synthesis_is_begun_anew(void **state) {
    (void)state;
    csn_synth_options o = {
        .family = CSN_STR("kimi_linear"), .size = CSN_STR("small"), .seed = 1, .n_threads = 1};
    csn_synth_options other = {
        .family = CSN_STR("kimi_linear"), .size = CSN_STR("small"), .seed = 2, .n_threads = 1};
    memory_fs want;
    caisson_error err = {0};
    memory_fs_init(&want);
    ASSERT_OK(csn_synth(&want.base, "out.waste", &o, &err), &err);
    for (int64_t i = 0; i < 8; i++) { /* the trunk is one; each bank is two */
        memory_fs fs;
        faulty_fs faulty;
        memory_fs_init(&fs);
        faulty_fs_init(&faulty, &fs.base);
        faulty.kinds = FAULTY_SYNC | FAULTY_REMOVE;
        faulty.fail_at = i;
        faulty.stays_broken = true;
        assert_int_not_equal(csn_synth(&faulty.base, "out.waste", &other, &err), CAISSON_OK);
        assert_non_null(memory_fs_find(&fs, "out.waste.part/trunk.bin"));
        ASSERT_OK(csn_synth(&fs.base, "out.waste", &o, &err), &err);
        assert_same(&fs, &want);
        memory_fs_done(&fs);
    }
    memory_fs_done(&want);
}

/* What lies where we would write, and no conversion of ours left. */
static void what_is_not_ours_is_left_alone(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    load(&fs, NULL);
    memory_fs_put(&fs, "out.waste.part/mine", "mine", 4);
    ASSERT_STATUS(convert(&fs.base, &err), CAISSON_E_EXISTS);
    assert_string_equal(err.file, "out.waste.part");
    assert_non_null(memory_fs_find(&fs, "out.waste.part/mine"));
    assert_null(memory_fs_find(&fs, "out.waste.part/trunk.bin"));
    assert_null(memory_fs_find(&fs, "out.waste.part.lock"));
    memory_fs_done(&fs);
}

static void each_failed_allocation_is_told(void **state) {
    (void)state;
    memory_fs want;
    make_reference(&want);
    for (int64_t i = 0;; i += 1 + i / 4) {
        memory_fs fs;
        caisson_error err = {0};
        load(&fs, &want);
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
        assert_true(is_old(&fs, &want) || is_new(&fs, &want));
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
        cmocka_unit_test(a_killed_synthesis_is_begun_anew),
        cmocka_unit_test(what_is_not_ours_is_left_alone),
        cmocka_unit_test(each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
