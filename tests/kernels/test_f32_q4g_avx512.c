/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/x86/matmul_f32_q4g_avx512.c on a CPU that lacks AVX-512: the very file, against the plain
 * C kernel, bit for bit. What the compiler makes of it is tested by test_kernels.c where the CPU
 * has it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/simde_avx512.h"

#ifdef HAVE_SIMDE
#include "kernels/types.h"
#include "support/random_bytes.h"

#define csn_matmul_f32_q4g_avx512 emulated
CSN_PROTO_matmul_f32(emulated);
#include "kernels/x86/matmul_f32_q4g_avx512.c"

static void check(uint64_t rows, uint64_t cols, uint64_t n, uint64_t r0, uint64_t r1) {
    caisson_error err;
    const csn_dtype *d = csn_dtype_by_name(csn_str_from("q4g"));
    const csn_shape shape = {2, {rows, cols}};
    uint64_t nbytes;
    assert_int_equal(d->nbytes(&shape, &nbytes, &err), CAISSON_OK);
    uint8_t *bytes = random_finite(nbytes);
    csn_matrix w = csn_matrix_make(d, &shape, bytes, nbytes);
    float *x = random_finite(n * cols * sizeof(float));
    float *y[2] = {random_finite(n * rows * sizeof(float)),
                   random_finite(n * rows * sizeof(float))};
    memcpy(y[0], y[1], n * rows * sizeof(float));
    csn_matmul_f32_any_ref(&w, x, cols, n, y[0], rows, r0, r1);
    emulated(&w, x, cols, n, y[1], rows, r0, r1);
    assert_memory_equal(y[0], y[1], n * rows * sizeof(float));
    free(bytes);
    free(x);
    free(y[0]);
    free(y[1]);
}

static void equals_ref(void **state) {
    (void)state;
    static const uint64_t cols[] = {1, 17, 32, 45, 127, 128, 160, 200, 2304};
    for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++) {
        check(11, cols[i], 1 + i % 3, 0, 11);
        check(19, cols[i], 1, 2, 17);
    }
}
#else
static void equals_ref(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_ref)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
