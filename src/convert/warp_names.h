/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors a WARP trunk holds (warp facts 3.1), and how CMF's names become WARP's. */
#ifndef CSN_CONVERT_WARP_NAMES_H
#define CSN_CONVERT_WARP_NAMES_H

#include "convert/warp_words.h"
#include "quant/dtype.h"

/* What a layer must be or have for a tensor to be there. */
enum {
    CSN_WARP_KDA = 1,
    CSN_WARP_MLA = 2,
    CSN_WARP_DENSE = 4,
    CSN_WARP_MIXTURE = 8,
    CSN_WARP_RESIDUALS = 16,
    CSN_WARP_FULL_GATE = 32,
    CSN_WARP_LOW_GATE = 64,
    CSN_WARP_Q_LORA = 128,
    CSN_WARP_Q_DIRECT = 256,
    CSN_WARP_MLA_GATE = 512,
    CSN_WARP_LATENT = 1024,
    CSN_WARP_OF_MODEL = 2048 /* once, not of a layer */
};

typedef enum csn_warp_role { /* what random weights should be like */
                             CSN_WARP_WEIGHT,
                             CSN_WARP_HEAD,
                             CSN_WARP_NORM,
                             CSN_WARP_CONV,
                             CSN_WARP_A_LOG,
                             CSN_WARP_DT_BIAS,
                             CSN_WARP_SCORE_BIAS
} csn_warp_role;

typedef enum csn_warp_dim {
    CSN_WARP_DIM_NONE, /* behind the last */
    CSN_WARP_DIM_ONE,
    CSN_WARP_DIM_VOCAB,
    CSN_WARP_DIM_HIDDEN,
    CSN_WARP_DIM_FFN,
    CSN_WARP_DIM_EXPERTS,
    CSN_WARP_DIM_SHARED,
    CSN_WARP_DIM_LATENT,
    CSN_WARP_DIM_KDA_HEADS,
    CSN_WARP_DIM_KDA_HEAD,
    CSN_WARP_DIM_KDA,
    CSN_WARP_DIM_KDA_CONV,
    CSN_WARP_DIM_Q_LORA,
    CSN_WARP_DIM_Q,
    CSN_WARP_DIM_KV_LORA,
    CSN_WARP_DIM_KV_A,
    CSN_WARP_DIM_KV_B,
    CSN_WARP_DIM_V
} csn_warp_dim;

typedef struct csn_warp_row {
    const char *name; /* WARP's, behind the prefix and, of a layer, behind "model.layers.N." */
    const char *cmf;  /* CMF's, where it differs */
    unsigned needs;
    csn_warp_dim dims[3];
    csn_warp_role role;
} csn_warp_row;

extern const csn_warp_row
    csn_warp_rows[]; /* those of the model first; behind the last: name NULL */

uint64_t csn_warp_row_dim(const csn_warp_words *c, csn_warp_dim d);
unsigned csn_warp_layer_has(const csn_warp_words *c, uint32_t i_layer);

/* The row of a tensor by CMF's name, NULL if WARP knows none. Of a layer: *ret_layer is its number.
 */
const csn_warp_row *csn_warp_row_find(const csn_warp_words *c, csn_str cmf_name,
                                      uint32_t *ret_layer);
/* True for "model.layers.L.mlp.experts.E.K_proj.weight"; *ret_kind as csn_warp_kind. */
bool csn_warp_expert_of(csn_str cmf_name, uint32_t *ret_layer, uint32_t *ret_expert,
                        unsigned *ret_kind);
/* As the format's converter chooses: the embedding and the head 8 bits, vectors and small tensors
 * f32, the others `bits` (warp facts 3). */
const csn_dtype *csn_warp_row_dtype(const csn_warp_row *r, const csn_shape *shape, unsigned bits);

#endif
