/* SPDX-License-Identifier: Apache-2.0 */
/* What the operations on skills share. */
#ifndef CSN_CONVERT_SKILL_INTERNAL_H
#define CSN_CONVERT_SKILL_INTERNAL_H

#include "base/json.h"
#include "format/cmf/cmf.h"

/* CAISSON_E_UNSUPPORTED for a skill by itself. */
caisson_status csn_skill_check_model(const csn_cmf *c, caisson_error *err);
/* What `base_dir_hash` says of this base (CMF 9.1). */
caisson_status csn_skill_base_key(csn_cmf *base, char ret[20], caisson_error *err);
/* The header with `skills` as this JSON array, and CSN_CMF_REMOVED_SKILLS as `removed` (NULL: as it
 * is); empty ones are left out. recalibrates: `routing` is made anew from what the skills keep of
 * their prompts; where none keeps any it stays. */
caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills,
                                      const csn_buf *removed, bool recalibrates,
                                      caisson_error *err);
/* The same with the record of `id` left out, or, if quality is not empty, with another `quality`.
 */
caisson_status csn_skill_edit_record(csn_cmf_append *a, csn_str id, csn_str quality,
                                     const csn_buf *removed, caisson_error *err);
/* A member of an open object, left out where it is empty. */
void csn_skill_put_text(csn_jw *w, const char *key, csn_str text);

#endif
