/* SPDX-License-Identifier: Apache-2.0 */
/* The nearest entry: every kernel gives the indices of the plain C one, and those are right. */
#include "../test.h"

#include "base/cpu.h"
#include "base/random.h"
#include "kernels/types.h"

enum { MOST = 75 };

static void fill(csn_random *r, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        out[i] = csn_random_f32(r);
    }
}

static double distance(const float *a, const float *b) {
    double sum = 0;
    for (int d = 0; d < CSN_VQ_DIM; d++) {
        double e = (double)a[d] - (double)b[d];
        sum += e * e;
    }
    return sum;
}

static void no_entry_is_nearer(void **state) {
    (void)state;
    static float entry[CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM], x[MOST * CSN_VQ_DIM];
    static csn_vq_search s;
    uint8_t index[MOST];
    csn_random r = csn_random_seed(1, CSN_STR("nearest"), 0, 0);
    fill(&r, entry, CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM);
    fill(&r, x, MOST * CSN_VQ_DIM);
    csn_vq_search_init(&s, entry, CSN_VQ_MAX_ENTRIES);
    csn_vq_nearest_any_ref(&s, x, MOST, index);
    for (int i = 0; i < MOST; i++) {
        double got = distance(x + i * CSN_VQ_DIM, entry + index[i] * CSN_VQ_DIM);
        for (int c = 0; c < CSN_VQ_MAX_ENTRIES; c++) {
            assert_true(got <= distance(x + i * CSN_VQ_DIM, entry + c * CSN_VQ_DIM) + 1e-6);
        }
    }
}

static void every_kernel_finds_the_same(void **state) {
    (void)state;
    static float entry[CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM], x[MOST * CSN_VQ_DIM];
    static csn_vq_search s;
    csn_random r = csn_random_seed(2, CSN_STR("nearest"), 0, 0);
    csn_vq_nearest_fn best = csn_kernel_vq_nearest();
    for (uint32_t entries = 1; entries <= CSN_VQ_MAX_ENTRIES; entries += entries < 20 ? 1 : 59) {
        fill(&r, entry, entries * CSN_VQ_DIM);
        csn_vq_search_init(&s, entry, entries);
        for (uint32_t n = 0; n <= MOST; n += n < 20 ? 1 : 11) {
            uint8_t want[MOST + 1], got[MOST + 1];
            fill(&r, x, n * CSN_VQ_DIM);
            memset(want, 0xa5, sizeof(want));
            memset(got, 0xa5, sizeof(got));
            csn_vq_nearest_any_ref(&s, x, n, want);
            best(&s, x, n, got);
            assert_memory_equal(want, got, sizeof(want));
        }
    }
}

static void of_equal_ones_the_first_wins(void **state) {
    (void)state;
    static float entry[CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM], x[MOST * CSN_VQ_DIM];
    static csn_vq_search s;
    uint8_t index[MOST];
    csn_random r = csn_random_seed(3, CSN_STR("nearest"), 0, 0);
    fill(&r, entry, 4 * CSN_VQ_DIM);
    for (uint32_t c = 4; c < 256; c++) {
        memcpy(entry + c * CSN_VQ_DIM, entry + c % 4 * CSN_VQ_DIM, CSN_VQ_DIM * sizeof(float));
    }
    fill(&r, x, MOST * CSN_VQ_DIM);
    csn_vq_search_init(&s, entry, 256);
    csn_kernel_vq_nearest()(&s, x, MOST, index);
    for (int i = 0; i < MOST; i++) {
        assert_true(index[i] < 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_entry_is_nearer),
        cmocka_unit_test(every_kernel_finds_the_same),
        cmocka_unit_test(of_equal_ones_the_first_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
