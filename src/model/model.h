/* SPDX-License-Identifier: Apache-2.0 */
/* A model ready to run: the plan (which block each layer is, and why) over a store, and one forward
 * pass shared by all families. The plan looks at arch and the directory alone, never at arch_name.
 *
 * Immutable after open, but for plans of skills, which are made when first asked for; shared by
 * sessions.
 */
#ifndef CSN_MODEL_MODEL_H
#define CSN_MODEL_MODEL_H

#include "model/plan.h"

typedef struct csn_model csn_model;

/* Takes ownership of the store on success. Missing tensors, shapes that contradict arch, dtypes
 * that cannot run and arch keys that the engine does not execute are refused here, by name. */
caisson_status csn_model_new(csn_store *store, csn_model **ret, caisson_error *err);
void csn_model_free(csn_model *m);
const csn_arch *csn_model_arch(const csn_model *m);
csn_store *csn_model_store(const csn_model *m);
const csn_plan *csn_model_plan(const csn_model *m);
/* The plan with one of the file's skills (csn_cmf_find_skill), good until the model is freed. The
 * first call for a skill makes it (errors of csn_plan_make), later ones look it up. Any thread. */
caisson_status csn_model_skill_plan(csn_model *m, const csn_cmf_skill *skill, const csn_plan **ret,
                                    caisson_error *err);
/* Tokens of a prompt that a session may take at once; set before there is one. No limit unless it
 * was set. */
void csn_model_set_max_ubatch(csn_model *m, uint32_t n);
uint32_t csn_model_max_ubatch(const csn_model *m);
/* Bytes that a session may spend on copies of what its task mask leaves (packed.h); as above. */
void csn_model_set_max_packed(csn_model *m, uint64_t n);
uint64_t csn_model_max_packed(const csn_model *m);
/* Bytes of weights that one decoded token reads. */
uint64_t csn_model_bytes_per_token(const csn_model *m);
/* Which blocks layer i uses and why, as JSON members of an open object. */
void csn_model_describe_layer(const csn_model *m, uint32_t i_layer, csn_jw *w);

#endif
