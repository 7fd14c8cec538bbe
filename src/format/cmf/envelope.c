/* SPDX-License-Identifier: Apache-2.0 */
/* The 128 bytes at the start of a file (CMF 1): magic, version, features, where the sections are.
 * A section of length 0 is absent and its offset means nothing. */
#include "format/cmf/cmf_internal.h"

#include "base/size.h"

const char *const csn_cmf_section_names[CSN_CMF_N_SECTIONS] = {"header", "directory", "data",
                                                               "masks",  "vocab",     "index"};

static const uint8_t magic[4] = {'C', 'M', 'F', 1};

static caisson_status check_features(uint32_t features, caisson_error *err) {
    uint32_t unknown = features & ~(uint32_t)CSN_CMF_KNOWN_FEATURES;
    if (unknown == 0) {
        return CAISSON_OK;
    }
    const char *what = "the file requires features that this reader does not know"; /* CMF 1.1 */
    if ((unknown & CSN_CMF_DELTA_MASKS) != 0) {
        what = "the file requires DELTA_MASKS (bit 3), which is reserved";
    } else if ((unknown & CSN_CMF_HOT_PACKS) != 0) {
        what = "the file requires HOT_PACKS (bit 4), which is reserved";
    }
    return CSN_FAIL(err, CAISSON_E_FEATURE, .section = "envelope", CSN_AT(0x0C), .what = what,
                    CSN_VALUES(CSN_CMF_KNOWN_FEATURES, features));
}

static caisson_status check_section(const csn_cmf_envelope *e, int i, caisson_error *err) {
    uint64_t field = 0x10 + 16 * (uint64_t)i; /* of the offset; the length is 8 bytes behind it */
    uint64_t end;
    if (e->len[i] == 0) {
        if (i == CSN_CMF_HEADER || i == CSN_CMF_DIR) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = csn_cmf_section_names[i],
                            CSN_AT(field + 8), .what = "this section is required",
                            CSN_VALUES(1, 0));
        }
        return CAISSON_OK;
    }
    if (!csn_add(e->off[i], e->len[i], &end)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = csn_cmf_section_names[i], CSN_AT(field),
                        .what = "offset plus length passes 64 bits",
                        CSN_VALUES(e->off[i], e->len[i]));
    }
    if (end > e->file_bytes) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = csn_cmf_section_names[i], CSN_AT(field),
                        .what = "section ends behind the end of the file",
                        CSN_VALUES(e->file_bytes, end));
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_parse_envelope(const uint8_t bytes[CSN_CMF_ENVELOPE_BYTES],
                                      uint64_t file_bytes, csn_cmf_envelope *ret,
                                      caisson_error *err) {
    csn_cmf_envelope e = {.file_bytes = file_bytes};
    if (memcmp(bytes, magic, sizeof(magic)) != 0) {
        return CSN_FAIL(
            err, CAISSON_E_MAGIC, .section = "envelope", CSN_AT(0), .what = "not a CMF file",
            CSN_TEXTS(CSN_STR("CMF\\x01"), ((csn_str){(const char *)bytes, sizeof(magic)})));
    }
    uint32_t version = csn_get32(bytes + 0x04);
    if (version != CSN_CMF_VERSION) {
        return CSN_FAIL(err, CAISSON_E_VERSION, .section = "envelope", CSN_AT(0x04),
                        .what = "version of the format", CSN_VALUES(CSN_CMF_VERSION, version));
    }
    e.flags = csn_get32(bytes + 0x08); /* reserved: any value opens */
    e.required_features = csn_get32(bytes + 0x0C);
    CSN_TRY(check_features(e.required_features, err));
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        e.off[i] = csn_get64(bytes + 0x10 + 16 * i);
        e.len[i] = csn_get64(bytes + 0x18 + 16 * i);
    }
    e.header_hash = csn_get64(bytes + 0x70);
    e.dir_hash = csn_get64(bytes + 0x78);
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) { /* CMF 1.2 */
        CSN_TRY(check_section(&e, i, err));
    }
    if (e.len[CSN_CMF_DATA] > 0 && e.off[CSN_CMF_DATA] % CSN_CMF_PAGE != 0) { /* CMF 4 */
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "data", CSN_AT(0x30),
                        .what = "data_off is not a multiple of 4096",
                        CSN_VALUES(CSN_CMF_PAGE, e.off[CSN_CMF_DATA]));
    }
    *ret = e;
    return CAISSON_OK;
}

void csn_cmf_envelope_bytes(const csn_cmf_envelope *e, uint8_t ret[CSN_CMF_ENVELOPE_BYTES]) {
    memset(ret, 0, CSN_CMF_ENVELOPE_BYTES);
    memcpy(ret, magic, sizeof(magic));
    csn_put32(ret + 0x04, CSN_CMF_VERSION);
    csn_put32(ret + 0x08, e->flags);
    csn_put32(ret + 0x0C, e->required_features);
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        csn_put64(ret + 0x10 + 16 * i, e->off[i]);
        csn_put64(ret + 0x18 + 16 * i, e->len[i]);
    }
    csn_put64(ret + 0x70, e->header_hash);
    csn_put64(ret + 0x78, e->dir_hash);
}
