/* SPDX-License-Identifier: Apache-2.0 */
/* q4_tiled with few vectors for AVX-512 (kernels/x86/few_q4_tiled_avx512.h) on a CPU that lacks it:
 * the very file, against the plain C kernel, bit for bit. What the compiler makes of it is tested
 * by test_kernels.c where the CPU has VNNI. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/simde_avx512.h"

#ifdef HAVE_SIMDE
#include "kernels/types.h"
#include "support/random_bytes.h"

#include "kernels/x86/few_q4_tiled_avx512.h"

static void check(uint64_t rows, uint64_t n_groups, uint64_t n, uint64_t r0) {
    const uint64_t cols = 32 * n_groups;
    uint8_t *bytes = random_bytes(rows * n_groups * TILE_BYTES);
    for (uint64_t g = 0; g < rows * n_groups; g++) {
        bytes[g * TILE_BYTES + 1] &= 0xBB; /* finite */
    }
    const csn_matrix w = {.data = bytes, .rows = rows, .cols = cols};
    float *x = random_bytes(n * cols * sizeof(float));
    for (uint64_t i = 0; i < n * cols; i++) {
        x[i] = (float)((int)next_byte() - 128) * 0.125f;
    }
    uint64_t x8_nbytes;
    assert_true(csn_x8_nbytes(n, cols, &x8_nbytes));
    void *buf = random_bytes(x8_nbytes);
    const csn_x8 x8 = csn_x8_make(buf, n, cols);
    csn_quantise_x8_any_ref(x, cols, &x8, 0, n);
    float *y[2] = {random_bytes(n * rows * sizeof(float)), random_bytes(n * rows * sizeof(float))};
    memcpy(y[0], y[1], n * rows * sizeof(float));
    csn_matmul_i8_q4_tiled_ref(&w, &x8, n, y[0], rows, r0, rows);
    few_q4_tiled(&w, &x8, n, y[1], rows, r0, rows);
    assert_memory_equal(y[0], y[1], n * rows * sizeof(float));
    free(bytes);
    free(x);
    free(buf);
    free(y[0]);
    free(y[1]);
}

static void equals_ref(void **state) {
    (void)state;
    for (uint64_t n_groups = 1; n_groups <= 18; n_groups++) {
        for (uint64_t n = 1; n <= CSN_FEW_VECTORS; n++) {
            check(4 + n_groups % 8, n_groups, n, n_groups % 8 < 4 ? 0 : n_groups % 4);
        }
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
