/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass: token ids at consecutive positions in, hidden states and logits out. */
#ifndef CSN_MODEL_FORWARD_H
#define CSN_MODEL_FORWARD_H

#include "base/progress.h"
#include "model/blocks/blocks.h"

/* The memory of a forward pass for up to max_n tokens; belongs to one session. */
typedef struct csn_forward {
    const csn_plan *plan;
    const csn_active *active; /* task mask, or NULL; the session's */
    csn_ops ops;
    uint64_t max_n;
    float *memory;    /* everything below */
    float *h;         /* [max_n][hidden] residual stream */
    float *x;         /* [max_n][hidden] normalised */
    float *q, *att;   /* [max_n][max_q] */
    float *k, *v;     /* [max_n][max_kv] */
    float *gate, *up; /* [max_n][max_gate] */
    float *low;       /* [max_n][max_low] */
    float *res;       /* [blocks][max_n][hidden] the stream at the start of each block of layers */
    float *cos, *sin; /* of each rope [max_n][rotary_dim / 2] */
    float *scratch;
    float *mixed; /* [max_n][hidden] result of a mixture, when there is one */
    csn_moe_memory moe;
} csn_forward;

enum { CSN_LOGIT_ROWS = 16 }; /* most rows of one csn_forward_logits */

caisson_status csn_forward_init(const csn_plan *plan, csn_pool *pool, csn_compute compute,
                                uint64_t max_n, csn_forward *ret, caisson_error *err);
void csn_forward_done(csn_forward *f); /* of a zeroed one too */
/* Bytes that csn_forward_init allocates for a pool of n_threads; UINT64_MAX: more than there can
 * be. */
uint64_t csn_forward_nbytes(const csn_plan *plan, unsigned n_threads, csn_compute compute,
                            uint64_t max_n);

/* Runs n <= max_n checked ids at positions pos0 .. pos0 + n, filling kv. Hidden states of rows
 * [row0, n) are left in f->h at their row; others are unspecified. `use_long`: longrope's second
 * table. `progress` is asked between layers (CAISSON_E_CANCELLED). Other errors are those of
 * reading embeddings, experts and the trunk; hidden states and kv from pos0 on are then
 * unspecified. */
caisson_status csn_forward_run(csn_forward *f, csn_kv *kv, const int32_t *ids, uint32_t pos0,
                               uint64_t n, uint64_t row0, bool use_long,
                               const csn_progress *progress, caisson_error *err);

/* logits [rows][vocab], rows <= CSN_LOGIT_ROWS, of hidden states [row0, row0 + rows) of the last
 * run. Errors and `progress` are those of reading a head that does not stay in memory. */
caisson_status csn_forward_logits(csn_forward *f, uint64_t row0, uint64_t rows, float *logits,
                                  const csn_progress *progress, caisson_error *err);

#endif
