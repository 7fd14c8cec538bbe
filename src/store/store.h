/* SPDX-License-Identifier: Apache-2.0 */
/* Where a tensor's bytes come from. Today: CMF files, mapped, or read into memory (--no-mmap).
 * Streamed experts come in behind the same calls.
 */
#ifndef CSN_STORE_STORE_H
#define CSN_STORE_STORE_H

#include "format/cmf/cmf.h"

typedef struct csn_store csn_store;

typedef struct csn_store_options {
    bool no_mmap;        /* read payloads into memory when first asked for */
    bool guard_mappings; /* SIGBUS inside our mappings becomes an error of the guarded call */
    bool verify;         /* hashes and digest of a tensor are checked when it is first asked for */
} csn_store_options;

/* Takes ownership of `cmf` on success. */
caisson_status csn_store_new(csn_cmf *cmf, const csn_store_options *options, csn_store **ret,
                             caisson_error *err);
void csn_store_free(csn_store *s);
const csn_cmf *csn_store_cmf(const csn_store *s);

/* A tensor's matrix, good until csn_store_free. CAISSON_E_MISSING if absent, CAISSON_E_UNSUPPORTED
 * for a dtype that this build cannot decode; without mmap, IO and NOMEM; with `verify`, HASH. Any
 * thread may call. */
caisson_status csn_store_matrix(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err);

/* Runs fn(ctx) so that a page of the mapping that vanished (file cut while mapped) makes this call
 * return CAISSON_E_IO instead of killing the process; without guard_mappings it just runs fn. All
 * threads of the pool that fn uses are covered. A store that lost a page stays lost: later calls
 * fail at once. Tensors already read (no_mmap) are not affected by what happens to the file. */
caisson_status csn_store_guarded(csn_store *s, caisson_status (*fn)(void *ctx, caisson_error *err),
                                 void *ctx, caisson_error *err);

#endif
