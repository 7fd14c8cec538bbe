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
/* CAISSON_E_PARSE where the donor's arch computes otherwise than `base` (names, lengths and the
 * size of the vocabulary aside): a skill is made of tensors alone. */
caisson_status csn_donor_check_arch(const csn_donor *d, const csn_arch *base, caisson_error *err);
/* The names of its tensors, i < n. */
uint32_t csn_donor_n(const csn_donor *d);
csn_str csn_donor_name(const csn_donor *d, uint32_t i);
/* The tensor as f32, which must have this shape (CAISSON_E_PARSE); CAISSON_E_MISSING. */
caisson_status csn_donor_read(csn_donor *d, csn_str name, const csn_shape *shape, csn_pool *pool,
                              float *out, caisson_error *err);

/* The bytes that the last csn_donor_read() of this tensor decoded, where the donor is a .cmf that
 * has it in `dtype`; else empty. Until the next read. */
csn_str csn_donor_bytes_as(const csn_donor *d, csn_str name, const csn_dtype *dtype);

/* A tensor of a .cmf: its payload, and its values. */
caisson_status csn_donor_payload(const csn_cmf *c, const csn_tensor *t, csn_buf *ret,
                                 caisson_error *err);

#endif
