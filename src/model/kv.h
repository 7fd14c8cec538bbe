/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one timeline: for each visit of a layer and kv head the arrays of kernels/vec.h, of
 * latent attention one row a position in type_k, of linear attention its state; in one block. */
#ifndef CSN_MODEL_KV_H
#define CSN_MODEL_KV_H

#include "model/plan.h"

typedef struct csn_kv {
    csn_kv_type type_k, type_v;
    uint32_t n_ctx;
    uint64_t *visit_offset; /* [csn_plan_n_visits] */
    uint8_t *bytes;
    uint64_t nbytes;
    _Atomic uint32_t lost; /* bits of the largest magnitude that did not fit its type; 0 = none */
} csn_kv;

/* Zeroed. A cache that cannot be allocated is CAISSON_E_NOMEM with its size. */
caisson_status csn_kv_new(const csn_plan *plan, uint32_t n_ctx, csn_kv_type type_k,
                          csn_kv_type type_v, csn_kv *ret, caisson_error *err);
/* What csn_kv_new would allocate. */
caisson_status csn_kv_nbytes(const csn_plan *plan, uint32_t n_ctx, csn_kv_type type_k,
                             csn_kv_type type_v, uint64_t *ret, caisson_error *err);
void csn_kv_free(csn_kv *kv); /* of a zeroed one too */

typedef struct csn_kda_state {
    float *conv; /* of q, k, v: [conv_width - 1][width] past inputs, oldest first */
    float *s;    /* [n_heads][blocks of CSN_DELTA_COLS columns][dim][CSN_DELTA_COLS] */
} csn_kda_state;

static inline uint64_t csn_kda_head_floats(const csn_kda *kda) {
    uint64_t blocks = ((uint64_t)kda->dim + CSN_DELTA_COLS - 1) / CSN_DELTA_COLS;
    return blocks * CSN_DELTA_COLS * kda->dim;
}
csn_kda_state csn_kv_get_kda(const csn_kv *kv, const csn_layer *l, uint32_t i_visit);

/* Notes what kv_store returns; from any thread. */
void csn_kv_note(csn_kv *kv, uint32_t lost);
/* Fails if anything was noted since the last call. */
caisson_status csn_kv_check(csn_kv *kv, uint32_t i_layer, caisson_error *err);

csn_kv_head csn_kv_get(const csn_kv *kv, const csn_layer *l, uint32_t i_visit, uint32_t i_head);

#endif
