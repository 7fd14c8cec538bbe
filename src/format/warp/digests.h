/* SPDX-License-Identifier: Apache-2.0 */
/* caisson.digests.json: what verify and the writing of digests share. */
#ifndef CSN_FORMAT_WARP_DIGESTS_H
#define CSN_FORMAT_WARP_DIGESTS_H

#include "base/digest.h"
#include "format/warp/warp_internal.h"

enum { CSN_WARP_N_DIGEST_FILES = 8 };
extern const char *const csn_warp_digest_files[CSN_WARP_N_DIGEST_FILES];

typedef struct csn_warp_digests {
    bool present;
    bool has_file[CSN_WARP_N_DIGEST_FILES];
    uint8_t files[CSN_WARP_N_DIGEST_FILES][CSN_DIGEST_BYTES];
    bool *has_tensor; /* [dir.n] all true once read */
    uint8_t *tensors; /* [dir.n][CSN_DIGEST_BYTES] */
} csn_warp_digests;

/* present false: there is no such file. PARSE when it is not of this model. */
caisson_status csn_warp_read_digests(csn_warp *w, csn_warp_digests *ret, caisson_error *err);
void csn_warp_digests_free(csn_warp_digests *d);

typedef struct csn_warp_source { /* what a digest is of: one range of a file, or two */
    csn_file *file;
    uint64_t offset[2], nbytes[2];
} csn_warp_source;

/* Opens the file; the caller closes it. */
caisson_status csn_warp_digest_source_file(csn_warp *w, const char *name, csn_warp_source *ret,
                                           caisson_error *err);
csn_warp_source csn_warp_digest_source_tensor(const csn_warp *w, uint32_t i);
/* buffer [CSN_DIGEST_PIECE]; any thread. */
caisson_status csn_warp_digest(const csn_warp_source *s, uint8_t *buffer,
                               uint8_t ret[CSN_DIGEST_BYTES], caisson_error *err);
/* CAISSON_E_HASH, told of the source's first range, when the two differ. */
caisson_status csn_warp_compare_digest(const csn_warp_source *s, const char *section,
                                       csn_str tensor, const uint8_t want[CSN_DIGEST_BYTES],
                                       const uint8_t got[CSN_DIGEST_BYTES], caisson_error *err);

#endif
