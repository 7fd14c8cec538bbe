/* SPDX-License-Identifier: Apache-2.0 */
/* Skills (CMF 9): sets of tensors in the file of a base model that stand in for the base's, one by
 * one. A session runs one of them, a blend of several, or the base alone, and changes between
 * requests. docs/skills.md says how they are made and chosen.
 */
#ifndef CAISSON_SKILL_H
#define CAISSON_SKILL_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the session runs skill `id`; NULL or "" = the base alone. Keys and values belong to
 * the skill that made them: with another skill than before the session forgets all tokens, so that
 * A, B, A gives A's first answer again, bit for bit. The first choice of a skill looks up its
 * tensors, later ones change a pointer.
 *
 * Errors: CAISSON_E_ARG, _MISSING (no such skill, or no mask of its input_mask_task), _PARSE,
 * _UNSUPPORTED (its tensors do not fit the base), _HASH (with `verify`). Nothing changes then. */
CAISSON_API caisson_status caisson_session_set_skill(caisson_session *session, const char *id,
                                                     caisson_error *err);

typedef struct caisson_blend_part {
    const char *skill;
    float weight; /* above 0; the session divides by the sum of all */
} caisson_blend_part;

/* The same for a blend of n skills: each tensor that any of them replaces becomes the sum over the
 * parts of weight * tensor, in f32, where a skill without that tensor gives the base's. The sums
 * are memory of the session: 4 bytes for each value of such a tensor. One part is that skill. */
CAISSON_API caisson_status caisson_session_set_blend(caisson_session *session,
                                                     const caisson_blend_part *parts, size_t n,
                                                     caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
