/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a file whole, for all that write one: hashes and digests of its parts, in the header,
 * and the envelope over everything. */
#ifndef CSN_FORMAT_CMF_SEAL_H
#define CSN_FORMAT_CMF_SEAL_H

#include "format/cmf/cmf_internal.h"

/* Pointers as in csn_cmf, so that what an older file says of an unchanged part is carried over: to
 * compute it again would make damage look sound. */
typedef struct csn_cmf_seals {
    csn_str hash[CSN_CMF_N_SECTIONS];          /* of masks, vocab, index: hex text; empty = none */
    const uint8_t *digest[CSN_CMF_N_SECTIONS]; /* of all but header and data; NULL = none */
    const uint8_t *tensor_digests;             /* [n_tensors][CSN_DIGEST_BYTES]; NULL = none */
    uint32_t n_tensors;
} csn_cmf_seals;

/* Both values of a section's new bytes; none for an empty one. */
caisson_status csn_cmf_seal_section(csn_cmf_seals *s, int section, csn_str bytes, csn_arena *arena,
                                    caisson_error *err);
/* Appends the object `json` with section_hashes and the digests added. CAISSON_E_ARG: no object. */
caisson_status csn_cmf_seal_header(csn_str json, const csn_cmf_seals *s, csn_buf *ret,
                                   caisson_error *err);

/* Opens the file as it would be with the envelope `e`, whose features it fills in from what it
 * finds: a file that our own reader refuses is never made. The file itself is only read. */
caisson_status csn_cmf_seal_envelope(csn_file *f, csn_cmf_envelope *e,
                                     uint8_t ret[CSN_CMF_ENVELOPE_BYTES], caisson_error *err);

#endif
