/* SPDX-License-Identifier: Apache-2.0 */
/* What the operations on skills share. */
#ifndef CSN_CONVERT_SKILL_INTERNAL_H
#define CSN_CONVERT_SKILL_INTERNAL_H

#include "format/cmf/cmf.h"

/* CAISSON_E_UNSUPPORTED for a shard, which grows by itself and knows nothing of the others, and for
 * a skill by itself. */
caisson_status csn_skill_check_model(const csn_cmf *c, caisson_error *err);
/* The header with `skills` as this JSON array; an empty one is left out. */
caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills, caisson_error *err);

#endif
