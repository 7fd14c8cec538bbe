/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of opening a CMF file, one file each, and what reader and writer share. */
#ifndef CSN_FORMAT_CMF_INTERNAL_H
#define CSN_FORMAT_CMF_INTERNAL_H

#include "base/le.h"
#include "format/cmf/cmf.h"

/* ---- layout (CMF 1, 3) ---- */
enum {
    CSN_CMF_ENVELOPE_BYTES = 128,
    CSN_CMF_VERSION = 2,
    CSN_CMF_DIR_HEAD_BYTES = 16,
    CSN_CMF_RECORD_BYTES = 56,
    CSN_CMF_ALIGN = 64,    /* of a tensor */
    CSN_CMF_PAGE = 4096,   /* of the blob, and of large tensors when we write */
    CSN_CMF_LARGE = 16384, /* a tensor of at least this many bytes begins on a page */
};

/* required_features (CMF 1.1) */
enum {
    CSN_CMF_TENSOR_DIR = 1 << 0,
    CSN_CMF_BINARY_MASKS = 1 << 1,
    CSN_CMF_QUANT_2F = 1 << 2,
    CSN_CMF_DELTA_MASKS = 1 << 3, /* reserved */
    CSN_CMF_HOT_PACKS = 1 << 4,   /* reserved */
    CSN_CMF_LOOP_MASKS = 1 << 5,
    CSN_CMF_SKILL_FILE = 1 << 6,
    CSN_CMF_KNOWN_FEATURES = CSN_CMF_TENSOR_DIR | CSN_CMF_BINARY_MASKS | CSN_CMF_QUANT_2F |
                             CSN_CMF_LOOP_MASKS | CSN_CMF_SKILL_FILE
};

/* ---- opening, in this order ---- */
caisson_status csn_cmf_parse_envelope(const uint8_t bytes[CSN_CMF_ENVELOPE_BYTES],
                                      uint64_t file_bytes, csn_cmf_envelope *ret,
                                      caisson_error *err);
void csn_cmf_envelope_bytes(const csn_cmf_envelope *e, uint8_t ret[CSN_CMF_ENVELOPE_BYTES]);
/* Fills header_doc, header, quant_type, section_hash, arch, chat of `c` from the section's bytes.
 */
caisson_status csn_cmf_parse_header(csn_cmf *c, csn_str text, caisson_error *err);
/* Fills dir (without its name index) from the section's bytes, which must outlive `c`. fn: is told
 * of payloads that fail their dtype's check; NULL: the first ends it. */
caisson_status csn_cmf_parse_directory(csn_cmf *c, const uint8_t *bytes, uint64_t len,
                                       csn_cmf_fault_fn fn, void *ctx, caisson_error *err);
/* Fills tensor_digests and section_digest; needs header and dir. PARSE when a key is not what
 * docs/cmf.md says. */
caisson_status csn_cmf_parse_digests(csn_cmf *c, caisson_error *err);
/* Fills skills and n_skills from header and directory. */
caisson_status csn_cmf_parse_skills(csn_cmf *c, caisson_error *err);
/* BOUNDS when two ranges of the file that are in use overlap. */
caisson_status csn_cmf_check_ranges(const csn_cmf *c, caisson_error *err);
/* Bytes of the file that are neither envelope, section nor payload, nor zeros that align one; bytes
 * of the blob behind its last payload too. */
typedef struct csn_cmf_stray {
    uint64_t first, nbytes, n_places; /* offset of the first place, bytes of all */
} csn_cmf_stray;
caisson_status csn_cmf_find_stray(const csn_cmf *c, csn_cmf_stray *ret, caisson_error *err);
/* PARSE when the section does not follow facts 6 (with `arch`) or 8. *ret points into bytes and the
 * document. */
caisson_status csn_cmf_parse_masks(const uint8_t *bytes, uint64_t len, const csn_arch *arch,
                                   csn_arena *arena, csn_json **ret_doc, csn_cmf_masks *ret,
                                   caisson_error *err);
/* The feature bits that the content asks for (facts 1.3), whatever the envelope says. */
uint32_t csn_cmf_features(const csn_cmf *c);
caisson_status csn_cmf_check_index(const uint8_t *bytes, uint64_t len, caisson_error *err);

/* 16 hex digits (at most; at least one) to a number, as the format's reference reads them. */
bool csn_cmf_parse_hash(csn_str text, uint64_t *ret);

#endif
