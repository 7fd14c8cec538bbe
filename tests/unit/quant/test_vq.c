/* SPDX-License-Identifier: Apache-2.0 */
/* Layout and weights of vector-quantised matrices: the worked examples of warp facts 5 and 6, and
 * values that numpy gives (tests/oracle/vq_products.py). */
#include "../test.h"

#include "support/vq_golden.h"

static const csn_vq_books vq3r = {.stages = 3, .entries = 256};
static const csn_vq_books vq4p = {.stages = 4, .entries = 64, .is_packed = true};

static uint64_t nbytes(const csn_vq_books *b, uint32_t rows, uint32_t cols, uint32_t block) {
    uint64_t n = 0;
    assert_true(csn_vq_index_nbytes(b, rows, cols, block, &n));
    return n;
}

static void sizes_of_the_facts(void **state) {
    (void)state;
    assert_int_equal(nbytes(&vq3r, 72, 136, 64), 6528);
    assert_int_equal(nbytes(&vq3r, 3072, 3584, 64), 4128768);
    assert_int_equal(nbytes(&vq3r, 1024, 2304, 64), 884736);
    assert_int_equal(nbytes(&vq4p, 1024, 2304, 64), 884736);
    assert_int_equal(nbytes(&vq3r, 72, 136, 0), 72 * 17 * 3);
    uint64_t n = 7;
    assert_false(csn_vq_index_nbytes(&vq3r, 72, 132, 64, &n));
    assert_int_equal(n, 7);
    assert_int_equal(nbytes(&vq3r, UINT32_MAX, UINT32_MAX / 8 * 8, UINT32_MAX) / UINT32_MAX,
                     UINT64_C(3) * (UINT32_MAX / 8));
}

static void addresses_of_the_facts(void **state) {
    (void)state;
    csn_vq_matrix m = {.books = &vq3r, .rows = 72, .cols = 136, .block = 64};
    const uint8_t bytes[6528] = {0};
    m.index = bytes;
    assert_int_equal(csn_vq_vector(&m, 70, 5) - bytes, 4242);
    m.block = 0;
    assert_int_equal(csn_vq_vector(&m, 70, 5) - bytes, (70 * 17 + 5) * 3);
}

static void packed_indices_of_the_facts(void **state) {
    (void)state;
    const uint8_t bytes[3] = {0x85, 0xFA, 0x47};
    static const uint32_t want[4] = {5, 42, 63, 17};
    for (uint32_t s = 0; s < 4; s++) {
        assert_int_equal(csn_vq_index(&vq4p, bytes, s), want[s]);
    }
}

static void decodes_to_the_bit(void **state) {
    vq_golden g;
    vq_golden_open(*state, &g);
    g.m.books = &g.books;
    float *row = malloc(g.m.cols * sizeof(float));
    assert_non_null(row);
    for (uint32_t r = 0; r < g.m.rows; r++) {
        csn_vq_decode_row(&g.m, r, row);
        assert_memory_equal(row, g.weights + (size_t)r * g.m.cols, g.m.cols * sizeof(float));
    }
    free(row);
    vq_golden_close(&g);
}

static void an_entry_that_does_not_exist_is_zero(void **state) {
    (void)state;
    static const float entry[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const csn_vq_books b = {.stages = 1, .entries = 2, .entry = entry};
    const uint8_t index[2] = {1, 2};
    const uint8_t one[4] = {0, 0x3C, 0, 0x3C};
    const csn_vq_matrix m = {.books = &b, .index = index, .scale = one, .rows = 2, .cols = 8};
    float row[8];
    csn_vq_decode_row(&m, 0, row);
    assert_true(row[0] == 9 && row[7] == 16);
    csn_vq_decode_row(&m, 1, row);
    assert_true(row[0] == 0 && row[7] == 0);
}

#define DECODES(name)                                                                              \
    { name " decodes to the bit", decodes_to_the_bit, NULL, NULL, (void *)(uintptr_t)name }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_the_facts),
        cmocka_unit_test(addresses_of_the_facts),
        cmocka_unit_test(packed_indices_of_the_facts),
        DECODES("vq3r"),
        DECODES("vq2r"),
        DECODES("vq4p"),
        DECODES("vq6_rows"),
        cmocka_unit_test(an_entry_that_does_not_exist_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
