/* SPDX-License-Identifier: Apache-2.0 */
/* What a session can run: the backbone, one of the file's skills (CMF 9) or a blend of several,
 * each with the task mask that goes with it. The backbone and each skill are resolved when first
 * chosen and kept: to switch is to change a pointer. */
#ifndef CSN_ENGINE_VARIANT_H
#define CSN_ENGINE_VARIANT_H

#include "model/active.h"
#include "model/model.h"

typedef struct csn_variant {
    const csn_plan *plan;     /* NULL: not resolved yet */
    csn_str skill;            /* its id; empty: the backbone, or a blend */
    const csn_cmf_mask *mask; /* or NULL */
    csn_active *active;       /* what the mask leaves; NULL: everything */
} csn_variant;

typedef struct csn_variants {
    csn_model *model;
    csn_variant *list; /* [1 + n_skills of the file] the backbone, then each skill */
    uint32_t n;
    csn_variant blend; /* the last one that was made */
    csn_plan blend_plan;
    csn_arena blend_arena; /* its arrays and tensors */
    bool has_task;
    csn_str task;
    csn_arena arena;
} csn_variants;

/* `task`: as in csn_session_options. */
caisson_status csn_variants_init(csn_model *model, const char *task, csn_variants *ret,
                                 caisson_error *err);
void csn_variants_done(csn_variants *v); /* of a zeroed one too */

/* Skill `id`, empty = the backbone. Good until csn_variants_done. CAISSON_E_MISSING lists the
 * ids that there are, or the masks. */
caisson_status csn_variants_get(csn_variants *v, csn_str id, const csn_variant **ret,
                                caisson_error *err);
/* The sum of n parts (csn_plan_make), with the mask of the backbone; good until the next blend. On
 * failure the last one is gone. CAISSON_E_MISSING: no such skill. */
caisson_status csn_variants_blend(csn_variants *v, const csn_plan_part *parts, uint32_t n,
                                  const csn_variant **ret, caisson_error *err);

#endif
