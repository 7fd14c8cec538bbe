/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops, chosen at run time from kernels.def (slow rows first, the last that fits wins).
 *
 * Order of summation is part of each operation's contract, the same on every ISA, for every batch
 * size and row range (docs/architecture.md, "Same bits"):
 *
 *   f32 mode   y = sum_i w[i] * x[i]: 32 lanes, lane = i mod 32, each fmaf in rising i; then the
 *              halving tree: lane l += lane l+16 (l < 16), then +8, +4, +2, +1.
 *   int8 mode  groups of 32 columns (the last may be short): exact integer sum of q_w * q_x per
 *              group; the scaled group sums are added in f32, multiply then add, not fused, in
 *              eight lanes, lane = group mod 8, in rising order; then the halving tree: lane
 *              l += lane l+4 (l < 4), then +2, +1. Lanes begin at +0, so adding the zero products
 *              of padded groups changes nothing.
 *              How scales enter is written beside each dtype in kernels/ref/. For dtypes with
 *              matmul_i8_exact the largest elements of a vector are taken out before it is
 *              quantised; their f32 products are added afterwards, one after another.
 *
 * Kernels work on a row range, know no threads, do not allocate and cannot fail. They may use up to
 * 192 KiB of stack.
 */
#ifndef CSN_KERNELS_KERNELS_H
#define CSN_KERNELS_KERNELS_H

#include "quant/dtype.h"

/* Activations quantised per group of 32 for int8 mode: for each of n vectors of `cols` values
 *   scale = absmax / 127 (f32), q = rint(x / scale) (half to even; 0 when absmax is 0),
 *   offset = -8 * (sum of q[i] with i % 4 < 2), -8 * (the rest): what codes that are stored as
 *            code + 8 leave over, for the two sums of 16-bit products,
 *   minus  = their sum.
 * A group with an infinity or a NaN has that as its scale and codes of 0, so that its products are
 * NaN: what went wrong is not lost on the way to the logits.
 * Groups are padded with zeros (codes, scales, offsets, sums and pairs) to g_stride.
 *
 * One large element gives its whole group a coarse scale, and such elements are most of what int8
 * mode loses (docs/decisions/004-exact-elements.md). take_exact takes the largest out. */
enum { CSN_X8_EXACT = 2 };
/* Of two neighbouring groups, each value four times: what four rows are scaled and corrected with.
 */
typedef struct csn_x8_pair {
    float scale[8];
    int32_t minus[8]; /* -8 * the sum of the codes */
} csn_x8_pair;
enum { CSN_FEW_VECTORS = 3 }; /* decoding, or nearly: kernels read rows in their own way */
typedef struct csn_x8 {
    int8_t *q;     /* [n][q_stride] codes in the order of the columns */
    int8_t *split; /* [n][q_stride] the same codes for packed nibbles. Each 64 bytes are two groups:
                    * 16 codes of even columns of the first, of the second, then the odd ones */
    float *scale;  /* [n][g_stride] */
    int16_t *offset;   /* [n][g_stride][2] */
    int32_t *minus;    /* [n][g_stride] -8 * the sum of the codes */
    csn_x8_pair *pair; /* [n][g_stride / 2] of groups 2 i and 2 i + 1; NULL: more than
                        * CSN_FEW_VECTORS vectors */
    uint32_t *exact_i; /* [n][CSN_X8_EXACT] columns that were taken out; written by take_exact */
    float *exact_x;    /* [n][CSN_X8_EXACT] and their elements */
    uint64_t n, cols;
    uint64_t n_groups; /* ceil(cols / 32) */
    uint64_t g_stride; /* n_groups rounded up to a multiple of 8 */
    uint64_t q_stride; /* bytes: at least g_stride * 32, a multiple of 64 */
} csn_x8;

/* Bytes of one buffer for n vectors of `cols` values; false on overflow. */
bool csn_x8_nbytes(uint64_t n, uint64_t cols, uint64_t *ret);
/* Lays the arrays out in a buffer of at least csn_x8_nbytes(n, cols), aligned to 64. */
csn_x8 csn_x8_make(void *buf, uint64_t n, uint64_t cols);

/* Sets the CSN_X8_EXACT elements of largest magnitude of vector t (x [cols]; the first of
 * equals) to 0 and notes them in x8, largest first. */
typedef void (*csn_take_exact_fn)(float *x, const csn_x8 *x8, uint64_t t);

/* Quantises vectors [t0, t1) of x (vector t at x + t * x_stride) into x8. */
typedef void (*csn_quantise_x8_fn)(const float *x, uint64_t x_stride, const csn_x8 *x8, uint64_t t0,
                                   uint64_t t1);

/* q8_2f only: its column factors belong to the activations, out[t][i] = x[t][i] * col[i] with rows
 * of w->cols; int8 mode quantises `out` in place of x. */
typedef void (*csn_scale_x_fn)(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                               float *out);

/* y[t * y_stride + r] for t in [0, n), r in [r0, r1): row r of w times vector t.
 * x: vector t at x + t * x_stride, w->cols finite f32 values. Outputs are written whole. */
typedef void (*csn_matmul_f32_fn)(const csn_matrix *w, const float *x, uint64_t x_stride,
                                  uint64_t n, float *y, uint64_t y_stride, uint64_t r0,
                                  uint64_t r1);
/* The same for the first n vectors of x; x->cols == w->cols. There are two operations of this type,
 * matmul_i8 and matmul_i8_exact, which then adds what take_exact took out: for k rising,
 *   y[t * y_stride + r] += w[r][exact_i[t][k]] * exact_x[t][k], not fused,
 * w as decoded (q8_2f: without its column factor, which is in exact_x already). */
typedef void (*csn_matmul_i8_fn)(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1);

/* matmul_i8, or matmul_i8_exact, for the rows that a list names (rising), x->n <= CSN_FEW_VECTORS:
 * y[t * y_stride + rows[i]], i < n_rows; others stay as they are. */
typedef void (*csn_matmul_i8_rows_fn)(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                      bool adds_exact, float *y, uint64_t y_stride,
                                      const uint32_t *rows, uint64_t n_rows);

/* The kernels for a matrix under the current CPU flags. f32: never NULL for a dtype with `decode`
 * (fallback: decode a row piecewise, multiply). i8: NULL where there is no int8 form (float dtypes;
 * nibble groups that cross rows, cols % 32 != 0): the caller then uses f32. scale_x: NULL where the
 * dtype has no column factors. i8_exact: NULL where the dtype's own rounding drowns what it would
 * bring (4 bits). i8_rows: NULL where rows are best computed run by run. quantise_x8, take_exact:
 * never NULL. */
csn_matmul_f32_fn csn_kernel_matmul_f32(const csn_matrix *w);
csn_matmul_i8_fn csn_kernel_matmul_i8(const csn_matrix *w);
csn_scale_x_fn csn_kernel_scale_x(const csn_matrix *w);
csn_matmul_i8_fn csn_kernel_matmul_i8_exact(const csn_matrix *w);
csn_matmul_i8_rows_fn csn_kernel_matmul_i8_rows(const csn_matrix *w);
csn_quantise_x8_fn csn_kernel_quantise_x8(void);
csn_take_exact_fn csn_kernel_take_exact(void);

#endif
