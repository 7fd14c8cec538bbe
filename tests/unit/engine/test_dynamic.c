/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next under hysteresis (facts 10.4), and fitting what describes a skill's prompts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/dynamic.h"
#include "engine/fit.h"

static void hysteresis_keeps_who_runs(void **state) {
    (void)state;
    static const struct {
        double errors[2];
        int64_t active, want;
    } cases[] = {
        {{0.63, 0.70}, -1, -1}, /* nobody is below e_on = 0.62 */
        {{0.62, 0.70}, -1, -1}, {{0.61, 0.70}, -1, 0},
        {{0.61, 0.60}, -1, 1},  {{0.70, 0.90}, 0, 0}, /* between e_on and e_off: who runs goes on */
        {{0.74, 0.90}, 0, 0},   {{0.75, 0.90}, 0, -1}, /* above e_off = 0.74 */
        {{0.75, 0.50}, 0, 1},                          /* ... and another is below e_on */
        {{0.60, 0.58}, 0, 0},                          /* not better by the margin of 0.03 */
        {{0.60, 0.56}, 0, 1},   {{0.70, 0.65}, 0, 1},  /* better, though not below e_on */
    };
    csn_dynamic_options o = csn_dynamic_defaults();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(csn_dynamic_choose(&o, cases[i].errors, 2, cases[i].active),
                         cases[i].want);
    }
    assert_int_equal(csn_dynamic_choose(&o, NULL, 0, -1), -1);
}

enum { HIDDEN = 6, N = 5 };

/* Points mean + a e_u + b e_v with |a| the larger spread: the fit must find the plane. */
static void a_fit_finds_the_plane_of_the_points(void **state) {
    (void)state;
    static const float a[N] = {-4, -2, 0, 2, 4};
    static const float b[N] = {1, -1, 0, -1, 1};
    float phi[N][HIDDEN];
    float mean[HIDDEN];
    float basis[CSN_FIT_MAX_RANK][HIDDEN];
    uint32_t rank;
    caisson_error err;
    for (int t = 0; t < N; t++) {
        for (int i = 0; i < HIDDEN; i++) {
            phi[t][i] = (float)(i + 1) + (i == 2 ? a[t] : 0.0f) + (i == 4 ? b[t] : 0.0f);
        }
    }
    assert_int_equal(csn_selection_fit(phi[0], N, HIDDEN, 2, mean, basis[0], &rank, &err),
                     CAISSON_OK);
    assert_int_equal(rank, 2);
    for (int i = 0; i < HIDDEN; i++) {
        assert_true(mean[i] == (float)(i + 1));
        assert_true(fabsf(fabsf(basis[0][i]) - (i == 2 ? 1.0f : 0.0f)) < 1e-6f);
        assert_true(fabsf(fabsf(basis[1][i]) - (i == 4 ? 1.0f : 0.0f)) < 1e-6f);
    }
    csn_cmf_selection s = {.rank = rank, .mean = mean, .basis = basis[0]};
    double raw;
    for (int t = 0; t < N; t++) {
        (void)csn_selection_error(&s, phi[t], HIDDEN, &raw);
        assert_true(raw < 1e-9);
    }
    phi[0][0] += 2;
    double e = csn_selection_error(&s, phi[0], HIDDEN, &raw);
    double norm = 0;
    for (int i = 0; i < HIDDEN; i++) {
        norm += (double)phi[0][i] * (double)phi[0][i];
    }
    assert_true(fabs(raw - 4) < 1e-6 && fabs(e - raw / norm) < 1e-12);
}

static void a_fit_has_no_more_directions_than_the_points(void **state) {
    (void)state;
    float phi[3][HIDDEN] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, {2, 2, 3, 4, 5, 6}};
    float mean[HIDDEN];
    float basis[CSN_FIT_MAX_RANK][HIDDEN];
    uint32_t rank;
    caisson_error err;
    static const struct {
        uint32_t n, asked, rank;
    } cases[] = {{1, 2, 0}, {2, 2, 0}, {3, 2, 1}, {3, 0, 0}, {3, 1000, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(csn_selection_fit(phi[0], cases[i].n, HIDDEN, cases[i].asked, mean,
                                           basis[0], &rank, &err),
                         CAISSON_OK);
        assert_int_equal(rank, cases[i].rank);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hysteresis_keeps_who_runs),
        cmocka_unit_test(a_fit_finds_the_plane_of_the_points),
        cmocka_unit_test(a_fit_has_no_more_directions_than_the_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
