/* SPDX-License-Identifier: Apache-2.0 */
/* What adding a skill and changing its record share. */
#ifndef CSN_CONVERT_SKILL_INTERNAL_H
#define CSN_CONVERT_SKILL_INTERNAL_H

#include "format/cmf/cmf.h"

/* The header with `skills` as this JSON array; an empty one is left out. */
caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills, caisson_error *err);

#endif
