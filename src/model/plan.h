/* SPDX-License-Identifier: Apache-2.0 */
/* What a forward pass does, layer by layer: decided once, at open, from arch and the tensors that
 * are there (facts 15.1), and checked so completely that the forward pass checks nothing. */
#ifndef CSN_MODEL_PLAN_H
#define CSN_MODEL_PLAN_H

#include "kernels/kernels.h"
#include "kernels/vec.h"
#include "store/stream.h"
#include "store/trunk.h"

/* A matrix with the kernels that run it. */
typedef struct csn_weight {
    csn_matrix m;
    csn_str name;  /* of its tensor in the file */
    uint64_t rows; /* of the result: m.rows, or fewer for a head wider than the vocabulary */
    csn_matmul_f32_fn f32;
    csn_matmul_i8_fn i8;           /* NULL: f32 activations in int8 mode too */
    csn_scale_x_fn scale_x;        /* NULL: no column factors */
    csn_matmul_i8_rows_fn i8_rows; /* NULL: rows are computed run by run */
    csn_matmul_i8_fn i8_exact;     /* NULL: the input is quantised whole */
    const float *bias;             /* [rows] or NULL */
} csn_weight;

csn_weight csn_weight_make(const csn_matrix *m, csn_str name);

typedef struct csn_expert { /* down (act(gate x) * (up x)) */
    csn_weight gate, up, down;
} csn_expert;

typedef struct csn_latent { /* experts that work at a width of their own: up (norm (sum of down)) */
    csn_weight down, up;    /* [dim][hidden], [hidden][dim] */
    const float *norm;      /* [dim] or NULL */
} csn_latent;

enum { CSN_MAX_EXPERT_GROUPS = 256 };

/* Vector-quantised experts (quant/vq.h), the same in all layers: gate and up [width][hidden]. */
typedef struct csn_vq_sizes {
    uint32_t hidden, width;
    uint32_t stages, entries;
    bool is_packed;
} csn_vq_sizes;

typedef struct csn_moe {
    csn_weight router;   /* [n_experts][hidden] */
    const float *bias;   /* [n_experts] added to weights when choosing; or NULL */
    csn_expert *experts; /* [n_experts]; NULL: records of `bank` */
    const csn_warp_bank *bank;
    csn_stream *stream;      /* NULL: experts are in memory; else their matrices have no data */
    uint32_t i_stream;       /* the layer's number there */
    csn_latent *latent;      /* or NULL: experts work at hidden */
    csn_expert *shared;      /* runs for every token; or NULL */
    csn_weight *shared_gate; /* [1][hidden]: its sigmoid weighs the shared expert; NULL = 1 */
    uint32_t n_experts, top_k;
    uint32_t dim;                 /* columns of the experts' gate and up */
    uint32_t n_group, topk_group; /* experts are chosen from topk_group of n_group groups; 0, 1:
                                     from all */
    bool group_max;               /* a group is as good as its best expert, not as its two best */
    bool is_sigmoid;              /* weights are sigmoids of logits, else their softmax */
    bool norm_topk_prob;          /* the weights of the chosen are scaled to the sum 1 */
    float scale;                  /* and then multiplied by this */
} csn_moe;

/* Latent attention (MLA). Query heads are [n_nope | n_rope]; the cache holds [n_latent | n_rope] a
 * position. */
typedef struct csn_mla {
    csn_weight q;           /* [n_heads][n_nope + n_rope], from q_a's result or the layer's input */
    csn_weight *q_a;        /* or NULL */
    const float *q_a_norm;  /* behind it */
    csn_weight kv_a;        /* [n_latent + n_rope][hidden] */
    const float *kv_a_norm; /* [n_latent] */
    csn_weight kv_b;        /* [n_heads][n_nope rows for keys, n_v for values][n_latent] */
    csn_weight *gate;       /* its sigmoid multiplies the result; or NULL */
    uint32_t n_nope, n_rope, n_latent, n_v;
    bool has_pairs; /* dims (2j, 2j + 1) rotate together, else halves */
    float scale;
    float norm_eps; /* of q_a_norm and kv_a_norm */
} csn_mla;

/* Kimi Delta Attention. Width = n_heads * dim. */
typedef struct csn_kda {
    csn_weight q, k, v;   /* [width][hidden] */
    csn_weight f_a, f_b;  /* decay: [dim][hidden], [width][dim] */
    csn_weight beta;      /* [n_heads][hidden] */
    csn_weight *gate_a;   /* [dim][hidden] or NULL */
    csn_weight gate;      /* [width], from gate_a's result or the layer's input */
    const float *taps[3]; /* of q, k, v: [conv_width][width], the last is the present token's */
    const float *rate;    /* [n_heads] */
    const float *dt_bias; /* [width] */
    const float *o_norm;  /* [dim] */
    const float *q_norm, *k_norm; /* [dim] constants; with unit_eps */
    float unit_eps;
    float bound; /* below 0: the bounded decay (kernels/vec.h) */
    uint32_t n_heads, dim, conv_width;
} csn_kda;

