/* SPDX-License-Identifier: Apache-2.0 */
/* vbit: widths by water-filling (CMF 3.2), given widths, where rows lie. The payloads themselves
 * are compared with the reference's in test_codec_golden.c. */
#include "unit/test.h"

#include <math.h>

#include "base/alloc.h"
#include "quant/quant_internal.h"
#include "quant/vbit.h"

enum { ROWS = 37, COLS = 96 };

static float noise(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return (float)(*x >> 8) / 8388608.0f - 1.0f;
}

/* Rows whose amplitudes are powers of two around 1. */
static void fill(float *x) {
    uint32_t seed = 3;
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = ldexpf(noise(&seed), i / COLS % 3 - 1);
    }
}

static double mean(const uint8_t *bits, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += bits[i];
    }
    return sum / n;
}

static void widths_are_the_nearest_and_ties_go_down(void **state) {
    (void)state;
    static const float level[] = {0, 0.25f, 0.75f, -0.75f, 3, -3, 1.5f, -1.75f}; /* sum 0 */
    static const uint8_t want[] = {4, 4, 5, 3, 8, 3, 6, 3}; /* nearest to 4.25 + level */
    uint8_t bits[8];
    csn_vbit_widths(level, 8, 4.25f, 0, bits);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(bits[i], want[i]);
    }
    static const float even[] = {0, 0};
    csn_vbit_widths(even, 2, 4.5f, 0, bits);
    assert_int_equal(bits[0], 4);
    csn_vbit_widths(even, 2, 7.0f, 0, bits);
    assert_int_equal(bits[0], 6);
    csn_vbit_widths(even, 2, 5.0f, 2.5f, bits);
    assert_int_equal(bits[0], 8);
    csn_vbit_widths(even, 2, 3.0f, -2.0f, bits);
    assert_int_equal(bits[0], 3);
}

static void more_bits_cost_less_error(void **state) {
    (void)state;
    const csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    static float x[ROWS * COLS], y[ROWS * COLS];
    static const float asked[] = {3, 4.25f, 5, 6, 8};
    double last = (double)INFINITY;
    fill(x);
    for (size_t k = 0; k < sizeof(asked) / sizeof(asked[0]); k++) {
        csn_buf out = CSN_BUF_INIT(1 << 20);
        caisson_error err;
        const csn_encode_options o = {.mean_bits = asked[k]};
        ASSERT_OK(csn_dtype_vbit.encode(x, &s, &o, NULL, &out, &err), &err);
        ASSERT_OK(csn_dtype_vbit.check(&s, (uint8_t *)out.ptr, out.len, &err), &err);
        csn_matrix m = csn_matrix_make(&csn_dtype_vbit, &s, out.ptr, out.len);
        csn_dtype_vbit.decode(&m, 0, ROWS * COLS, y);
        double error = 0;
        for (int i = 0; i < ROWS * COLS; i++) {
            error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        }
        assert_true(error < last);
        last = error;
        uint64_t about = 0;
        ASSERT_OK(csn_encoded_nbytes(&csn_dtype_vbit, &s, &o, &about, &err), &err);
        if (k == 1 || k == 2) { /* in the middle the widths meet what was asked for */
            assert_true(fabs(mean(m.data, ROWS) - (double)asked[k]) < 0.35);
            assert_true(fabs((double)about / (double)out.len - 1) < 0.1);
        }
        csn_buf_free(&out);
    }
}

