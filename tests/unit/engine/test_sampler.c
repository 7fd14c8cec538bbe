/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler chain: each filter by what can and cannot come out, draws by their frequencies. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "engine/sampler.h"

enum { N = 8, DRAWS = 20000 };

static const float logits[N] = {0.0f, 2.0f, 1.0f, -1.0f, 2.5f, -4.0f, 0.5f, 2.5f};

static csn_sampler_options plain(void) { /* every filter off */
    csn_sampler_options o = csn_sampler_defaults();
    o.temperature = 1.0f;
    o.top_k = 0;
    o.top_p = 1.0f;
    o.min_p = 0.0f;
    o.seed = 7;
    return o;
}

static csn_sampler *make(const csn_sampler_options *o, uint32_t n) {
    csn_sampler *s = NULL;
    caisson_error err = {0};
    assert_int_equal(csn_sampler_new(o, n, &s, &err), CAISSON_OK);
    return s;
}

static int32_t pick(csn_sampler *s, const float *z) {
    int32_t id = -1;
    caisson_error err = {0};
    assert_int_equal(csn_sampler_pick(s, z, &id, &err), CAISSON_OK);
    return id;
}

/* Frequencies of DRAWS picks. */
static void frequencies(const csn_sampler_options *o, double f[N]) {
    csn_sampler *s = make(o, N);
    memset(f, 0, N * sizeof(*f));
    for (int i = 0; i < DRAWS; i++) {
        f[pick(s, logits)] += 1.0 / DRAWS;
    }
    csn_sampler_free(s);
}

static void defaults_are_those_of_llama_cpp(void **state) {
    (void)state;
    csn_sampler_options o = csn_sampler_defaults();
    assert_true(o.temperature == 0.8f && o.top_k == 40 && o.top_p == 0.95f && o.min_p == 0.05f);
    assert_true(o.typical_p == 1.0f && o.repeat_penalty == 1.0f && o.repeat_last_n == 64);
    assert_true(o.presence_penalty == 0.0f && o.frequency_penalty == 0.0f);
}

static void greedy_takes_the_lowest_id_on_a_tie(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.temperature = 0.0f;
    csn_sampler *s = make(&o, N);
    assert_int_equal(pick(s, logits), 4);
    csn_sampler_free(s);
}

static void draws_follow_the_softmax(void **state) {
    (void)state;
    for (float t = 0.5f; t <= 2.0f; t *= 2.0f) {
        csn_sampler_options o = plain();
        o.temperature = t;
        double f[N];
        frequencies(&o, f);
        double sum = 0;
        for (int i = 0; i < N; i++) {
            sum += exp((double)(logits[i] / t));
        }
        for (int i = 0; i < N; i++) {
            double p = exp((double)(logits[i] / t)) / sum;
            assert_true(fabs(f[i] - p) < 4 * sqrt(p * (1 - p) / DRAWS) + 1e-3);
        }
    }
}

static void top_k_keeps_k(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.top_k = 3;
    double f[N];
    frequencies(&o, f);
    assert_true(f[1] > 0 && f[4] > 0 && f[7] > 0);
    assert_true(f[1] + f[4] + f[7] > 0.9999);
}

static void top_k_of_a_large_vocabulary(void **state) {
    (void)state;
    enum { LARGE = 5000 };
    static float z[LARGE];
    for (int i = 0; i < LARGE; i++) {
        z[i] = (float)((i * 7919) % LARGE) * 0.001f;
    }
    csn_sampler_options o = plain();
    o.top_k = 25;
    csn_sampler *s = make(&o, LARGE);
    for (int i = 0; i < 500; i++) {
        assert_true(z[pick(s, z)] >= (LARGE - 25) * 0.001f - 1e-5f);
    }
    csn_sampler_free(s);
}

static void top_p_keeps_the_smallest_set_above_p(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.top_p = 0.6f; /* 0.32 + 0.32 is the first sum at or above 0.6 */
    double f[N];
    frequencies(&o, f);
    assert_true(f[4] + f[7] > 0.9999);
}

static void min_p_is_relative_to_the_best(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.min_p = 0.5f; /* ln 0.5 = -0.69: 2.5, 2.5 and 2.0 stay */
    double f[N];
    frequencies(&o, f);
    assert_true(f[1] > 0.1 && f[1] + f[4] + f[7] > 0.9999);
}

