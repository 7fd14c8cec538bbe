/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** against the first numbers that its authors' code gives from the state 1, 2, 3, 4. */
#include "../test.h"

#include "base/random.h"

static void the_numbers_are_those_of_the_published_generator(void **state) {
    (void)state;
    static const uint64_t want[] = {UINT64_C(11520), 0, UINT64_C(1509978240),
                                    UINT64_C(1215971899390074240)};
    csn_random r = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_true(csn_random_u64(&r) == want[i]);
    }
}

static void streams_differ_by_each_part_of_their_name(void **state) {
    (void)state;
    csn_random r[] = {
        csn_random_seed(1, CSN_STR("a"), 2, 3), csn_random_seed(2, CSN_STR("a"), 2, 3),
        csn_random_seed(1, CSN_STR("b"), 2, 3), csn_random_seed(1, CSN_STR("a"), 3, 2),
        csn_random_seed(1, CSN_STR("a"), 2, 4), csn_random_seed(1, CSN_STR("a"), 2, 3)};
    uint64_t first[6];
    for (int i = 0; i < 6; i++) {
        first[i] = csn_random_u64(&r[i]);
    }
    for (int i = 1; i < 5; i++) {
        assert_true(first[i] != first[0]);
    }
    assert_true(first[5] == first[0]);
}

static void ranges_are_kept(void **state) {
    (void)state;
    csn_random r = csn_random_seed(7, CSN_STR("ranges"), 0, 0);
    uint32_t seen = 0;
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        uint32_t k = csn_random_below(&r, 7);
        float x = csn_random_f32(&r);
        assert_true(k < 7 && x >= -1.0f && x < 1.0f);
        seen |= 1u << k;
        sum += (double)x;
    }
    assert_int_equal(seen, 0x7f);
    assert_true(sum > -200 && sum < 200);
}

static void bytes_are_those_of_the_numbers(void **state) {
    (void)state;
    uint8_t bytes[19] = {0};
    csn_random a = {{1, 2, 3, 4}}, b = a;
    csn_random_bytes(&a, bytes, 19);
    assert_int_equal(bytes[0] | bytes[1] << 8, 11520);
    assert_int_equal(bytes[16] | bytes[17] << 8 | bytes[18] << 16, 1509978240 & 0xffffff);
    for (int i = 0; i < 3; i++) {
        (void)csn_random_u64(&b);
    }
    assert_true(csn_random_u64(&a) == csn_random_u64(&b));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_are_those_of_the_published_generator),
        cmocka_unit_test(streams_differ_by_each_part_of_their_name),
        cmocka_unit_test(ranges_are_kept),
        cmocka_unit_test(bytes_are_those_of_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
