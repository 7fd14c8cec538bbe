/* SPDX-License-Identifier: Apache-2.0 */
/* Our sine, cosine, power against libm in double. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "model/math.h"

static double ulps(float got, double want) {
    float f = (float)want;
    double ulp = (double)(nextafterf(fabsf(f), INFINITY) - fabsf(f));
    return fabs((double)got - want) / ulp;
}

static void sincos_within_half_an_ulp(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        float a = (float)i * 0.37f * (i % 7 == 0 ? 7.0f : 0.01f);
        float s;
        float c;
        csn_sincos(i % 2 == 0 ? a : -a, &s, &c);
        double x = (double)(i % 2 == 0 ? a : -a);
        worst = fmax(worst, fmax(ulps(s, sin(x)), ulps(c, cos(x))));
    }
    assert_true(worst <= 0.501);
}

static void sincos_outside_its_range(void **state) {
    (void)state;
    float s = 1;
    float c = 1;
    csn_sincos(INFINITY, &s, &c);
    assert_true(s == 0.0f && c == 0.0f);
    csn_sincos(NAN, &s, &c);
    assert_true(s == 0.0f && c == 0.0f);
}

static void pow_agrees_with_libm(void **state) {
    (void)state;
    const double bases[] = {10000.0, 1e6, 5e5, 1.5, 0.3, 1e-9};
    for (int b = 0; b < 6; b++) {
        for (int i = -64; i <= 64; i++) {
            double want = pow(bases[b], i / 64.0);
            assert_true(fabs(csn_f64_pow(bases[b], i / 64.0) - want) <= 0x1p-48 * want);
        }
    }
}

static void exp_log_agree_with_libm(void **state) {
    (void)state;
    for (int i = 1; i < 20000; i++) {
        double x = i * 0.0371;
        assert_true(fabs(csn_f64_log(x) - log(x)) <= 1e-15 * (1 + fabs(log(x))));
        double e = (x - 370) / 1.1;
        assert_true(fabs(csn_f64_exp(e) - exp(e)) <= 0x1p-50 * exp(e));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sincos_within_half_an_ulp),
        cmocka_unit_test(sincos_outside_its_range),
        cmocka_unit_test(pow_agrees_with_libm),
        cmocka_unit_test(exp_log_agree_with_libm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
