/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors the target has, from which bytes of the source each is made, and in which dtype it
 * is stored. */
#ifndef CSN_CONVERT_PLAN_H
#define CSN_CONVERT_PLAN_H

#include "convert/convert.h"
#include "convert/source.h"

typedef struct csn_convert_item {
    csn_str name; /* ours */
    const csn_tensor *source;
    const csn_tensor *scale; /* f8 block scales, or NULL */
    /* kv_b_proj of GGUF: `source` is [heads][latents][keys' rows], turned, and this
     * [heads][values' rows][latents]; else NULL. */
    const csn_tensor *values;
    csn_shape shape;  /* ours */
    uint64_t row0;    /* first row of the source that is ours */
    uint64_t cut_row; /* of a piece of a tensor: its first row there */
    uint32_t permute; /* head_dim when rows lie interleaved (GGUF llama), else 0 */
    float add;        /* -1 where the source stores 1 + w */
    bool is_log;      /* of x the source stores -exp(x) */
    bool is_flat;     /* the source's shape says nothing: it is read as one row */
    const csn_dtype *to;
    float bits_bias; /* of vbit and vbit_ro, beyond the options' mean_bits */
    bool is_copied;  /* byte for byte: the source has this dtype already */
    bool kept_f32;   /* a value that f16 cannot hold: `to` is f32 against the rules */
} csn_convert_item;

typedef struct csn_convert_plan {
    csn_convert_item *items; /* [n], in file order */
    uint32_t n;
} csn_convert_plan;

/* CAISSON_E_MISSING: a tensor that the family needs; CAISSON_E_PARSE: a shape that contradicts
 * arch; CAISSON_E_UNSUPPORTED: a tensor that nobody asked for, or a dtype that we cannot decode. */
caisson_status csn_convert_plan_make(const csn_source *s, const csn_log *log, csn_arena *arena,
                                     csn_convert_plan *ret, caisson_error *err);
/* A dim of a row, of a family's tables. */
uint64_t csn_convert_dim(const csn_arch *a, csn_dim d);
/* The name of a row in one layer, of one expert, in place of what `ret` held. */
caisson_status csn_convert_row_name(const char *pattern, uint32_t layer, uint32_t expert,
                                    csn_buf *ret, caisson_error *err);
/* Whether a row that stands for a tensor of each layer has one in a layer of this kind. */
bool csn_convert_row_is_there(const csn_name_row *row, bool is_mixture, bool is_kda);
/* The same of a .cmf or a WARP directory: every tensor under its name, in its order. */
caisson_status csn_convert_plan_cmf(const csn_source *s, csn_arena *arena, csn_convert_plan *ret,
                                    caisson_error *err);
/* Sets items[].to and is_copied. Tensors of a .cmf that no rule names and that are no matrices stay
 * as they are, all of them when o->quant is NULL. A rule is taken at its word: what its dtype
 * cannot hold is an error. */
caisson_status csn_convert_plan_dtypes(const csn_source *s, csn_convert_plan *plan,
                                       const csn_convert_options *o, caisson_error *err);
/* Rows of the source, a stack of matrices counted as one above the other. */
static inline uint64_t csn_convert_source_rows(const csn_tensor *source) {
    const csn_shape *s = &source->shape;
    return s->n_dims == 3 ? s->dim[0] * s->dim[1] : s->dim[0];
}
/* Bytes of the source that a tensor is made of. */
static inline uint64_t csn_convert_item_bytes(const csn_source *s, const csn_convert_item *item) {
    return s->cmf != NULL || item->is_flat
               ? item->source->nbytes
               : item->source->nbytes / csn_convert_source_rows(item->source) * item->shape.dim[0];
}
/* Vectors of which f16 would lose what counts: differences of biases around 8, logarithms. */
bool csn_convert_stays_f32(csn_str name);
/* '*' any run of characters, '?' one. */
bool csn_glob(csn_str pattern, csn_str name);

#endif
