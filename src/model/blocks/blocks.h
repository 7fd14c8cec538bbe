/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a layer. Each works on n vectors at once, over the pool of `ops`; the bits of a
 * vector depend neither on n nor on the number of threads. */
#ifndef CSN_MODEL_BLOCKS_BLOCKS_H
#define CSN_MODEL_BLOCKS_BLOCKS_H

#include "model/blocks/vq.h"
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

/* What q_proj, k_proj and v_proj gave for n vectors, [n][heads][head_dim], and the rotary tables.
 */
typedef struct csn_qkv {
    float *q, *k, *v;
    const float *cos, *sin; /* [n][rotary_dim / 2] */
} csn_qkv;

/* Normalises heads, rotates q and k and stores k and v at positions pos0 .. pos0 + n (x is
 * changed); then attention of queries row0 .. n (positions pos0 + row0 ..). `active` NULL =
 * everything runs; heads that are not active give zero. scratch: csn_attention_scratch. */
void csn_block_attention(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                         const csn_active_visit *active, uint32_t i_visit, uint32_t pos0,
                         uint64_t row0, uint64_t n, const csn_qkv *x, float *out, float *scratch);

/* Which tokens a block of attention sees: n at positions pos0 ..., results for those from row0 on.
 */
typedef struct csn_place {
    uint32_t i_visit, pos0;
    uint64_t row0, n;
    const float *cos, *sin; /* [n][rotary_dim / 2] */
} csn_place;

/* Memory of latent and linear attention for up to max_n vectors; widths are the plan's. */
typedef struct csn_attn_memory {
    float *q, *out;      /* [max_n][max_q] */
    float *k, *v;        /* [max_n][max_kv] */
    float *gate, *decay; /* [max_n][max_gate] */
    float *low;          /* [max_n][max_low] */
    float *scratch;      /* csn_mla_scratch */
} csn_attn_memory;

struct csn_maker;
/* Plan layer i as latent attention; as linear attention. */
caisson_status csn_mla_plan(struct csn_maker *m, uint32_t i_layer, csn_layer *l,
                            caisson_error *err);
caisson_status csn_kda_plan(struct csn_maker *m, uint32_t i_layer, csn_layer *l,
                            caisson_error *err);
/* Attention of the normalised x [n][hidden]; the result, [n][l->o.m.cols], lies in `mem`. `active`
 * NULL = all heads run; those that are not active give zero. The
 * linear one carries its state in kv on, from zero where pos0 is 0, for all n tokens. */
const float *csn_block_mla(csn_ops *ops, const csn_plan *plan, const csn_layer *l, csn_kv *kv,
                           const csn_active_visit *active, const csn_place *at,
                           const csn_attn_memory *mem, const float *x);
const float *csn_block_kda(csn_ops *ops, const csn_plan *plan, const csn_layer *l, const csn_kv *kv,
                           const csn_active_visit *active, const csn_place *at,
                           const csn_attn_memory *mem, const float *x);
uint64_t csn_mla_scratch(const csn_plan *plan, unsigned n_threads); /* floats */
uint64_t csn_kda_low(const csn_kda *kda);                           /* floats of `low` a vector */

/* y[t] = a mixture of blocks[b][t] and stream[t], by the softmax of w . v / rms(v). stream, y
 * [n][hidden], y apart from the rest; blocks block_stride floats apart. */
void csn_block_attn_res(csn_ops *ops, const csn_plan *plan, const float *w, const float *blocks,
                        uint64_t block_stride, uint32_t n_blocks, const float *stream, float *y,
                        uint64_t n);

typedef struct csn_pick {
    uint32_t i_expert;
    float weight;
} csn_pick;

/* Memory of a mixture for up to max_n vectors; sizes from the plan's widest. */
typedef struct csn_moe_memory {
    float *logits;              /* [max_n][max_experts] */
    csn_pick *picks;            /* [max_n][max_top_k], rising expert ids */
    uint32_t *cursor;           /* [max_n] the next pick of each vector */
    uint32_t *rows;             /* [max_n] vectors that go to one expert */
    float *weights;             /* [max_n] and their weights */
    float *x, *y;               /* [max_n][hidden] inputs and results of one expert */
    float *gate, *up;           /* [max_n][max_ffn] */
    float *latent_x, *latent_y; /* [max_n][max_latent] */
    /* of streamed experts */
    uint32_t *ids;                /* [max_experts] those that were chosen */
    uint8_t *is_chosen;           /* [max_experts] */
    uint32_t *at;                 /* [CSN_VQ_ROWS] where each pick's result is */
    const csn_progress *progress; /* asked while a read is waited for; or NULL */
    const float *meanwhile; /* [n][hidden] what the shared expert gets while reads run; or NULL */
    csn_vq_memory vq;
} csn_moe_memory;

/* Plans layer i, whose router is there. */
caisson_status csn_moe_plan(struct csn_maker *m, uint32_t i_layer, csn_layer *l,
                            caisson_error *err);
/* picks[t] = the experts of x[t] by rising id, csn_route_n_picks of them. Weights are the softmax
 * of the router's logits over all experts, or their sigmoid; chosen are the largest, or largest
 * with moe->bias, of the topk_group groups whose two best have the largest sum (the lower id of two
 * equal ones). norm_topk_prob: weights of the chosen are scaled to the sum 1. With active->experts
 * the router is that of a model in which the others do not exist. logits [n][n_experts] is working
 * memory. */
void csn_block_route(csn_ops *ops, const csn_moe *moe, const csn_active_visit *active,
                     const float *x, uint64_t x_stride, uint64_t n, float *logits, csn_pick *picks);
uint32_t csn_route_n_picks(const csn_moe *moe, const csn_active_visit *active);
/* y[t] = sum of the chosen experts of x[t], by rising id, then the shared one. x, y [n][hidden].
 * Errors: those of reading experts. */
caisson_status csn_block_moe(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                             csn_moe_memory *mem, const csn_active_visit *active, const float *x,
                             float *y, uint64_t n, caisson_error *err);
/* Has the experts read that a streamed mixture will probably choose for one token. x [hidden]: what
 * its input would be if nothing came before it any more. Picks and logits in mem are overwritten.
 */
void csn_block_look_ahead(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                          csn_moe_memory *mem, const csn_active_visit *active, const float *x);
/* gate = act(gate_proj x) * (up_proj x); gate, up [n][rows of gate_proj]. With `active` only those
 * neurons are computed, the others are zero. */
void csn_block_gate_up(csn_ops *ops, const csn_vec_act *act, const csn_weight *gate_proj,
                       const csn_weight *up_proj, const csn_runs *active, const float *x,
                       uint64_t x_stride, uint64_t n, float *gate, float *up);
/* The same of copies, for packed->down: returns where its input is, [n][packed->down.m.cols] in
 * `gate` or `up`. */
const float *csn_block_gate_up_packed(csn_ops *ops, const csn_vec_act *act,
                                      const csn_packed_ffn *packed, const float *x,
                                      uint64_t x_stride, uint64_t n, float *gate, float *up);

/* Floats of scratch for all threads of ops' pool. */
uint64_t csn_attention_scratch(const csn_plan *plan, unsigned n_threads);

#endif
