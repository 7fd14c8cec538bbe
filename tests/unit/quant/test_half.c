/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 conversions; expected bits are the examples of facts 4.1. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "quant/dtype.h"
#include "quant/half.h"

static void f16_examples(void **state) {
    (void)state;
    assert_int_equal(csn_f32_to_f16(0.1f), 0x2E66);
    assert_int_equal(csn_f32_to_f16(1.0f / 3.0f), 0x3555);
    assert_int_equal(csn_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(csn_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(csn_f32_to_f16(1.00146484375f), 0x3C02); /* tie to even */
    assert_int_equal(csn_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(csn_f32_to_f16(NAN) & 0x7FFF, 0x7E00);
}

static void f16_subnormal_ties_go_up(void **state) {
    (void)state;
    assert_int_equal(csn_f32_to_f16(2.5f * 0x1p-24f), 3);
    assert_int_equal(csn_f32_to_f16(0x1p-25f), 1);
    assert_int_equal(csn_f32_to_f16(0x1.fffffep-26f), 0);
    assert_int_equal(csn_f32_to_f16(-0x1p-24f), 0x8001);
}

static void f16_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7C00) != 0x7C00) {
            assert_int_equal(csn_f32_to_f16(csn_f16_to_f32((uint16_t)h)), h);
        }
    }
    assert_true(isinf(csn_f16_to_f32(0x7C00)));
    assert_true(isnan(csn_f16_to_f32(0x7C01)));
}

static void bf16_examples(void **state) {
    (void)state;
    assert_int_equal(csn_bfloat_from_f32(1.0f), 0x3F80);
    assert_int_equal(csn_bfloat_from_f32(0x1.01p0f), 0x3F80); /* tie to even */
    assert_int_equal(csn_bfloat_from_f32(0x1.03p0f), 0x3F82);
    assert_true(isnan(csn_bfloat_to_f32(csn_bfloat_from_f32(NAN))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_examples),
        cmocka_unit_test(f16_subnormal_ties_go_up),
        cmocka_unit_test(f16_round_trips),
        cmocka_unit_test(bf16_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
