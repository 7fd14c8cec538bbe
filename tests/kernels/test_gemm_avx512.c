/* SPDX-License-Identifier: Apache-2.0 */
/* The batched int8 products for AVX-512 (kernels/x86/matmul_i8_*_avx512.c) on a CPU that lacks it:
 * the very files, against the plain C kernels, bit for bit. What the compiler makes of them is
 * tested by test_kernels.c where the CPU has VNNI. */
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

#define csn_matmul_i8_q8_row_avx512 emulated_q8_row
#define csn_matmul_i8_q8_2f_avx512 emulated_q8_2f
#define csn_matmul_i8_exact_q8_row_avx512 emulated_exact_q8_row
#define csn_matmul_i8_exact_q8_2f_avx512 emulated_exact_q8_2f
#define csn_matmul_i8_q4_block_avx512 emulated_q4_block
#define csn_matmul_i8_q4_tiled_avx512 emulated_q4_tiled
#define csn_matmul_i8_q4tp_avx512 emulated_q4tp
#define csn_matmul_i8_q4g_avx512 emulated_q4g
CSN_PROTO_matmul_i8(emulated_q8_row);
CSN_PROTO_matmul_i8(emulated_q8_2f);
CSN_PROTO_matmul_i8(emulated_exact_q8_row);
CSN_PROTO_matmul_i8(emulated_exact_q8_2f);
CSN_PROTO_matmul_i8(emulated_q4_block);
CSN_PROTO_matmul_i8(emulated_q4_tiled);
CSN_PROTO_matmul_i8(emulated_q4tp);
CSN_PROTO_matmul_i8(emulated_q4g);
#include "kernels/x86/matmul_i8_q4_avx512.c"
#define multiply multiply_q8
#include "kernels/x86/matmul_i8_q8_avx512.c"

static const struct {
    const char *dtype;
    csn_matmul_i8_fn fn, ref;
} kernels[] = {
    {"q8_row", emulated_q8_row, csn_matmul_i8_q8_row_ref},
    {"q8_row", emulated_exact_q8_row, csn_matmul_i8_exact_q8_row_ref},
    {"q4_block", emulated_q4_block, csn_matmul_i8_q4_block_ref},
    {"q4_tiled", emulated_q4_tiled, csn_matmul_i8_q4_tiled_ref},
    {"q4tp", emulated_q4tp, csn_matmul_i8_q4tp_ref},
    {"q4g", emulated_q4g, csn_matmul_i8_q4g_ref},
};

static void check(size_t k, uint64_t rows, uint64_t cols, uint64_t n, uint64_t r0) {
    caisson_error err;
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(kernels[k].dtype));
    const csn_shape shape = {2, {rows, cols}};
    uint64_t nbytes;
    assert_int_equal(d->nbytes(&shape, &nbytes, &err), CAISSON_OK);
    uint8_t *bytes = random_finite(nbytes);
    same_product_unpacked(csn_matrix_make(d, &shape, bytes, nbytes), kernels[k].fn, kernels[k].ref,
                          n, r0);
    free(bytes);
}

static void equals_ref(void **state) {
    (void)state;
    static const uint64_t n[] = {4, 5, 9, 12, 26};
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
            check(k, 19, 32 * (1 + next_byte() % 12u), n[i], next_byte() % 3u);
        }
        check(k, 17, 4096 + 32 + 256, 13, 0); /* more groups than a panel holds */
    }
    check(0, 16, 300, 12, 0); /* a last group that is short */
    check(1, 70, 40, 7, 1);
    check(1, 20, 4096 + 77, 99, 3);
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
