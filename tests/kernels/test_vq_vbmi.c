/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 kernels of kernels/x86/vq_apply_i8_vbmi.c on a CPU that lacks them: the very file,
 * its intrinsics worked out in plain C by SIMDe (libsimde-dev), against the plain C kernel, bit for
 * bit. What the compiler makes of it is tested by test_vq.c where the CPU has VBMI. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/simde_avx512.h"

#ifdef HAVE_SIMDE
#include "kernels/types.h"
#include "support/random_bytes.h"

#define csn_vq_apply_i8_packed_vbmi emulated_packed
#define csn_vq_apply_i8_bytes_vbmi emulated_bytes
CSN_PROTO_vq_apply(emulated_packed);
CSN_PROTO_vq_apply(emulated_bytes);
#include "kernels/x86/vq_apply_i8_vbmi.c"

enum { N = 17 }; /* one more than meet the indices of a span at once */

static void check(uint32_t stages, bool is_packed, uint32_t rows, uint32_t cols, uint64_t r0) {
    const csn_vq_books b = {
        .stages = stages, .entries = is_packed ? 64 : 256, .is_packed = is_packed};
    const csn_vq_kernel size = csn_kernel_vq(&b, true);
    const uint64_t codes = csn_vq_codes_nbytes(&b, cols);
    uint64_t n_index;
    assert_true(csn_vq_index_nbytes(&b, rows, cols, CSN_VQ_BLOCK, &n_index));
    uint8_t *index = random_bytes(n_index);
    uint8_t *scale = random_bytes(2 * (uint64_t)rows);
    uint8_t *tables[N];
    float *y[2] = {(void *)random_bytes(N * (uint64_t)rows * sizeof(float)),
                   (void *)random_bytes(N * (uint64_t)rows * sizeof(float))};
    for (int i = 0; i < N; i++) {
        tables[i] = random_bytes(size.table_nbytes(&b, cols));
        for (uint64_t k = 0; k < codes; k++) {
            tables[i][k] = tables[i][k] == 0 ? 1 : tables[i][k]; /* -127 to 127, + 128 */
        }
        float *scales = csn_vq_scales(&b, cols, tables[i]);
        for (uint32_t v = 0; v < cols / CSN_VQ_DIM; v += CSN_VQ_SPAN) {
            scales[v / CSN_VQ_SPAN] = (float)(1 + next_byte()) * 0x1p-7f;
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        scale[2 * r + 1] &= 0xBB; /* finite */
    }
    memcpy(y[0], y[1], N * (size_t)rows * sizeof(float));
    const csn_vq_matrix m = {.books = &b,
                             .index = index,
                             .scale = scale,
                             .rows = rows,
                             .cols = cols,
                             .block = CSN_VQ_BLOCK};
    csn_vq_apply_i8_any_ref(&m, (const void *const *)tables, N, y[0], rows, r0, rows);
    (is_packed ? emulated_packed : emulated_bytes)(&m, (const void *const *)tables, N, y[1], rows,
                                                   r0, rows);
    assert_memory_equal(y[0], y[1], N * (size_t)rows * sizeof(float));
    for (int i = 0; i < N; i++) {
        free(tables[i]);
    }
    free(y[0]);
    free(y[1]);
    free(index);
    free(scale);
}

static void equals_ref(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 64, 72, 200};
    static const uint32_t cols[] = {8, 256, 264};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t k = 0; k < sizeof(cols) / sizeof(cols[0]); k++) {
            const uint64_t r0 = rows[i] > 64 ? 64 : 0;
            check(4, true, rows[i], cols[k], 0);
            check(4, true, rows[i], cols[k], r0);
            check(3, false, rows[i], cols[k], r0);
            check(2, false, rows[i], cols[k], r0);
        }
    }
    check(4, true, 560, 264, 0); /* four blocks side by side, twice, and a rest */
    check(3, false, 560, 264, 64);
    check(2, false, 250, 8, 0); /* the fourth block is a short one */
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
