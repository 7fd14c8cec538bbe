/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a payload that are not finite: found wherever a decoder would meet one. */
#include "unit/test.h"

#include <math.h>

#include "base/cpu.h"
#include "quant/numbers.h"
#include "quant/quant_internal.h"
#include "support/golden_codec.h"

static bool find(const csn_matrix *m, uint64_t *ret_at) {
    csn_numbers s;
    return csn_numbers_find_any(m, m->data, 0, m->nbytes, &s, ret_at);
}

static bool decodes_to_finite(const csn_matrix *m) {
    uint64_t n = m->rows * m->cols;
    float *x = malloc((n + 1) * sizeof(float));
    assert_non_null(x);
    m->dtype->decode(m, 0, n, x);
    uint64_t i = 0;
    while (i < n && isfinite(x[i])) {
        i++;
    }
    free(x);
    return i == n;
}

static bool passes_check(const csn_dtype *d, const csn_shape *s, const uint8_t *p, uint64_t n) {
    caisson_error err;
    uint64_t from = d->check_from != NULL ? d->check_from(s, n) : 0;
    return d->check == NULL || d->check(s, p + from, n, &err) == CAISSON_OK;
}

/* Each byte of a payload of the reference in turn with the bits that exponents are made of.
 * Returns how many of them made a decoder meet what is not finite. */
static unsigned poke(const csn_dtype *d, const golden_case *c) {
    static const uint8_t bits[] = {0x7c, 0x7f, 0xfe, 0xff, 0x80};
    uint8_t *p = malloc(c->n_encoded + 1);
    assert_non_null(p);
    memcpy(p, c->encoded, c->n_encoded);
    csn_matrix m = csn_matrix_make(d, &c->shape, p, c->n_encoded);
    uint64_t found;
    unsigned n_odd = 0;
    assert_true(decodes_to_finite(&m));
    assert_false(find(&m, &found));
    for (uint64_t at = 0; at < c->n_encoded; at++) {
        for (size_t k = 0; k < sizeof(bits); k++) {
            p[at] = bits[k];
            if (!passes_check(d, &c->shape, p, c->n_encoded)) {
                continue;
            }
            if (!decodes_to_finite(&m)) {
                n_odd++;
                assert_true(find(&m, &found));
            }
            if (find(&m, &found)) { /* where it was poked, and in any piece that holds it */
                uint64_t again;
                csn_numbers s;
                assert_true(found <= at && at < found + 4);
                uint64_t cut = at / 4 * 4;
                bool before = csn_numbers_find_any(&m, p, 0, cut, &s, &again);
                assert_true(before ||
                            csn_numbers_find_any(&m, p + cut, cut, c->n_encoded, &s, &again));
                assert_int_equal(again, found);
            }
        }
        p[at] = c->encoded[at];
    }
    free(p);
    return n_odd;
}

static void what_a_decoder_meets_is_found(void **state) {
    (void)state;
    for (unsigned id = 0; id < 17; id++) {
        const csn_dtype *d = csn_dtype_by_cmf(id);
        char path[512];
        if (d->decode == NULL) {
            assert_null(d->numbers);
            continue;
        }
        snprintf(path, sizeof(path), CSN_SOURCE_DIR "/tests/golden/cmf/codec/%s.safetensors",
                 d->name);
        golden_file g = golden_open(path);
        unsigned n_odd = 0;
        for (size_t i = 0; i < g.n_cases; i++) {
            csn_matrix m =
                csn_matrix_make(d, &g.cases[i].shape, g.cases[i].encoded, g.cases[i].n_encoded);
            if (g.cases[i].n_encoded < 1500 && decodes_to_finite(&m)) {
                n_odd += poke(d, &g.cases[i]);
            }
        }
        print_message("%s: %u\n", d->name, n_odd);
        assert_true(n_odd > 0);
        golden_close(&g);
    }
}

