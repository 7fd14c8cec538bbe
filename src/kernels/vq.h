/* SPDX-License-Identifier: Apache-2.0 */
/* Products with vector-quantised matrices (quant/vq.h) without decoding them (warp facts 10): first
 * the products of the input with every codebook entry, once a vector; then each row is a sum of
 * looked up values.
 *
 * Tables, f32: T[v][s][c] = sum over d of entry[s][c][d] * x[8 v + d], fmaf in rising d from the
 * rounded first product. int8 (every VQ4P, in both compute modes; the others in int8 mode): for
 * each block of 32 vector positions, the last may be short, scale = max|T| / 127 over all its
 * stages and entries, q = rint(T * 127 / max|T|) within +-127, half to even; 0 when the max is 0.
 *
 * Rows, f32: acc += T[v][0] + T[v][1] + ... (stages summed first, from stage 0), v rising; times
 * the row's scale. int8: acc += scale of the block * (float)(exact integer sum of the block), not
 * fused, blocks rising; times the row's scale. The same bits for every ISA, batch and row range. */
#ifndef CSN_KERNELS_VQ_H
#define CSN_KERNELS_VQ_H

#include "quant/vq.h"

typedef struct csn_vq_kernel {
    bool is_int8; /* the kind of table */
    /* Bytes of the table of one vector of `cols` values, a multiple of 64. */
    uint64_t (*table_nbytes)(const csn_vq_books *b, uint64_t cols);
    /* Fills vector positions [v0, v1) of a table (aligned to 64) from x [cols]; v0 is a multiple of
     * 32, v1 too or cols / 8. */
    void (*table)(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0, uint64_t v1,
                  void *table);
    /* y[i * y_stride + r] = row r of m times vector i, i in [0, n), r in [r0, r1), r0 a multiple of
     * 64; the vector's table is at tables[i]. */
    void (*apply)(const csn_vq_matrix *m, const void *const *tables, uint64_t n, float *y,
                  uint64_t y_stride, uint64_t r0, uint64_t r1);
} csn_vq_kernel;

/* The fastest for these books on this CPU; packed books have int8 tables whatever is asked. */
csn_vq_kernel csn_kernel_vq(const csn_vq_books *b, bool want_int8);

#endif
