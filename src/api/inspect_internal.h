/* SPDX-License-Identifier: Apache-2.0 */
/* The struct behind caisson_file, shared by inspect.c and describe*.c. */
#ifndef CSN_API_INSPECT_INTERNAL_H
#define CSN_API_INSPECT_INTERNAL_H

#include "api_internal.h"
#include "caisson/inspect.h"

typedef struct csn_api_experts csn_api_experts;

struct caisson_file {
    csn_cmf *cmf; /* one of these two; owned by `store` */
    csn_warp *warp;
    const csn_directory *dir;
    csn_api_experts *experts; /* of a .waste: its tensors follow those of `dir` */
    csn_store *store;         /* owned by `model` once that exists */
    csn_model *model;         /* made when the layers are asked for and the file can run */
};

/* What only a .cmf has; CAISSON_E_UNSUPPORTED for another container. */
caisson_status csn_api_file_need_cmf(const caisson_file *f, caisson_error *err);

/* ---- matrices of a .waste's experts as tensors "model.layers.L.mlp.experts.E.gate_proj.weight"
 * (experts.c), by layer, expert, kind; `verify`: a record that is read has its checksum ---- */
caisson_status csn_api_experts_new(const csn_warp *w, bool verify, csn_api_experts **ret,
                                   caisson_error *err);
void csn_api_experts_free(csn_api_experts *e); /* NULL is fine */
uint32_t csn_api_experts_n(const csn_api_experts *e);
bool csn_api_experts_tensor(const csn_api_experts *e, uint32_t i, caisson_tensor_info *ret);
int64_t csn_api_experts_find(const csn_api_experts *e, csn_str name); /* -1: there is none */
/* Values [first, first + n), which are in the tensor. */
caisson_status csn_api_experts_decode(csn_api_experts *e, uint32_t i, uint64_t first, uint64_t n,
                                      float *out, caisson_error *err);
/* "vq3r", "vq2r", "vq4p"; "vq" for another number of stages or entries. */
const char *csn_api_experts_dtype(const csn_warp *w);

/* The members "container", "parameters" and "experts" of a .waste directory (describe_waste.c). */
caisson_status csn_api_put_waste(csn_jw *w, const csn_warp *warp, caisson_error *err);
/* The members "masks" and "skills" of an open object (describe_tasks.c). */
void csn_api_put_masks(csn_jw *w, const csn_cmf *c);
void csn_api_put_skills(csn_jw *w, const csn_cmf *c);
/* The member "sparse_index", which is read from the file. */
caisson_status csn_api_put_index(csn_jw *w, csn_cmf *c, caisson_error *err);

#endif
