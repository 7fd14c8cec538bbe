/* SPDX-License-Identifier: Apache-2.0 */
/* What a synthesis tells of itself; what it makes is read by tests/python/test_synth.py. */
#include "../test.h"

#include "convert/synth.h"
#include "support/memory_fs.h"

static bool is_synth(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    int *n_told = ctx;
    assert_string_equal(stage, "synth");
    assert_true(done <= total);
    (*n_told)++;
    return true;
}

static void progress_has_the_name_of_the_command(void **state) {
    static const char *const targets[] = {"out.waste", "out.cmf"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        int n_told = 0;
        caisson_error err = {0};
        const csn_progress progress = {is_synth, &n_told};
        csn_synth_options o = {.family = CSN_STR("kimi_linear"),
                               .size = CSN_STR("small"),
                               .n_threads = 1,
                               .progress = &progress};
        memory_fs_init(&fs);
        ASSERT_OK(csn_synth(&fs.base, targets[i], &o, &err), &err);
        assert_true(n_told > 10);
        memory_fs_done(&fs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_has_the_name_of_the_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
