/* SPDX-License-Identifier: Apache-2.0 */
/* Attention residuals (warp facts 14): a layer reads a mixture of the residual stream and of what
 * it was at the start of each block of layers, weighed by a softmax over their scores. */
#include <math.h>

#include "model/blocks/blocks.h"

struct mix {
    const csn_vec *vec;
    const float *blocks, *stream, *w;
    uint64_t block_stride, dim;
    uint32_t n_blocks;
    float eps;
    float *y;
};

/* w . (v / rms(v)) */
static float score(const struct mix *a, const float *v) {
    float mean = a->vec->dot(v, v, a->dim) / (float)a->dim;
    return a->vec->dot(v, a->w, a->dim) / sqrtf(mean + a->eps);
}

static void add_scaled(float *restrict y, const float *restrict x, float p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        y[i] += p * x[i];
    }
}

static void mix_token(const struct mix *a, uint64_t t) {
    float p[CSN_MAX_RES_BLOCKS + 1];
    float max = -INFINITY;
    float sum = 0.0f;
    float *y = a->y + t * a->dim;
    uint32_t n = a->n_blocks;
    const float *last = a->stream + t * a->dim;
    for (uint32_t i = 0; i <= n; i++) {
        p[i] = score(a, i < n ? a->blocks + i * a->block_stride + t * a->dim : last);
        max = p[i] > max ? p[i] : max;
    }
    for (uint32_t i = 0; i <= n; i++) {
        p[i] -= max;
    }
    a->vec->exp(p, (uint64_t)n + 1);
    for (uint32_t i = 0; i <= n; i++) {
        sum += p[i];
    }
    for (uint64_t i = 0; i < a->dim; i++) {
        y[i] = 0.0f;
    }
    for (uint32_t i = 0; i <= n; i++) {
        const float *v = i < n ? a->blocks + i * a->block_stride + t * a->dim : last;
        add_scaled(y, v, p[i] / sum, a->dim);
    }
}

static void mix_span(void *ctx, uint64_t t0, uint64_t t1) {
    for (uint64_t t = t0; t < t1; t++) {
        mix_token(ctx, t);
    }
}

void csn_block_attn_res(csn_ops *ops, const csn_plan *plan, const float *w, const float *blocks,
                        uint64_t block_stride, uint32_t n_blocks, const float *stream, float *y,
                        uint64_t n) {
    struct mix a = {.vec = ops->vec,
                    .blocks = blocks,
                    .stream = stream,
                    .w = w,
                    .block_stride = block_stride,
                    .dim = plan->hidden,
                    .n_blocks = n_blocks,
                    .eps = plan->norm_eps,
                    .y = y};
    csn_ops_each(ops, n, mix_span, &a);
}
