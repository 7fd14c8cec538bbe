/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops, chosen at run time from kernels.def (slow rows first, the last that fits wins).
 *
 * Order of summation is part of each operation's contract, the same on every ISA, for every batch
 * size and row range (docs/architecture.md, "Same bits"):
 *
 *   f32 mode   y = sum_i w[i] * x[i]: 32 lanes, lane = i mod 32, each fmaf in rising i; then the
 *              halving tree: lane l += lane l+16 (l < 16), then +8, +4, +2, +1.
 *   int8 mode  groups of 32 columns (the last may be short): exact integer sum of q_w * q_x per
 *              group; the scaled group sums are added in f32, multiply then add, not fused, in two
 *              lanes (even groups, odd groups), then lane0 + lane1.
 *              How scales enter is written beside each dtype in kernels/ref/.
 *
 * Kernels work on a row range, know no threads, do not allocate and cannot fail.
 */
#ifndef CSN_KERNELS_KERNELS_H
#define CSN_KERNELS_KERNELS_H

#include "quant/dtype.h"

/* Activations quantised per group of 32 for int8 mode: for each of n vectors of `cols` values
 *   scale = absmax / 127 (f32), q = rint(x / scale) (half to even; 0 when absmax is 0),
 *   sum = sum of q over the group.
 * Rows of q are padded with zeros to a multiple of 32; n_groups = ceil(cols / 32). */
typedef struct csn_x8 {
    const int8_t *q;    /* [n][n_groups * 32], 64-byte aligned rows if n_groups is even */
    const float *scale; /* [n][n_groups] */
    const int32_t *sum; /* [n][n_groups] */
    uint64_t n_groups;
} csn_x8;

/* y[t * y_stride + r] for t in [0, n), r in [r0, r1): row r of w times vector t.
 * x: vector t at x + t * x_stride, w->cols finite f32 values. Outputs are written whole. */
typedef void (*csn_matmul_f32_fn)(const csn_matrix *w, const float *x, uint64_t x_stride,
                                  uint64_t n, float *y, uint64_t y_stride, uint64_t r0,
                                  uint64_t r1);
typedef void (*csn_matmul_i8_fn)(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1);

/* The kernels for a dtype under the current CPU flags (looked up by name in kernels.def: keep the
 * result, a model does so for each tensor at open); never NULL for a dtype with `decode`
 * (fallback: decode a row piecewise, multiply). The i8 form is NULL where the dtype has none
 * (float dtypes): the caller then uses f32, and also where d->group > 1 does not divide cols. */
csn_matmul_f32_fn csn_kernel_matmul_f32(const csn_dtype *d);
csn_matmul_i8_fn csn_kernel_matmul_i8(const csn_dtype *d);

/* Quantises n vectors into the arrays behind *x8 (caller's memory, sized as in csn_x8). */
void csn_quantise_x8(const float *x, uint64_t x_stride, uint64_t n, uint64_t cols, int8_t *q,
                     float *scale, int32_t *sum);

#endif
