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
    csn_str skill; /* whose tensors stand in for the backbone's; empty = none */
    bool *used; /* [dir->n] tensors that the plan executes, and those that a skill stands in for */
    char name[160];
};

/* "model.layers.I.SUFFIX"; valid until the next call. */
csn_str csn_plan_name(struct csn_maker *m, uint32_t i_layer, const char *suffix);
bool csn_plan_has(const struct csn_maker *m, csn_str name);
/* A matrix [rows][cols]; rows 0 = any number above 0. */
caisson_status csn_plan_weight(struct csn_maker *m, csn_str name, uint64_t rows, uint64_t cols,
                               csn_weight *ret, caisson_error *err);
/* gate_proj, up_proj and down_proj behind "model.layers.I.PREFIX"; the gate's rows are the width.
 */
caisson_status csn_plan_expert(struct csn_maker *m, uint32_t i_layer, const char *prefix,
                               csn_expert *ret, caisson_error *err);

#endif
