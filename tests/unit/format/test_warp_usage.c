/* SPDX-License-Identifier: Apache-2.0 */
/* usage.waste, against the one that the existing engine wrote (tests/golden/warp). */
#include "unit/test.h"

#include "base/alloc.h"
#include "base/io.h"
#include "base/le.h"
#include "format/warp/usage.h"

enum { N_ENTRIES = 7, CLOCK = 43 };

static void read_golden(csn_buf *ret) {
    caisson_error err;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(),
                              CSN_SOURCE_DIR "/tests/golden/warp/vq3r-base.usage.waste", 1 << 16,
                              ret, &err),
              &err);
}

static void what_is_read_is_written(void **state) {
    (void)state;
    csn_buf golden = CSN_BUF_INIT(1 << 16);
    csn_buf ours = CSN_BUF_INIT(1 << 16);
    caisson_error err;
    csn_warp_use *use;
    uint32_t n;
    read_golden(&golden);
    ASSERT_OK(csn_warp_usage_parse(csn_buf_view(&golden), &use, &n, &err), &err);
    assert_int_equal(n, N_ENTRIES);
    for (uint32_t i = 0; i < n; i++) {
        assert_in_range(use[i].layer, 1, 3);
        assert_true(use[i].expert < 8 && use[i].last <= CLOCK);
        assert_true(use[i].hits > 0);
    }
    ASSERT_OK(csn_warp_usage_write(use, n, CLOCK, &ours, &err), &err);
    assert_int_equal(ours.len, golden.len);
    assert_memory_equal(ours.ptr, golden.ptr, golden.len);
    csn_free(use);
    csn_buf_free(&ours);
    csn_buf_free(&golden);
}

static void damaged_ones_are_refused(void **state) {
    (void)state;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    caisson_error err;
    csn_warp_use *use = NULL;
    uint32_t n = 0;
    read_golden(&b);
    for (size_t len = 0; len < b.len; len++) {
        if (len < 16 || len % 16 != 0) {
            assert_int_equal(csn_warp_usage_parse(csn_str_make(b.ptr, len), &use, &n, &err),
                             CAISSON_E_BOUNDS);
        }
    }
    b.ptr[4] = 2;
    assert_int_equal(csn_warp_usage_parse(csn_buf_view(&b), &use, &n, &err), CAISSON_E_VERSION);
    b.ptr[0] = 'X';
    assert_int_equal(csn_warp_usage_parse(csn_buf_view(&b), &use, &n, &err), CAISSON_E_MAGIC);
    assert_null(use);
    csn_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_written),
        cmocka_unit_test(damaged_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
