/* SPDX-License-Identifier: Apache-2.0 */
/* Two int8 products of one matrix, compared bit for bit. Include cmocka and random_bytes.h first.
 */
#ifndef CSN_TESTS_EMULATED_I8_H
#define CSN_TESTS_EMULATED_I8_H

#include <string.h>

#include "kernels/types.h"

/* Rows from r0 on times n vectors by both. Neither may write in front of r0. */
static inline void same_product(const csn_matrix *w, csn_matmul_i8_fn fn, csn_matmul_i8_fn ref,
                                uint64_t n, uint64_t r0) {
    float *x = random_bytes(n * w->cols * sizeof(float));
    for (uint64_t i = 0; i < n * w->cols; i++) {
        x[i] = (float)((int)next_byte() - 128) * 0.125f;
    }
    uint64_t x8_nbytes;
    assert_true(csn_x8_nbytes(n, w->cols, &x8_nbytes));
    void *buf = random_bytes(x8_nbytes);
    const csn_x8 x8 = csn_x8_make(buf, n, w->cols);
    for (uint64_t t = 0; t < n; t++) {
        csn_take_exact_any_ref(x + t * w->cols, &x8, t);
    }
    csn_quantise_x8_any_ref(x, w->cols, &x8, 0, n);
    float *y[2] = {random_bytes(n * w->rows * sizeof(float)),
                   random_bytes(n * w->rows * sizeof(float))};
    memcpy(y[0], y[1], n * w->rows * sizeof(float));
    ref(w, &x8, n, y[0], w->rows, r0, w->rows);
    fn(w, &x8, n, y[1], w->rows, r0, w->rows);
    assert_memory_equal(y[0], y[1], n * w->rows * sizeof(float));
    free(x);
    free(buf);
    free(y[0]);
    free(y[1]);
}

/* As same_product, with unpacked scales if the dtype has such. */
static inline void same_product_unpacked(csn_matrix w, csn_matmul_i8_fn fn, csn_matmul_i8_fn ref,
                                         uint64_t n, uint64_t r0) {
    void *unpacked = NULL;
    if (w.dtype->unpack != NULL) {
        unpacked = random_bytes(w.dtype->unpacked_nbytes(&w));
        w.dtype->unpack(&w, unpacked);
        w.unpacked = unpacked;
    }
    same_product(&w, fn, ref, n, r0);
    free(unpacked);
}

#endif
