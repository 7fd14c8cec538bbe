/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the plan share while it is being made. */
#ifndef CSN_MODEL_PLAN_INTERNAL_H
#define CSN_MODEL_PLAN_INTERNAL_H

#include "model/plan.h"

struct csn_maker {
    csn_store *store;
    const csn_arch *arch;
    const csn_directory *dir;
    csn_arena *arena;
    csn_plan *plan;
    const csn_plan_part *parts; /* [n_parts] skills whose tensors stand in for the backbone's */
    uint32_t n_parts;
    bool *used; /* [dir->n] tensors that the plan executes, and those that a skill stands in for */
    char name[160];
};

static inline void csn_plan_widen(uint32_t *max, uint64_t n) { /* n < 2^31 */
    *max = n > *max ? (uint32_t)n : *max;
}

/* "model.layers.I.SUFFIX"; valid until the next call. */
csn_str csn_plan_name(struct csn_maker *m, uint32_t i_layer, const char *suffix);
bool csn_plan_has(const struct csn_maker *m, csn_str name);
/* How the store hands out a tensor: csn_store_matrix or csn_store_weight. */
typedef caisson_status (*csn_plan_get_fn)(csn_store *s, csn_str name, csn_matrix *ret,
                                          caisson_error *err);
/* What the skills put in the place of the backbone's t; *ret_found false: none has it, nothing else
 * is written. *ret_name is written where one entry alone is read. */
caisson_status csn_plan_from_skills(struct csn_maker *m, const csn_tensor *t, bool *ret_found,
                                    csn_matrix *ret, csn_str *ret_name, caisson_error *err);
/* True for the name of a tensor that belongs to one of the skills in use. */
bool csn_plan_is_of_skill(const struct csn_maker *m, csn_str name);
/* A matrix [rows][cols]; rows 0 = any number above 0. */
caisson_status csn_plan_weight(struct csn_maker *m, csn_str name, uint64_t rows, uint64_t cols,
                               csn_weight *ret, caisson_error *err);
/* n values as f32, plus `add`. */
caisson_status csn_plan_vector(struct csn_maker *m, csn_str name, uint64_t n, float add,
                               const float **ret, caisson_error *err);
/* gate_proj, up_proj and down_proj behind "model.layers.I.PREFIX", from and to `dim` values; the
 * gate's rows are the width. */
caisson_status csn_plan_expert(struct csn_maker *m, uint32_t i_layer, const char *prefix,
                               uint64_t dim, csn_expert *ret, caisson_error *err);

#endif
