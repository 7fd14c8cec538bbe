/* SPDX-License-Identifier: Apache-2.0 */
/* What every container's reader hands out: a checked list of tensors, findable by name. */
#ifndef CSN_FORMAT_DIRECTORY_H
#define CSN_FORMAT_DIRECTORY_H

#include "base/arena.h"
#include "base/io.h"
#include "quant/dtype.h"

typedef struct csn_tensor {
    csn_str name; /* UTF-8, in the directory's arena */
    const csn_dtype *dtype;
    csn_shape shape;
    uint32_t i_file;   /* which of the model's files */
    uint64_t offset;   /* absolute, in that file */
    uint64_t nbytes;   /* == dtype->nbytes(shape) where that is defined; inside the file */
    uint64_t hash;     /* CMF: stored hash64 of the payload; else 0 */
    bool is_malformed; /* only of a damaged file: its payload failed the dtype's check */
} csn_tensor;

typedef struct csn_directory {
    csn_tensor *tensors; /* [n], in file order */
    uint32_t n;
    uint32_t *index;    /* [n] positions, grouped by bucket, by name inside a bucket */
    uint32_t *buckets;  /* [n_buckets + 1] where a bucket begins in index */
    uint32_t n_buckets; /* a power of two */
} csn_directory;

/* Builds the name index over dir->tensors[0..n). A name given twice: CAISSON_E_PARSE with
 * section "directory" and the name. O(n), and O(n log n) for names made to collide. */
caisson_status csn_directory_index(csn_directory *dir, csn_arena *arena, caisson_error *err);
const csn_tensor *csn_directory_find(const csn_directory *dir, csn_str name); /* NULL if absent */

#endif