/* Every place of a long run, whatever lies in lanes and what behind them; cut in two anywhere. */
static void look_for_every_place(void) {
    static const csn_numbers kinds[] = {
        {CSN_NUMBER_F16, false, 3, 100, 2, 0}, {CSN_NUMBER_F16, true, 0, 40, 9, 0},
        {CSN_NUMBER_F16, false, 2, 60, 18, 0}, {CSN_NUMBER_BF16, true, 0, 100, 2, 0},
        {CSN_NUMBER_F32, true, 0, 70, 4, 0},   {CSN_NUMBER_Q4TP, false, 8, 30, 4, 1},
    };
    static const uint16_t odd[] = {0x7c00, 0xfe00, 0x7e01};
    static const uint16_t odd_bfloat[] = {0x7f80, 0xff80, 0x7fc1};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const csn_numbers *s = &kinds[i];
        const bool is_half = s->kind == CSN_NUMBER_F16 || s->kind == CSN_NUMBER_Q4TP;
        uint64_t nbytes = s->first + s->n * s->stride + 5;
        uint8_t *p = malloc(nbytes);
        uint64_t at = 0;
        assert_non_null(p);
        memset(p, is_half ? 0x3b : 0x3f, nbytes); /* no number of the spans' own bytes is odd */
        assert_false(csn_numbers_find(s, p, 0, nbytes, &at));
        for (uint64_t k = 0; k < s->n; k++) {
            uint64_t place = s->first + k * s->stride;
            uint8_t *number = p + place + (s->kind == CSN_NUMBER_F32 ? 2 : 0);
            uint8_t old[2] = {number[0], number[1]};
            csn_store16(number, is_half ? odd[k % 3] : odd_bfloat[k % 3]);
            assert_true(csn_numbers_find(s, p, 0, nbytes, &at));
            assert_int_equal(at, place);
            for (uint64_t cut = 0; cut <= nbytes; cut += 4) {
                uint64_t in_first = UINT64_MAX;
                uint64_t in_second = UINT64_MAX;
                (void)csn_numbers_find(s, p, 0, cut, &in_first);
                (void)csn_numbers_find(s, p + cut, cut, nbytes, &in_second);
                assert_true((in_first == place) != (in_second == place));
            }
            memcpy(number, old, 2);
        }
        memset(p, 0xff, s->first); /* what is not of the span may be anything */
        memset(p + nbytes - 5, 0xff, 5);
        assert_false(csn_numbers_find(s, p, 0, nbytes, &at));
        free(p);
    }
}

static void every_place_of_a_run(void **state) {
    (void)state;
    look_for_every_place();
    csn_cpu_mask(0); /* the baseline's lanes */
    look_for_every_place();
    csn_cpu_mask(UINT32_MAX);
}

/* Facts 4.11: a rung is 2^lo times 2^step to its power, in f32; 4.12: the first of q2tp is 0. */
static void ladders_reach_to_the_last_finite_rung(void **state) {
    (void)state;
    static const struct {
        float lo, step;
        bool q4tp, q2tp;
    } list[] = {
        {-14, 0.5f, true, true},     {127, 0, true, true},         {128, 0, false, false},
        {66, 1.984375f, true, true}, {68, 1.953125f, false, true}, {-200, 40, true, true},
        {100, -3, true, true},       {INFINITY, -1, false, false}, {1, -INFINITY, true, true},
        {1, INFINITY, false, false}, {-INFINITY, 1, true, true},   {1, NAN, false, false},
        {-NAN, 0, false, false},
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        uint8_t p[4];
        uint64_t at;
        csn_store16(p, csn_half_from_f32(list[i].lo));
        csn_store16(p + 2, csn_half_from_f32(list[i].step));
        csn_numbers s = {CSN_NUMBER_Q4TP, false, 0, 1, 4, 1};
        assert_int_equal(!csn_numbers_find(&s, p, 0, 4, &at), list[i].q4tp);
        s.kind = CSN_NUMBER_Q2TP;
        assert_int_equal(!csn_numbers_find(&s, p, 0, 4, &at), list[i].q2tp);
    }
}

static void the_fault_tells_value_row_and_place(void **state) {
    (void)state;
    const uint8_t minus_infinity[4] = {0x00, 0xfc};
    const uint8_t ladder[4] = {0x00, 0x58, 0x00, 0x40};
    caisson_error err;
    csn_numbers s = {CSN_NUMBER_F16, false, 64, 12, 2, 4};
    ASSERT_STATUS(csn_numbers_fail(&s, 64 + 2 * 9, minus_infinity, 1000, &err), CAISSON_E_PARSE);
    assert_string_equal(err.what, "a scale is not a finite number");
    assert_string_equal(err.got, "-inf in row 2");
    assert_true(err.has_offset && err.offset == 1000 && err.n_bytes == 2);
    s = (csn_numbers){CSN_NUMBER_F16, true, 4, 12, 6, 0};
    ASSERT_STATUS(csn_numbers_fail(&s, 10, minus_infinity, 7, &err), CAISSON_E_PARSE);
    assert_string_equal(err.what, "a value is not a finite number");
    assert_string_equal(err.got, "-inf");
    s = (csn_numbers){CSN_NUMBER_Q4TP, false, 8, 12, 4, 1};
    ASSERT_STATUS(csn_numbers_fail(&s, 12, ladder, 7, &err), CAISSON_E_PARSE);
    assert_string_equal(err.got, "2^128.0 in steps of 2^2.0 in row 1");
    assert_int_equal(err.n_bytes, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_decoder_meets_is_found),
        cmocka_unit_test(every_place_of_a_run),
        cmocka_unit_test(ladders_reach_to_the_last_finite_rung),
        cmocka_unit_test(the_fault_tells_value_row_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