static void typical_p_drops_what_surprises_too_much_or_too_little(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.typical_p = 0.2f; /* entropy 1.57: id 1 (surprise 1.62) is the most typical, p = 0.2 */
    double f[N];
    frequencies(&o, f);
    assert_true(f[5] == 0 && f[3] == 0 && f[1] > 0.3);
}

static void penalties_push_repeated_tokens_down(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.temperature = 0.0f;
    o.repeat_penalty = 2.0f;
    csn_sampler *s = make(&o, N);
    csn_sampler_accept(s, 4);
    assert_int_equal(pick(s, logits), 7);
    csn_sampler_accept(s, 7);
    assert_int_equal(pick(s, logits), 1);
    csn_sampler_free(s);

    o.repeat_penalty = 1.0f;
    o.presence_penalty = 0.4f;
    o.frequency_penalty = 0.2f;
    s = make(&o, N);
    csn_sampler_accept(s, 4);
    csn_sampler_accept(s, 7); /* both 1.9 now */
    assert_int_equal(pick(s, logits), 1);
    csn_sampler_accept(s, 1);
    assert_int_equal(pick(s, logits), 4);
    csn_sampler_free(s);
}

static void penalties_forget_beyond_the_window(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.temperature = 0.0f;
    o.presence_penalty = 10.0f;
    o.repeat_last_n = 2;
    csn_sampler *s = make(&o, N);
    csn_sampler_accept(s, 4);
    csn_sampler_accept(s, 7);
    assert_int_equal(pick(s, logits), 1);
    csn_sampler_accept(s, 0); /* 4 leaves the window */
    assert_int_equal(pick(s, logits), 4);
    csn_sampler_free(s);
}

static void same_seed_same_draws(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    csn_sampler *a = make(&o, N);
    csn_sampler *b = make(&o, N);
    o.seed = 8;
    csn_sampler *c = make(&o, N);
    bool differs = false;
    for (int i = 0; i < 100; i++) {
        int32_t x = pick(a, logits);
        assert_int_equal(x, pick(b, logits));
        differs = differs || x != pick(c, logits);
    }
    assert_true(differs);
    csn_sampler_free(a);
    csn_sampler_free(b);
    csn_sampler_free(c);
}

/* ---- a whole vocabulary without top_k ---- */

enum { WIDE = 3000 };

struct ranked {
    int32_t id;
    double z;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    return x->z != y->z ? (x->z > y->z ? -1 : 1) : x->id - y->id;
}

/* The draw of SplitMix64 (Steele, Lea and Flood, 2014). */
static double next_uniform(uint64_t *x) {
    uint64_t z = (*x += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* The chain as it is written down, with everything sorted and libm in double. *ret_margin: how far
 * u or a border is from where the answer changes. */
static int32_t by_the_book(const csn_sampler_options *o, const float *z, double u,
                           double *ret_margin) {
    static struct ranked r[WIDE];
    uint32_t n = WIDE;
    double sum = 0, mass = 0;
    for (int32_t i = 0; i < WIDE; i++) {
        r[i] = (struct ranked){i, (double)z[i]};
    }
    qsort(r, WIDE, sizeof(*r), by_rank);
    *ret_margin = 1;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp(r[i].z - r[0].z);
    }
    for (uint32_t i = 0; o->top_p < 1.0f && i < n; i++) {
        mass += exp(r[i].z - r[0].z) / sum;
        *ret_margin = fmin(*ret_margin, fabs(mass - (double)o->top_p));
        if (mass >= (double)o->top_p) {
            n = i + 1;
        }
    }
    for (uint32_t i = 1; o->min_p > 0.0f && i < n; i++) {
        double over = r[i].z - r[0].z - log((double)o->min_p);
        *ret_margin = fmin(*ret_margin, fabs(over));
        n = over < 0 ? i : n;
    }
    double t = (double)o->temperature;
    sum = mass = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((r[i].z - r[0].z) / t);
    }
    for (uint32_t i = 0; i < n; i++) {
        mass += exp((r[i].z - r[0].z) / t) / sum;
        *ret_margin = fmin(*ret_margin, fabs(u - mass));
        if (u < mass) {
            return r[i].id;
        }
    }
    return r[n - 1].id;
}