/* Rows of every width; both layouts hold the same ones. */
static void both_layouts_hold_the_same_rows(void **state) {
    (void)state;
    const csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    static float x[ROWS * COLS], y[2][ROWS * COLS];
    const csn_encode_options options = {.mean_bits = 4.5f, .bits_bias = 0.25f};
    float level[ROWS];
    uint8_t bits[ROWS];
    fill(x);
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] *= i / COLS % 7 == 0 ? 8.0f : 1.0f;
    }
    csn_vbit_levels(x, &s, NULL, level);
    csn_vbit_widths(level, ROWS, 4.5f, 0.25f, bits);
    for (int width = 3; width <= 8; width++) {
        assert_true(width == 7 || memchr(bits, width, ROWS) != NULL);
    }
    for (int k = 0; k < 2; k++) {
        const csn_dtype *d = k == 0 ? &csn_dtype_vbit : &csn_dtype_vbit_ro;
        csn_buf out = CSN_BUF_INIT(1 << 20);
        caisson_error err;
        ASSERT_OK(d->encode(x, &s, &options, NULL, &out, &err), &err);
        ASSERT_OK(d->check(&s, (uint8_t *)out.ptr, out.len, &err), &err);
        assert_memory_equal(out.ptr, bits, ROWS);
        csn_matrix m = csn_matrix_make(d, &s, out.ptr, out.len);
        d->decode(&m, 0, ROWS * COLS, y[k]);
        csn_vbit v = csn_vbit_parts(&m);
        csn_vbit_at at = csn_vbit_begin(&v, ROWS / 2);
        for (uint64_t r = 0; r < ROWS; r++) {
            csn_vbit_row row = csn_vbit_walk(&v, &at, r);
            assert_int_equal(row.bits, bits[r]);
            assert_ptr_equal(row.p, v.packed + csn_vbit_begin(&v, r).offset);
        }
        assert_int_equal(csn_vbit_begin(&v, ROWS).offset, v.packed_bytes);
        assert_ptr_equal(v.packed + v.packed_bytes, (uint8_t *)out.ptr + out.len);
        csn_buf_free(&out);
    }
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
}

/* Offsets of many rows: the sum of widths, eight at a time, in every remainder. */
static void rows_are_found(void **state) {
    (void)state;
    enum { N = 1300 };
    static uint8_t payload[N * (1 + 2) + 32 * N];
    uint64_t at = 3 * N;
    for (uint64_t r = 0; r < N; r++) {
        payload[r] = r % 3 == 0 ? 8 : (uint8_t)(3 + r % 4);
    }
    csn_matrix m = {.dtype = &csn_dtype_vbit,
                    .data = payload,
                    .nbytes = sizeof(payload),
                    .rows = N,
                    .cols = 32};
    csn_vbit v = csn_vbit_parts(&m);
    for (uint64_t r = 0; r < N; r++) {
        assert_int_equal(v.packed + csn_vbit_begin(&v, r).offset - payload, at);
        at += 4 * payload[r];
    }
}

static void what_vbit_ro_cannot_address_is_refused(void **state) {
    (void)state;
    const csn_shape big = {.n_dims = 2, .dim = {1 << 20, 1 << 13}};
    caisson_error err;
    uint64_t n;
    ASSERT_OK(csn_encoded_nbytes(&csn_dtype_vbit, &big, &(csn_encode_options){0}, &n, &err), &err);
    ASSERT_STATUS(csn_encoded_nbytes(&csn_dtype_vbit_ro, &big, &(csn_encode_options){0}, &n, &err),
                  CAISSON_E_BOUNDS);
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    const csn_shape s = {.n_dims = 2, .dim = {2, 32}};
    float x[64] = {1};
    csn_buf out = CSN_BUF_INIT(512);
    caisson_error err;
    caisson_status status = CAISSON_E_NOMEM;
    for (int64_t n = 0; status != CAISSON_OK; n++) {
        csn_buf_free(&out);
        csn_alloc_fail_after(n);
        status = csn_dtype_vbit_ro.encode(x, &s, &(csn_encode_options){0}, NULL, &out, &err);
        csn_alloc_fail_after(-1);
        assert_true(status == CAISSON_OK || status == CAISSON_E_NOMEM);
        assert_true(n < 10);
    }
    csn_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"widths are the nearest and ties go down (CMF 3.2)",
         widths_are_the_nearest_and_ties_go_down, NULL, NULL, NULL},
        cmocka_unit_test(more_bits_cost_less_error),
        cmocka_unit_test(both_layouts_hold_the_same_rows),
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(what_vbit_ro_cannot_address_is_refused),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
