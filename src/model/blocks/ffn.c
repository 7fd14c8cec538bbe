/* SPDX-License-Identifier: Apache-2.0 */
/* The gated half of a feed-forward network. */
#include <string.h>

#include "model/blocks/blocks.h"

struct gated {
    const csn_vec *vec;
    const csn_vec_act *act;
    float *gate;
    const float *up;
    uint64_t dim;
};

static void act_rows(void *ctx, uint64_t n, uint64_t r0, uint64_t r1) {
    const struct gated *g = ctx;
    for (uint64_t t = 0; t < n; t++) {
        g->vec->act_mul(g->act, g->gate + t * g->dim + r0, g->up + t * g->dim + r0, r1 - r0);
    }
}

void csn_block_gate_up(csn_ops *ops, const csn_vec_act *act, const csn_weight *gate_proj,
                       const csn_weight *up_proj, const csn_runs *active, const float *x,
                       uint64_t x_stride, uint64_t n, float *gate, float *up) {
    uint64_t dim = gate_proj->rows;
    csn_linear items[2] = {{gate_proj, gate, dim, active}, {up_proj, up, dim, active}};
    if (active != NULL) {
        memset(gate, 0, n * dim * sizeof(float));
        memset(up, 0, n * dim * sizeof(float)); /* act_rows multiplies what is left out too */
    }
    struct gated g = {ops->vec, act, gate, up, dim};
    csn_ops_linear_normed(ops, items, 2, x, x_stride, n, act_rows, &g);
}

struct spread {
    const csn_packed_ffn *packed;
    const float *from;
    float *to;
};

static void spread_span(void *ctx, uint64_t t0, uint64_t t1) {
    const struct spread *s = ctx;
    uint64_t rows = s->packed->gate.rows;
    uint64_t cols = s->packed->down.m.cols;
    for (uint64_t t = t0; t < t1; t++) {
        float *to = s->to + t * cols;
        memset(to, 0, cols * sizeof(float));
        for (uint64_t i = 0; i < rows; i++) {
            to[s->packed->at[i]] = s->from[t * rows + i];
        }
    }
}

const float *csn_block_gate_up_packed(csn_ops *ops, const csn_vec_act *act,
                                      const csn_packed_ffn *packed, const float *x,
                                      uint64_t x_stride, uint64_t n, float *gate, float *up) {
    csn_block_gate_up(ops, act, &packed->gate, &packed->up, NULL, x, x_stride, n, gate, up);
    if (packed->at == NULL) {
        return gate;
    }
    struct spread s = {packed, gate, up};
    csn_ops_each(ops, n, spread_span, &s);
    return up;
}
