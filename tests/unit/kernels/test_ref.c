/* SPDX-License-Identifier: Apache-2.0 */
/* The plain C kernels against sums in double, and the rules of the contract. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "kernels/kernels.h"

static uint32_t seed = 12345;

static float uniform(void) { /* in [-1, 1) */
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-31f;
}

static void decode_f32(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    memcpy(out, m->data + 4 * i0, 4 * n);
}

static const csn_dtype fake_f32 = {.name = "test_f32", .decode = decode_f32};
static const csn_dtype fake_q8_row = {.name = "q8_row"};
static const csn_dtype fake_q4_tiled = {.name = "q4_tiled"};

static void f32_follows_lanes(void **state) {
    (void)state;
    enum { ROWS = 3, COLS = 1100, N = 6 };
    float w[ROWS * COLS];
    float x[N * COLS];
    float y[N * ROWS];
    for (int i = 0; i < ROWS * COLS; i++) {
        w[i] = uniform();
    }
    for (int i = 0; i < N * COLS; i++) {
        x[i] = uniform();
    }
    csn_matrix m = {.dtype = &fake_f32,
                    .data = (const uint8_t *)w,
                    .nbytes = sizeof(w),
                    .rows = ROWS,
                    .cols = COLS};
    csn_kernel_matmul_f32 (&m)(&m, x, COLS, N, y, ROWS, 0, ROWS);
    for (int t = 0; t < N; t++) {
        for (int r = 0; r < ROWS; r++) {
            float lane[32] = {0};
            double exact = 0;
            for (int i = 0; i < COLS; i++) {
                lane[i % 32] = fmaf(w[r * COLS + i], x[t * COLS + i], lane[i % 32]);
                exact += (double)w[r * COLS + i] * (double)x[t * COLS + i];
            }
            for (int half = 16; half >= 1; half /= 2) {
                for (int l = 0; l < half; l++) {
                    lane[l] += lane[l + half];
                }
            }
            assert_true(y[t * ROWS + r] == lane[0]);
            assert_true(fabs((double)y[t * ROWS + r] - exact) < 1e-4);
        }
    }
}

static csn_x8 quantise(const float *x, uint64_t cols) {
    static _Alignas(64) uint8_t buf[4096];
    uint64_t need;
    assert_true(csn_x8_nbytes(1, cols, &need) && need <= sizeof(buf));
    csn_x8 x8 = csn_x8_make(buf, 1, cols);
    csn_kernel_quantise_x8()(x, cols, &x8, 0, 1);
    return x8;
}

static void quantise_rounds_half_to_even(void **state) {
    (void)state;
    float x[40] = {127.0f, 2.5f, 3.5f, -2.5f, -127.0f};
    x[32] = 1.0f;
    csn_x8 x8 = quantise(x, 40);
    assert_true(x8.scale[0] == 1.0f && x8.scale[1] == 1.0f / 127.0f);
    const int8_t want[5] = {127, 2, 4, -2, -127};
    assert_memory_equal(x8.q, want, sizeof(want));
    assert_int_equal(x8.offset[0] + x8.offset[1], -8 * 4);
    assert_int_equal(x8.offset[1], -8 * 2);
    assert_int_equal(x8.q[32], 127);
    assert_int_equal(x8.q[63], 0);
    assert_int_equal(x8.offset[2], -8 * 127);
    const int8_t even[3] = {127, 4, -127};
    assert_memory_equal(x8.split, even, sizeof(even));
    assert_int_equal(x8.split[32], 2);   /* the odd columns of the first group */
    assert_int_equal(x8.split[16], 127); /* the second group's first */
}

static void i8_q8_row_is_close(void **state) {
    (void)state;
    enum { COLS = 70 };
    uint8_t w[COLS + 2];
    float x[COLS];
    double exact = 0;
    for (int i = 0; i < COLS; i++) {
        w[i] = (uint8_t)(i * 37 - 128);
        x[i] = uniform();
        exact += (double)(int8_t)w[i] * 0.5 * (double)x[i];
    }
    w[COLS] = 0x00; /* f16 0.5 */
    w[COLS + 1] = 0x38;
    csn_x8 x8 = quantise(x, COLS);
    csn_matrix m = {.dtype = &fake_q8_row, .data = w, .nbytes = sizeof(w), .rows = 1, .cols = COLS};
    float y;
    csn_kernel_matmul_i8 (&m)(&m, &x8, 1, &y, 1, 0, 1);
    assert_true(fabs((double)y - exact) < 3.0);
}

static void i8_q4_tiled_exact_case(void **state) {
    (void)state;
    uint8_t w[18] = {0x00, 0x3C}; /* scale 1.0 */
    float x[32];
    float want = 0;
    for (int k = 0; k < 16; k++) {
        w[2 + k] = (uint8_t)(k | (15 - k) << 4);
    }
    for (int i = 0; i < 32; i++) {
        x[i] = (float)(i == 0 ? 127 : i - 16);
        int nibble = i % 2 == 0 ? i / 2 : 15 - i / 2;
        want += (float)(nibble - 8) * x[i];
    }
    csn_x8 x8 = quantise(x, 32);
    csn_matrix m = {.dtype = &fake_q4_tiled, .data = w, .nbytes = sizeof(w), .rows = 1, .cols = 32};
    float y;
    csn_kernel_matmul_i8 (&m)(&m, &x8, 1, &y, 1, 0, 1);
    assert_true(y == want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_follows_lanes),
        cmocka_unit_test(quantise_rounds_half_to_even),
        cmocka_unit_test(i8_q8_row_is_close),
        cmocka_unit_test(i8_q4_tiled_exact_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
