/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over kernels and threads. Rows of the result are split over the pool; what an
 * input needs before its product (quantised activations in int8 mode) is made once and shared. */
#ifndef CSN_MODEL_OPS_H
#define CSN_MODEL_OPS_H

#include "model/active.h"
#include "model/plan.h"
#include "model/tap.h"

typedef enum csn_compute { CSN_COMPUTE_F32, CSN_COMPUTE_INT8 } csn_compute;

enum { CSN_MAX_LINEAR = 3 }; /* products of one input: q, k, v */

typedef struct csn_ops {
    csn_pool *pool;
    csn_compute compute;
    const csn_vec *vec;
    csn_quantise_x8_fn quantise;
    csn_take_exact_fn take_exact;
    const csn_tap *tap;       /* or NULL */
    void *x8[CSN_MAX_LINEAR]; /* csn_x8_nbytes(max_n, max_cols) each; NULL in f32 mode */
    float *scaled;            /* [max_n][max_cols]: inputs that are changed before quantising */
    const csn_weight *next[CSN_MAX_LINEAR]; /* csn_ops_expect */
} csn_ops;

typedef struct csn_linear { /* y = W x + bias */
    const csn_weight *w;
    float *y;
    uint64_t y_stride;
    const csn_runs *runs; /* the rows to compute, others are left as they are; NULL = all */
} csn_linear;

/* Says which products of one input (up to three, then NULL) follow the next call of csn_ops_linear:
 * threads that have done their part of it fetch what they will read of those. Being wrong costs
 * bandwidth alone. */
void csn_ops_expect(csn_ops *ops, const csn_weight *a, const csn_weight *b, const csn_weight *c);

/* All products of one input x (vector t at x + t * x_stride). `after`, when not NULL, runs on each
 * thread once its rows [r0, r1) of all products are written (they must then have equal rows and
 * runs); with runs from the first to the last of its rows, those that were left out among them. */
typedef void (*csn_after_fn)(void *ctx, uint64_t n, uint64_t r0, uint64_t r1);
void csn_ops_linear(csn_ops *ops, const csn_linear *items, unsigned n_items, const float *x,
                    uint64_t x_stride, uint64_t n, csn_after_fn after, void *ctx);

/* The same for an input that comes from a norm. Such inputs have a few elements far larger than the
 * rest: in int8 mode the largest are multiplied in f32 where the weights' dtype has a kernel for it
 * (docs/decisions/004-exact-elements.md). */
void csn_ops_linear_normed(csn_ops *ops, const csn_linear *items, unsigned n_items, const float *x,
                           uint64_t x_stride, uint64_t n, csn_after_fn after, void *ctx);

/* fn over shares [t0, t1) of n vectors; on the caller alone when n is small. */
typedef void (*csn_span_fn)(void *ctx, uint64_t t0, uint64_t t1);
void csn_ops_each(csn_ops *ops, uint64_t n, csn_span_fn fn, void *ctx);

#endif
