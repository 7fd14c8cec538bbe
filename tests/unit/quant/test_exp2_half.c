/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder's exp2 and log2 against the C library that the format's reference runs on. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "quant/exp2_half.h"
#include "quant/half.h"

static void exp2_equals_glibc_for_every_f16(void **state) {
    (void)state;
#if !defined(__GLIBC__) || !defined(__x86_64__)
    skip(); /* other C libraries round the last bit differently: that is why the table exists */
#endif
    for (uint32_t h = 0; h < 65536; h++) {
        float want = exp2f(csn_half_to_f32((uint16_t)h));
        float got = csn_exp2_half((uint16_t)h);
        if (csn_f32_bits(want) != csn_f32_bits(got) && want == want) {
            fail_msg("exp2 of f16 %04x: %a, want %a", h, (double)got, (double)want);
        }
        assert_true((want != want) == (got != got));
    }
}

static void log2_equals_glibc_for_every_normal_f16(void **state) {
    (void)state;
#if !defined(__GLIBC__) || !defined(__x86_64__)
    skip();
#endif
    for (uint32_t h = 0x0400; h < 0x7c00; h++) {
        float want = log2f(csn_half_to_f32((uint16_t)h));
        float got = csn_log2_half((uint16_t)h);
        if (csn_f32_bits(want) != csn_f32_bits(got)) {
            fail_msg("log2 of f16 %04x: %a, want %a", h, (double)got, (double)want);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_equals_glibc_for_every_f16),
        cmocka_unit_test(log2_equals_glibc_for_every_normal_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
