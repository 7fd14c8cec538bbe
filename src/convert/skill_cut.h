/* SPDX-License-Identifier: Apache-2.0 */
/* Skills by themselves (CMF 9.1, facts 10.5): cut from a model against its base, and laid over a
 * copy of that base again. */
#ifndef CSN_CONVERT_SKILL_CUT_H
#define CSN_CONVERT_SKILL_CUT_H

#include "base/progress.h"
#include "format/cmf/cmf.h"

/* Our members of record.provenance, in the object "caisson": names of all the model's tensors where
 * they are not the base's in its order, and the model's own registry. */
#define CSN_SKILL_CUT_TENSORS "tensors"
#define CSN_SKILL_CUT_SKILLS "skills"

typedef struct csn_skill_cut_options {
    csn_str name;   /* for people; empty = the skill's own */
    bool overwrite; /* of the target */
    const csn_progress *progress;
} csn_skill_cut_options;

/* Writes skill `id` of `model` as a file by itself, bound to `base` (its directory hash): with a
 * skill of that id in the model, its tensors under the names that they replace; without one (the
 * model is then a specialist, and not `base`), every tensor that the base does not have alike.
 * Masks come along, the tokenizer only where it is not the base's. CAISSON_E_MISSING: no such
 * skill; _ARG: nothing differs, a bad id; _PARSE: the two are not of one shape; _EXISTS. */
caisson_status csn_skill_cut(csn_fs *fs, csn_cmf *model, csn_cmf *base, csn_str id,
                             const char *path, const csn_skill_cut_options *options,
                             caisson_error *err);

typedef struct csn_skill_apply_options {
    bool force; /* another base than the skill was cut from: noted in header.provenance */
    bool overwrite;
    const csn_progress *progress;
} csn_skill_apply_options;

/* Writes the model that the skill was cut from: its tensors, or the base's where it has none, its
 * header, registry and masks. CAISSON_E_PARSE: not a skill by itself; _HASH: another base (want and
 * got are directory hashes); _EXISTS. */
caisson_status csn_skill_apply(csn_fs *fs, csn_cmf *base, csn_cmf *skill, const char *path,
                               const csn_skill_apply_options *options, caisson_error *err);

#endif
