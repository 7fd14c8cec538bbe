/* SPDX-License-Identifier: Apache-2.0 */
/* The int8 products of q1, q1s, q1t, q2tp and vbit for AVX-512 (kernels/x86/lanes_avx512.h) on a
 * CPU that lacks it: the very files, against the plain C kernels, bit for bit. What the compiler
 * makes of them is tested by test_kernels.c where the CPU has VNNI and VBMI. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/simde_avx512.h"

#ifdef HAVE_SIMDE
#include "base/cpu.h"
#include "kernels/types.h"
#include "support/random_bytes.h"
#include "support/emulated_i8.h"

#define csn_matmul_i8_q1_avx512 emulated_q1
#define csn_matmul_i8_q1s_avx512 emulated_q1s
#define csn_matmul_i8_q1t_vbmi emulated_q1t
#define csn_matmul_i8_q2tp_avx512 emulated_q2tp
#define csn_matmul_i8_vbit_vbmi emulated_vbit
#define csn_matmul_i8_vbit_ro_vbmi emulated_vbit_ro
CSN_PROTO_matmul_i8(emulated_q1);
CSN_PROTO_matmul_i8(emulated_q1s);
CSN_PROTO_matmul_i8(emulated_q1t);
CSN_PROTO_matmul_i8(emulated_q2tp);
CSN_PROTO_matmul_i8(emulated_vbit);
CSN_PROTO_matmul_i8(emulated_vbit_ro);
#include "kernels/x86/matmul_i8_q1_avx512.c"
#include "kernels/x86/matmul_i8_q1t_vbmi.c"
#include "kernels/x86/matmul_i8_q2tp_avx512.c"
#include "kernels/x86/matmul_i8_vbit_vbmi.c"

static const struct kernel {
    const char *dtype;
    csn_matmul_i8_fn fn, ref;
    uint64_t group_bytes, outlier_bytes;
} kernels[] = {
    {"q1", emulated_q1, csn_matmul_i8_q1_ref, CSN_Q1_TILE, 0},
    {"q1s", emulated_q1s, csn_matmul_i8_q1s_ref, CSN_Q1_TILE, CSN_Q1S_OUTLIER},
    {"q1t", emulated_q1t, csn_matmul_i8_q1t_ref, CSN_Q1T_TILE, CSN_Q1T_OUTLIER},
    {"q2tp", emulated_q2tp, csn_matmul_i8_q2tp_ref, Q2TP_BYTES, 0},
    {"vbit", emulated_vbit, csn_matmul_i8_vbit_ref, 0, 0},
};

static uint8_t *make_vbit(uint64_t rows, uint64_t cols, uint64_t *n) {
    const uint64_t scales_end = rows * (1 + cols / 16);
    uint8_t *p = random_bytes(scales_end + rows * cols);
    *n = scales_end;
    for (uint64_t i = rows; i < scales_end; i++) {
        p[i] &= 0xBB;
    }
    for (uint64_t r = 0; r < rows; r++) {
        p[r] = (const uint8_t[]){3, 4, 5, 6, 8}[next_byte() % 5u];
        *n += cols / 8 * p[r];
    }
    return p;
}

/* A payload whose scales are finite; q1s and q1t: one outlier a row. */
static uint8_t *make_payload(const struct kernel *k, uint64_t rows, uint64_t cols, uint64_t *n) {
    if (k->group_bytes == 0) {
        return make_vbit(rows, cols, n);
    }
    const bool is_q1t = k->outlier_bytes == CSN_Q1T_OUTLIER;
    const uint64_t tiles = rows * cols / 32 * k->group_bytes;
    uint64_t at = tiles + (is_q1t ? 4 * (rows + 1) : 4);
    *n = k->outlier_bytes != 0 ? at + rows * k->outlier_bytes
                               : tiles + rows * (4 + csn_q4tp_code_bytes(cols / 32));
    uint8_t *p = random_bytes(*n);
    for (uint64_t i = k->group_bytes == Q2TP_BYTES ? tiles : 1; i < *n;
         i += i < tiles ? k->group_bytes : 1) {
        p[i] &= 0xBB;
    }
    for (uint32_t r = 0; r < rows && k->outlier_bytes != 0; r++, at += k->outlier_bytes) {
        const uint32_t col = r * 7 % (uint32_t)cols;
        const uint32_t key = is_q1t ? col : r * (uint32_t)cols + col;
        const uint32_t n_before[2] = {r, r + 1};
        memcpy(p + at, &key, k->outlier_bytes - 2);
        memcpy(p + tiles + (is_q1t ? 4 * r : 0), n_before + (is_q1t ? 0 : 1), 4);
        if (is_q1t) {
            memcpy(p + tiles + 4 * (r + 1), &n_before[1], 4);
        }
    }
    return p;
}

static void check(const struct kernel *k, uint64_t rows, uint64_t cols, uint64_t n, uint64_t r0) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(k->dtype));
    const csn_shape shape = {2, {rows, cols}};
    uint64_t nbytes;
    uint8_t *bytes = make_payload(k, rows, cols, &nbytes);
    const csn_matrix w = csn_matrix_make(d, &shape, bytes, nbytes);
    if (n == 1 && k->outlier_bytes != 0) { /* outliers as they are; else as csn_packed has them */
        same_product(&w, k->fn, k->ref, n, r0);
    } else {
        same_product_unpacked(w, k->fn, k->ref, n, r0);
    }
    free(bytes);
}

static void equals_ref(void **state) {
    (void)state;
    if ((csn_cpu_flags() & CSN_CPU_AVX2) == 0) {
        skip(); /* vbit with few vectors goes on to that kernel */
    }
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        for (uint64_t groups = 1; groups <= 34; groups++) { /* up to two whole steps and a rest */
            check(&kernels[k], 5 + groups % 4, 32 * groups, 1 + groups % 3, groups % 2);
        }
        check(&kernels[k], 21, 32 * 9, 5, 2); /* many vectors; more groups than a panel holds */
        check(&kernels[k], 17, 4096 + 32 * 9, 4, 0);
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
