/* SPDX-License-Identifier: Apache-2.0 */
/* A look into a running forward pass: what each product reads and what each layer leaves. Taps see
 * every token of an eval once, in rising position, whatever the batches; they change nothing and
 * run on the calling thread. */
#ifndef CSN_MODEL_TAP_H
#define CSN_MODEL_TAP_H

#include "model/plan.h"

typedef struct csn_tap {
    /* The input of one product, before any rounding of int8 mode: vector t of n at
     * x + t * x_stride, [w->m.cols]. An expert's products see only the tokens routed to it,
     * the head only those whose logits are asked for. kv_b_proj of latent attention, which is read
     * across its rows, is not shown. With a task mask, inputs that belong to masked heads are 0,
     * those of masked neurons are not defined. NULL = not wanted. */
    void (*input)(void *ctx, const csn_weight *w, const float *x, uint64_t x_stride, uint64_t n);
    /* The residual stream after visit i_visit of a layer: h [n][hidden], of positions pos0 to
     * pos0 + n - 1. A layer that is masked off leaves what it found. NULL = not wanted. */
    void (*layer)(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n);
    void *ctx;
} csn_tap;

#endif
