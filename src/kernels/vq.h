/* SPDX-License-Identifier: Apache-2.0 */
/* Products with vector-quantised matrices (quant/vq.h) without decoding them (warp facts 10): first
 * the products of the input with every codebook entry, once a vector; then each row is a sum of
 * looked up values.
 *
 * Tables, f32: T[v][s][c] = sum over d of entry[s][c][d] * x[8 v + d], fmaf in rising d from the
 * rounded first product. int8 (every VQ4P, in both compute modes; the others in int8 mode): for
 * each block of 32 vector positions, the last may be short, max = max|T| over all its stages and
 * entries, scale = max / 127, q = rint(T * (127 / max)) within +-127, half to even; q and scale are
 * 0 when max is below 2^-100.
 *
 * Rows, f32: acc += T[v][0] + T[v][1] + ... (stages summed first, from stage 0), v rising; times
 * the row's scale. int8: acc += scale of the block * (float)(exact integer sum of the block), not
 * fused, blocks rising; times the row's scale. The same bits for every ISA, batch and row range. */
#ifndef CSN_KERNELS_VQ_H
#define CSN_KERNELS_VQ_H

#include "quant/vq.h"

enum { CSN_VQ_SPAN = 32 }; /* vector positions that share a scale of an int8 table */

/* Fills vector positions [v0, v1) of a table (aligned to 64) from x [cols]; v0 is a multiple of 32,
 * v1 too or cols / 8. */
typedef void (*csn_vq_table_fn)(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                                uint64_t v1, void *table);
/* y[i * y_stride + r] = row r of m times vector i, i in [0, n), r in [r0, r1), r0 a multiple of 64;
 * the vector's table is at tables[i]. Several vectors' tables are joined first, for every 1024 rows
 * of a call: calls with fewer rows cost more. */
typedef void (*csn_vq_apply_fn)(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1);

/* The same without tables: vector i of cols values is at x[i]. What one position gives is forgotten
 * when the rows of the call have met it, so this is for many vectors, whose tables would be more
 * than the caches hold. Calls with fewer rows cost more. */
typedef void (*csn_vq_direct_fn)(const csn_vq_matrix *m, const float *const *x, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1);

typedef struct csn_vq_kernel {
    bool is_int8; /* the kind of table */
    /* Bytes of the table of one vector of `cols` values, a multiple of 64. */
    uint64_t (*table_nbytes)(const csn_vq_books *b, uint64_t cols);
    csn_vq_table_fn table;
    csn_vq_apply_fn apply;
    csn_vq_direct_fn direct; /* NULL for int8 */
} csn_vq_kernel;

/* The fastest for these books on this CPU; packed books have int8 tables whatever is asked. */
csn_vq_kernel csn_kernel_vq(const csn_vq_books *b, bool want_int8);

/* ---- the layout of tables, for the kernels ----
 * A stage has room for every index that its bits can spell; entries that do not exist are zeros.
 * f32: [vectors][stages][slots]. int8: bytes q + 128, [vectors][stages][slots], then, aligned to
 * 64, the scales, f32 [ceil(vectors / 32)]. */
static inline uint64_t csn_vq_slots(const csn_vq_books *b) {
    return b->is_packed ? 64 : 256;
}

static inline uint64_t csn_vq_codes_nbytes(const csn_vq_books *b, uint64_t cols) {
    return cols / CSN_VQ_DIM * b->stages * csn_vq_slots(b); /* a multiple of 64 */
}

static inline float *csn_vq_scales(const csn_vq_books *b, uint64_t cols, const void *table) {
    return (float *)(void *)((uintptr_t)table + csn_vq_codes_nbytes(b, cols));
}

#endif
