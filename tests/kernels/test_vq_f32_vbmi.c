/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 kernels of kernels/x86/vq_apply_f32_vbmi.c on a CPU that lacks them, as
 * test_vq_vbmi.c does for those of int8 tables. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/simde_avx512.h"

#ifdef HAVE_SIMDE
#include "kernels/types.h"
#include "support/random_bytes.h"

#define csn_vq_apply_f32_any_vbmi emulated_apply
#define csn_vq_direct_f32_any_vbmi emulated_direct
#define csn_vq_table_f32_any_avx2 csn_vq_table_f32_any_ref /* what this CPU may lack */
#define csn_vq_apply_f32_any_avx2 csn_vq_apply_f32_any_ref
#define csn_vq_direct_f32_any_avx2 csn_vq_direct_f32_any_ref
CSN_PROTO_vq_apply(emulated_apply);
CSN_PROTO_vq_direct_f32(emulated_direct);
#include "kernels/x86/vq_apply_f32_vbmi.c"

static float *random_floats(uint64_t n) {
    float *p = aligned_alloc(64, (size_t)(n * sizeof(float) + 63) / 64 * 64);
    assert_non_null(p);
    for (uint64_t i = 0; i < n; i++) {
        (void)next_byte();
        p[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return p;
}

enum { N = 9 }; /* more than the kernel takes at once, and one that is left over by JOINED */

static void check(uint32_t stages, uint32_t rows, uint32_t cols, uint64_t r0) {
    float *entry = random_floats((uint64_t)stages * 256 * CSN_VQ_DIM);
    const csn_vq_books b = {.stages = stages, .entries = 256, .entry = entry, .column = entry};
    uint64_t n_index;
    assert_true(csn_vq_index_nbytes(&b, rows, cols, CSN_VQ_BLOCK, &n_index));
    uint8_t *index = random_bytes(n_index);
    uint8_t *scale = random_bytes(2 * (uint64_t)rows);
    for (uint32_t r = 0; r < rows; r++) {
        scale[2 * r + 1] &= 0xBB; /* finite */
    }
    float *tables[N];
    float *x[N];
    for (int i = 0; i < N; i++) {
        tables[i] = random_floats(csn_vq_codes_nbytes(&b, cols));
        x[i] = random_floats(cols);
    }
    const csn_vq_matrix m = {.books = &b,
                             .index = index,
                             .scale = scale,
                             .rows = rows,
                             .cols = cols,
                             .block = CSN_VQ_BLOCK};
    float *y[2] = {random_floats(N * (uint64_t)rows), random_floats(N * (uint64_t)rows)};
    memcpy(y[0], y[1], N * (size_t)rows * sizeof(float));
    csn_vq_apply_f32_any_ref(&m, (const void *const *)tables, N, y[0], rows, r0, rows);
    emulated_apply(&m, (const void *const *)tables, N, y[1], rows, r0, rows);
    assert_memory_equal(y[0], y[1], N * (size_t)rows * sizeof(float));
    csn_vq_direct_f32_any_ref(&m, (const float *const *)x, N, y[0], rows, r0, rows);
    emulated_direct(&m, (const float *const *)x, N, y[1], rows, r0, rows);
    assert_memory_equal(y[0], y[1], N * (size_t)rows * sizeof(float));
    for (int i = 0; i < N; i++) {
        free(tables[i]);
        free(x[i]);
    }
    free(entry);
    free(index);
    free(scale);
    free(y[0]);
    free(y[1]);
}

static void equals_ref(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 64, 72, 200};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check(3, rows[i], 24, rows[i] > 64 ? 64 : 0);
        check(2, rows[i], 24, 0);
    }
    check(3, 2400, 16, 0); /* more rows than meet a table at once */
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