enum { CSN_MAX_MLA_DIM = 1 << 20, CSN_MAX_KDA_DIM = 1024, CSN_MAX_RES_BLOCKS = 128 };

/* Frequencies of a rotary embedding; layers of one kind share one. */
typedef struct csn_rope {
    bool is_local; /* the table of sliding layers with a base of their own */
    uint32_t rotary_dim;
    uint64_t before;            /* half the rotary dims of the tables in front of it */
    const float *inv_freq;      /* [rotary_dim / 2] */
    const float *inv_freq_long; /* longrope: used beyond the original context; else NULL */
    float magnitude;            /* cos and sin are multiplied by it */
} csn_rope;

typedef struct csn_layer {
    const float *input_norm;     /* [hidden]; of a gemma style norm these hold 1 + w */
    const float *post_attn_norm; /* on the attention's output, before the residual; or NULL */
    const float *pre_ffn_norm;
    const float *post_ffn_norm;      /* on the FFN's output, before the residual; or NULL */
    const float *q_norm, *k_norm;    /* [head_dim] or NULL */
    csn_weight q, k, v;              /* of ordinary attention */
    csn_weight o;                    /* [hidden][width of the attention's result] */
    csn_mla *mla;                    /* latent attention in place of q, k, v; or NULL */
    csn_kda *kda;                    /* linear attention in their place; or NULL */
    const csn_weight *first[3];      /* products that the layer begins with; the rest NULL */
    const float *attn_res, *ffn_res; /* [hidden] attention residuals: norm times projection */
    csn_weight gate, up, down;       /* unless there is a mixture */
    csn_moe *moe;                    /* or NULL */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t ffn;    /* gate.rows; of a mixture the widest expert's */
    uint32_t window; /* 0 = sees all keys */
    uint32_t i_rope;
} csn_layer;

enum { CSN_MAX_ROPES = 4 };

typedef struct csn_plan {
    csn_layer *layers; /* [n_layers] */
    uint32_t n_layers, hidden, vocab;
    uint32_t n_loops; /* the stack runs this often; each visit of a layer has its own cache */
    bool loop_norm;   /* the final norm also runs between two passes */
    csn_rows embed;
    csn_weight head;
    bool head_is_tied;
    const float *final_norm;
    csn_rope ropes[CSN_MAX_ROPES];
    uint32_t n_ropes;
    uint32_t rope_original; /* longrope: original_max_position_embeddings */
    float norm_eps, attn_scale, attn_softcap, final_softcap, embed_multiplier, logit_multiplier;
    bool v_norm;
    csn_vec_act act;
    uint32_t res_block; /* attention residuals: layers of a block; 0 = none */
    const float *output_res;
    bool is_recurrent;               /* some layer carries a state that cannot go back */
    uint32_t max_q, max_kv, max_ffn; /* widest of all layers */
    uint32_t max_gate;               /* of FFNs and of attention's gates */
    uint32_t max_low;                /* inner projections of attention */
    csn_vq_sizes vq;                 /* width 0: no experts of that kind */
    csn_trunk *trunk; /* layers' weights have to be asked for; NULL: they are in memory */
    uint32_t max_experts, max_top_k, max_latent; /* 0 = no mixture anywhere */
    uint64_t bytes_per_token;
} csn_plan;

/* Blocks of attention residuals that are kept in front of layer i, in all those of n layers. */
static inline uint32_t csn_plan_n_res(const csn_plan *p, uint32_t i_layer) {
    return p->res_block == 0 ? 0 : (i_layer + p->res_block - 1) / p->res_block;
}

/* Visits of layers in one forward pass: visit v runs layer v mod n_layers. */
static inline uint32_t csn_plan_n_visits(const csn_plan *p) {
    return p->n_layers * p->n_loops;
}

typedef struct csn_plan_part {
    csn_str skill;
    float weight; /* of a blend */
} csn_plan_part;

/* Fills *ret; arrays go to `arena`. No parts: the backbone alone. One: tensors "skill.ID.NAME"
 * stand in for NAME, one by one, nothing is copied (CMF 9). More: a tensor that any of them
 * replaces is the f32 sum of weight * tensor over the parts in their order, where a part without it
 * gives the backbone's; such sums are kept in `arena`. A skill's tensor has the shape of the one it
 * replaces (CAISSON_E_PARSE). */
caisson_status csn_plan_make(csn_store *store, const csn_plan_part *parts, uint32_t n_parts,
                             csn_arena *arena, csn_plan *ret, caisson_error *err);

#endif
