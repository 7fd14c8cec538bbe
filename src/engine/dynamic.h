/* SPDX-License-Identifier: Apache-2.0 */
/* Skills that change in the middle of an answer (facts 10.4): an exponential mean of the hidden
 * state is looked at every few tokens, with hysteresis.
 *
 * Only skills that replace FFN tensors alone and have a selection take part. A switch evaluates the
 * whole timeline again with the new skill: keys and values belong to the skill that made them. */
#ifndef CSN_ENGINE_DYNAMIC_H
#define CSN_ENGINE_DYNAMIC_H

#include "engine/route.h"

typedef struct csn_dynamic_options {
    double e_on;     /* a skill whose E is below this may begin */
    double e_off;    /* one above this ends */
    double margin;   /* another must be better by this */
    uint32_t period; /* tokens of the answer between two looks */
} csn_dynamic_options;

csn_dynamic_options csn_dynamic_defaults(void);

/* Who runs next of n candidates with these E; -1 = the backbone. */
int64_t csn_dynamic_choose(const csn_dynamic_options *o, const double *errors, uint32_t n,
                           int64_t active);

typedef struct csn_dynamic_step {
    uint32_t i_token;           /* of the answer, from 0 */
    const csn_cmf_skill *skill; /* that goes on from here; NULL = the backbone */
    double error;               /* the smallest E at the last look; < 0: there was none yet */
    bool is_look, is_switch;
} csn_dynamic_step;

typedef struct csn_dynamic csn_dynamic;
/* Looks into every later eval of the session. CAISSON_E_MISSING: no skill of the file can take
 * part; else the errors of csn_session_set_skill for each that can. */
caisson_status csn_dynamic_new(csn_model *model, csn_session *session,
                               const csn_dynamic_options *options, csn_dynamic **ret,
                               caisson_error *err);
void csn_dynamic_free(csn_dynamic *d); /* before the session; NULL is fine */
/* Before a prompt: the session forgets all tokens and runs the backbone. */
caisson_status csn_dynamic_begin(csn_dynamic *d, caisson_error *err);
/* After a token of the answer was evaluated; ids: all that the session holds. The logits that
 * follow are then those of *ret->skill. */
caisson_status csn_dynamic_token(csn_dynamic *d, const int32_t *ids, const csn_progress *progress,
                                 csn_dynamic_step *ret, caisson_error *err);

#endif
