/* SPDX-License-Identifier: Apache-2.0 */
/* A .cmf made of tensors of others, byte for byte; each is checked against its hash on the way. */
#ifndef CSN_CONVERT_ASSEMBLE_H
#define CSN_CONVERT_ASSEMBLE_H

#include "base/progress.h"
#include "format/cmf/cmf.h"

typedef struct csn_part {
    csn_str name; /* in the new file */
    csn_cmf *from;
    const csn_tensor *tensor; /* of from->dir */
} csn_part;

typedef struct csn_assembly {
    const csn_part *parts; /* [n], in file order */
    uint32_t n;
    csn_str header, masks, vocab; /* masks, vocab: empty = none */
} csn_assembly;

/* CAISSON_E_EXISTS unless `overwrite`. */
caisson_status csn_assemble(csn_fs *fs, const char *path, const csn_assembly *a, bool overwrite,
                            const csn_progress *progress, caisson_error *err);

#endif
