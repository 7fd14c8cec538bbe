/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a layer. Each works on n vectors at once, over the pool of `ops`; the bits of a
 * vector depend neither on n nor on the number of threads. */
#ifndef CSN_MODEL_BLOCKS_BLOCKS_H
#define CSN_MODEL_BLOCKS_BLOCKS_H

#include "model/kv.h"
#include "model/ops.h"
#include "model/plan.h"

/* Finds or makes the table of frequencies that layer i uses. */
caisson_status csn_rope_plan(const csn_arch *a, uint32_t i_layer, csn_arena *arena, csn_plan *plan,
                             uint32_t *ret, caisson_error *err);
/* cos and sin [n][rotary_dim / 2] of positions pos0 .. pos0 + n. */
void csn_rope_tables(const csn_rope *r, bool use_long, uint32_t pos0, uint32_t n, float *cos,
                     float *sin);

/* y[t] = norm(x[t]) * w; vectors of `dim` values, strides in floats. y may be x. */
void csn_block_norm(csn_ops *ops, const float *x, uint64_t x_stride, const float *w, float eps,
                    float *y, uint64_t y_stride, uint64_t n, uint64_t dim);
/* y[t] += x[t] */
void csn_block_add(csn_ops *ops, float *y, const float *x, uint64_t n, uint64_t dim);

/* Normalises heads, rotates q and k, and stores k and v at positions pos0 .. pos0 + n. */
void csn_block_heads(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                     uint32_t i_layer, uint32_t pos0, uint64_t n, float *q, float *k, float *v,
                     const float *cos, const float *sin);
/* Attention of queries row0 .. n (positions pos0 + row0 ..); scratch: csn_attention_scratch. */
void csn_block_attention(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                         uint32_t i_layer, uint32_t pos0, uint64_t row0, uint64_t n, const float *q,
                         float *out, float *scratch);
/* Floats of scratch for all threads of ops' pool. */
uint64_t csn_attention_scratch(const csn_plan *plan, unsigned n_threads);

#endif
