/* SPDX-License-Identifier: Apache-2.0 */
/* The struct behind caisson_file, shared by inspect.c and describe*.c. */
#ifndef CSN_API_INSPECT_INTERNAL_H
#define CSN_API_INSPECT_INTERNAL_H

#include "api_internal.h"

struct caisson_file {
    csn_cmf *cmf;     /* owned by `store` */
    csn_store *store; /* owned by `model` once that exists */
    csn_model *model; /* made when the layers are asked for and the file can run */
};

/* The members "masks" and "skills" of an open object (describe_tasks.c). */
void csn_api_put_masks(csn_jw *w, const csn_cmf *c);
void csn_api_put_skills(csn_jw *w, const csn_cmf *c);
/* The member "sparse_index", which is read from the file. */
caisson_status csn_api_put_index(csn_jw *w, csn_cmf *c, caisson_error *err);

#endif
