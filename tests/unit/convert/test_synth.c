/* SPDX-License-Identifier: Apache-2.0 */
/* What a synthesis tells of itself; what it makes is read by tests/python/test_synth.py. */
#include "../test.h"

#include "convert/synth.h"
#include "support/memory_fs.h"

static const char *const targets[] = {"out.waste", "out.cmf"};

typedef struct watcher {
    int n_told, n_most; /* it stops at that many; 0: never */
} watcher;

static bool watch(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    watcher *w = ctx;
    assert_string_equal(stage, "synth");
    assert_true(done <= total);
    return ++w->n_told != w->n_most;
}

static caisson_status synth(memory_fs *fs, const char *target, watcher *w, caisson_error *err) {
    const csn_progress progress = {watch, w};
    const csn_synth_options o = {.family = CSN_STR("kimi_linear"),
                                 .size = CSN_STR("small"),
                                 .n_threads = 1,
                                 .progress = &progress};
    return csn_synth(&fs->base, target, &o, err);
}

static void progress_has_the_name_of_the_command(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        watcher w = {0};
        caisson_error err = {0};
        memory_fs_init(&fs);
        ASSERT_OK(synth(&fs, targets[i], &w, &err), &err);
        assert_true(w.n_told > 10);
        memory_fs_done(&fs);
    }
}

/* The target appears whole or not at all. */
static void nothing_is_left_when_it_is_stopped(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int n_most = 1; n_most < 60; n_most += 19) {
            memory_fs fs;
            watcher w = {.n_most = n_most};
            caisson_error err = {0};
            memory_fs_init(&fs);
            ASSERT_STATUS(synth(&fs, targets[i], &w, &err), CAISSON_E_CANCELLED);
            for (int k = 0; k < MEMORY_FS_MAX_FILES; k++) {
                assert_null(fs.nodes[k].path);
            }
            memory_fs_done(&fs);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_has_the_name_of_the_command),
        cmocka_unit_test(nothing_is_left_when_it_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
