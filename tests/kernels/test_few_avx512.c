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
#include "support/emulated_i8.h"

#include "kernels/x86/few_q4_tiled_avx512.h"

static void check(uint64_t rows, uint64_t n_groups, uint64_t n, uint64_t r0) {
    const uint64_t cols = 32 * n_groups;
    uint8_t *bytes = random_bytes(rows * n_groups * TILE_BYTES);
    for (uint64_t g = 0; g < rows * n_groups; g++) {
        bytes[g * TILE_BYTES + 1] &= 0xBB; /* finite */
    }
    const csn_matrix w = {.data = bytes, .rows = rows, .cols = cols};
    same_product(&w, few_q4_tiled, csn_matmul_i8_q4_tiled_ref, n, r0);
    free(bytes);
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
