/* SPDX-License-Identifier: Apache-2.0 */
#include "model/blocks/blocks.h"

struct norm {
    const csn_vec *vec;
    const float *x, *w;
    float *y;
    uint64_t x_stride, y_stride, dim;
    float eps;
};

static void norm_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct norm *a = ctx;
    for (uint64_t t = t0; t < t1; t++) {
        a->vec->rms_norm(a->x + t * a->x_stride, a->w, a->eps, a->y + t * a->y_stride, a->dim);
    }
}

void csn_block_norm(csn_ops *ops, const float *x, uint64_t x_stride, const float *w, float eps,
                    float *y, uint64_t y_stride, uint64_t n, uint64_t dim) {
    struct norm a = {ops->vec, x, w, y, x_stride, y_stride, dim, eps};
    csn_ops_each(ops, n, norm_span, &a);
}

struct add {
    const csn_vec *vec;
    float *y;
    const float *x;
    uint64_t dim;
};

static void add_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct add *a = ctx;
    a->vec->add(a->y + t0 * a->dim, a->x + t0 * a->dim, (t1 - t0) * a->dim);
}

void csn_block_add(csn_ops *ops, float *y, const float *x, uint64_t n, uint64_t dim) {
    struct add a = {ops->vec, y, x, dim};
    csn_ops_each(ops, n, add_span, &a);
}