/* Sorting what is looked at alone gives the tokens of sorting everything, on the plain C kernels
 * and on those of this CPU. */
static void draws_without_top_k_are_those_of_a_full_sort(void **state) {
    (void)state;
    static float z[WIDE];
    uint64_t noise = 99;
    const uint32_t flags = csn_cpu_flags();
    for (int flat = 0; flat < 2; flat++) {
        for (int i = 0; i < WIDE; i++) { /* few values: many ties */
            z[i] = (float)floor(next_uniform(&noise) * 200) * (flat ? 0.001f : 0.05f);
        }
        for (int k = 0; k < 4; k++) {
            csn_sampler_options o = plain();
            o.temperature = 0.8f;
            o.top_p = k == 1 || k == 3 ? 0.9f : 1.0f;
            o.min_p = k >= 2 ? 0.05f : 0.0f;
            csn_sampler *s = make(&o, WIDE);
            csn_sampler *ref = make(&o, WIDE);
            uint64_t x = o.seed;
            int n_close = 0;
            for (int i = 0; i < 60; i++) {
                double margin;
                int32_t want = by_the_book(&o, z, next_uniform(&x), &margin);
                int32_t got = pick(s, z);
                if (margin > 1e-6) {
                    assert_int_equal(got, want);
                } else {
                    n_close++;
                }
                csn_cpu_mask(0);
                assert_int_equal(pick(ref, z), got);
                csn_cpu_mask(flags);
            }
            assert_true(n_close < 6);
            csn_sampler_free(s);
            csn_sampler_free(ref);
        }
    }
}

static void logits_that_are_no_numbers_are_an_error(void **state) {
    (void)state;
    float z[N];
    for (int i = 0; i < N; i++) {
        z[i] = NAN;
    }
    csn_sampler_options o = plain();
    csn_sampler *s = make(&o, N);
    int32_t id;
    caisson_error err = {0};
    assert_int_equal(csn_sampler_pick(s, z, &id, &err), CAISSON_E_ARG);
    z[3] = -5.0f;
    assert_int_equal(pick(s, z), 3);
    csn_sampler_free(s);
}

/* A logit over the temperature may pass what f32 holds, and a broken model may give inf: neither
 * may turn the draw into one of a worse token. */
static void what_overflows_is_still_the_best(void **state) {
    (void)state;
    const float z[4] = {20.0f, -3.0f, 30.0f, 29.0f};
    const float infinite[4] = {20.0f, INFINITY, -INFINITY, 29.0f};
    csn_sampler_options o = plain();
    o.temperature = 1e-38f;
    o.typical_p = 0.9f;
    o.min_p = 0.01f;
    csn_sampler *s = make(&o, 4);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pick(s, z), 2);
    }
    csn_sampler_free(s);
    o.temperature = 1.0f;
    s = make(&o, 4);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pick(s, infinite), 1);
    }
    csn_sampler_free(s);
}

static void options_outside_their_range_are_refused(void **state) {
    (void)state;
    csn_sampler_options o = plain();
    o.top_p = 1.5f;
    csn_sampler *s;
    caisson_error err = {0};
    assert_int_equal(csn_sampler_new(&o, N, &s, &err), CAISSON_E_ARG);
    assert_string_equal(err.tensor, "top_p");
    o = plain();
    o.repeat_penalty = NAN;
    assert_int_equal(csn_sampler_new(&o, N, &s, &err), CAISSON_E_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_llama_cpp),
        cmocka_unit_test(greedy_takes_the_lowest_id_on_a_tie),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_keeps_k),
        cmocka_unit_test(top_k_of_a_large_vocabulary),
        cmocka_unit_test(top_p_keeps_the_smallest_set_above_p),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(typical_p_drops_what_surprises_too_much_or_too_little),
        cmocka_unit_test(penalties_push_repeated_tokens_down),
        cmocka_unit_test(penalties_forget_beyond_the_window),
        cmocka_unit_test(same_seed_same_draws),
        cmocka_unit_test(draws_without_top_k_are_those_of_a_full_sort),
        cmocka_unit_test(logits_that_are_no_numbers_are_an_error),
        cmocka_unit_test(what_overflows_is_still_the_best),
        cmocka_unit_test(options_outside_their_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
