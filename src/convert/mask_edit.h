/* SPDX-License-Identifier: Apache-2.0 */
/* The task masks of a file, changed: the section is written anew behind the end of the file. Of
 * shards the first holds it. Errors: those of csn_cmf_append_begin_model and _commit. */
#ifndef CSN_CONVERT_MASK_EDIT_H
#define CSN_CONVERT_MASK_EDIT_H

#include "format/cmf/cmf.h"

/* CAISSON_E_EXISTS when there is a mask of this name. */
caisson_status csn_mask_check_new(const csn_cmf_masks *masks, csn_str name, caisson_error *err);

/* Puts the mask behind the others, or in the place of the one that has its name, whose id it gets
 * then. `then`: the model that it was made from; CAISSON_E_BUSY when the file is no longer that. */
typedef struct csn_mask_put_options {
    bool replace;      /* else CAISSON_E_EXISTS */
    bool make_default; /* default_task becomes its name */
} csn_mask_put_options;
caisson_status csn_mask_put(csn_fs *fs, const char *path, const csn_cmf *then,
                            const csn_cmf_mask *mask, const csn_mask_put_options *options,
                            caisson_error *err);

/* Notes in the mask of this name what it was measured to cost, a JSON object; CAISSON_E_MISSING
 * lists names. */
caisson_status csn_mask_set_quality(csn_fs *fs, const char *path, csn_str name, csn_str json,
                                    caisson_error *err);
/* CAISSON_E_ARG: a skill names it as its input_mask_task. */
caisson_status csn_mask_remove(csn_fs *fs, const char *path, csn_str name, caisson_error *err);

#endif
