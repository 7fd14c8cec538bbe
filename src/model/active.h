/* SPDX-License-Identifier: Apache-2.0 */
/* What runs under a task mask (CMF 5, facts 6.4): layers, heads, neurons, experts. Weights do not
 * change; what is not active is neither read nor computed, and the result is that of a model in
 * which the columns behind it (of o_proj, of down_proj) are zero. */
#ifndef CSN_MODEL_ACTIVE_H
#define CSN_MODEL_ACTIVE_H

#include "model/plan.h"

typedef struct csn_run {
    uint32_t first, end; /* [first, end) */
    uint32_t before;     /* rows of the runs in front of it */
} csn_run;

typedef struct csn_runs { /* rising, apart */
    csn_run *runs;        /* [n] */
    uint32_t *rows;       /* [n_rows] the same one by one */
    uint32_t n, n_rows;
} csn_runs;

/* Copies of what is active of a dense layer's FFN (packed.h). */
typedef struct csn_packed_ffn {
    csn_weight gate, up; /* rows of active neurons, one after another */
    csn_weight down;     /* the layer's own where nothing can be left out */
    const uint32_t *at; /* [gate.rows] the column of `down` that each feeds; NULL = in order, all */
} csn_packed_ffn;

typedef struct csn_active_visit {
    bool is_off;                  /* the layer is passed by: no residual, no keys */
    const csn_runs *ffn;          /* active neurons of a dense layer; NULL = all */
    const csn_packed_ffn *packed; /* or NULL: they are read where they lie */
    const csn_runs *q, *kv;  /* rows of q_proj, of k_proj and v_proj; NULL = all. Latent: of the
                                queries, of the gate; linear: q, of all that heads have */
    const csn_runs *latent;  /* query heads of latent attention; NULL = all */
    const uint8_t *heads;    /* bits of query heads, of linear attention's; NULL = all */
    const uint8_t *kv_heads; /* bits of key heads that an active query head reads; NULL = all */
    const uint8_t *experts;  /* bits of experts that may be chosen; NULL = all */
    uint32_t n_experts;      /* how many */
} csn_active_visit;

typedef struct csn_active {
    csn_active_visit *visits; /* [csn_plan_n_visits] */
    csn_arena arena;
    uint8_t *packed; /* memory of copies (packed.h); or NULL */
} csn_active;

/* True for every i when there are no bits. */
static inline bool csn_is_active(const uint8_t *bits, uint64_t i) {
    return bits == NULL || csn_bit(bits, i);
}

/* *ret is NULL for a mask in which everything is active: it costs nothing. CAISSON_E_PARSE: the
 * mask marks a neuron or head that its layer does not have, or leaves a mixture without an expert.
 * The mask need not outlive *ret. */
caisson_status csn_active_new(const csn_plan *plan, const csn_arch *arch, const csn_cmf_mask *mask,
                              csn_active **ret, caisson_error *err);
void csn_active_free(csn_active *a); /* NULL is fine */

#endif
