/* SPDX-License-Identifier: Apache-2.0 */
/* A model whose tensors are asked for by their canonical names: a .cmf, or a source of conversion.
 */
#ifndef CSN_CONVERT_DONOR_H
#define CSN_CONVERT_DONOR_H

#include "convert/plan.h"
#include "format/cmf/cmf.h"

typedef struct csn_donor csn_donor;

caisson_status csn_donor_open(csn_fs *fs, const char *path, const csn_log *log, csn_donor **ret,
                              caisson_error *err);
void csn_donor_close(csn_donor *d); /* NULL is fine */
/* The tensor as f32, which must have this shape (CAISSON_E_PARSE); CAISSON_E_MISSING. */
caisson_status csn_donor_read(csn_donor *d, csn_str name, const csn_shape *shape, csn_pool *pool,
                              float *out, caisson_error *err);

/* A tensor of a .cmf: its payload, and its values. */
caisson_status csn_donor_payload(const csn_cmf *c, const csn_tensor *t, csn_buf *ret,
                                 caisson_error *err);

#endif
