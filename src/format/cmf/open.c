/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a CMF file: the checks of facts 1.5 in their order, each in a file of its own. Nothing is
 * allocated for a number that the file has not the bytes for. */
#include "base/hash64.h"
#include "caisson/limits.h"
#include "format/cmf/cmf_internal.h"

static const uint64_t max_dir_bytes = CSN_CMF_DIR_HEAD_BYTES +
                                      (uint64_t)CAISSON_MAX_TENSORS * CSN_CMF_RECORD_BYTES +
                                      CAISSON_MAX_HEADER_BYTES;

static caisson_status check_limit(const csn_cmf *c, int section, uint64_t max, caisson_error *err) {
    if (c->envelope.len[section] > max) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = csn_cmf_section_names[section],
                        .what = "section is larger than its limit",
                        CSN_VALUES(max, c->envelope.len[section]));
    }
    return CAISSON_OK;
}

static caisson_status check_hash(const csn_cmf *c, int section, uint64_t stored, const void *bytes,
                                 caisson_error *err) {
    uint64_t actual = stored == 0 ? 0 : csn_hash64(bytes, c->envelope.len[section]);
    if (actual != stored) { /* CMF 8.1 */
        char want[20];
        char got[20];
        csn_hash64_hex(stored, want);
        csn_hash64_hex(actual, got);
        return CSN_FAIL(err, CAISSON_E_HASH, .section = csn_cmf_section_names[section],
                        CSN_AT(c->envelope.off[section]),
                        .what = "bytes do not have the stored hash",
                        CSN_TEXTS(csn_str_from(want), csn_str_from(got)));
    }
    return CAISSON_OK;
}

static caisson_status open_envelope(csn_cmf *c, caisson_error *err) {
    uint64_t size;
    uint8_t bytes[CSN_CMF_ENVELOPE_BYTES];
    CSN_TRY(csn_file_size(c->file, &size, err));
    if (size < sizeof(bytes)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "envelope",
                        .what = "file is too small for the envelope",
                        CSN_VALUES(sizeof(bytes), size));
    }
    CSN_TRY(csn_file_read_at(c->file, 0, bytes, sizeof(bytes), err));
    return csn_cmf_parse_envelope(bytes, size, &c->envelope, err);
}

static caisson_status open_header(csn_cmf *c, caisson_error *err) {
    uint64_t len = c->envelope.len[CSN_CMF_HEADER];
    CSN_TRY(check_limit(c, CSN_CMF_HEADER, CAISSON_MAX_HEADER_BYTES, err));
    void *bytes;
    CSN_TRY(csn_alloc_aligned(len, &bytes, err));
    caisson_status status =
        csn_file_read_at(c->file, c->envelope.off[CSN_CMF_HEADER], bytes, len, err);
    if (status == CAISSON_OK) {
        status = check_hash(c, CSN_CMF_HEADER, c->envelope.header_hash, bytes, err);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_parse_header(c, csn_str_make(bytes, len), err);
        if (status != CAISSON_OK) {
            csn_error_section(err, "header");
            err->offset += c->envelope.off[CSN_CMF_HEADER]; /* it was relative to the text */
        }
    }
    csn_free_aligned(bytes);
    return status;
}

static caisson_status open_directory(csn_cmf *c, caisson_error *err) {
    uint64_t len = c->envelope.len[CSN_CMF_DIR];
    CSN_TRY(check_limit(c, CSN_CMF_DIR, max_dir_bytes, err));
    void *bytes; /* names stay in it */
    CSN_TRY(csn_arena_alloc(&c->arena, len, 1, &bytes, err));
    CSN_TRY(csn_file_read_at(c->file, c->envelope.off[CSN_CMF_DIR], bytes, len, err));
    CSN_TRY(check_hash(c, CSN_CMF_DIR, c->envelope.dir_hash, bytes, err));
    CSN_TRY(csn_cmf_parse_directory(c, bytes, len, err));
    CSN_TRY(csn_directory_index(&c->dir, &c->arena, err));
    CSN_TRY(csn_cmf_parse_digests(c, err));
    CSN_TRY(csn_cmf_parse_skills(c, err));
    return csn_cmf_check_ranges(c, err);
}

/* Masks are kept; the index is read and checked. */
static caisson_status open_bit_sections(csn_cmf *c, caisson_error *err) {
    for (int i = CSN_CMF_MASKS; i <= CSN_CMF_INDEX; i++) {
        if (i == CSN_CMF_VOCAB || c->envelope.len[i] == 0) {
            continue;
        }
        csn_buf b = {0};
        CSN_TRY(csn_cmf_read_section(c, i, &b, err));
        const uint8_t *bytes = (const uint8_t *)b.ptr;
        caisson_status status = i == CSN_CMF_MASKS
                                    ? csn_cmf_parse_masks(bytes, b.len, &c->arch, &c->arena,
                                                          &c->masks_doc, &c->masks, err)
                                    : csn_cmf_check_index(bytes, b.len, err);
        if (status == CAISSON_OK && i == CSN_CMF_MASKS) {
            c->masks_section = b;
            continue;
        }
        csn_buf_free(&b);
        if (status != CAISSON_OK) {
            csn_error_section(err, csn_cmf_section_names[i]);
            err->offset += c->envelope.off[i] + (i == CSN_CMF_MASKS ? 8 : 0); /* of the meta JSON */
            return status;
        }
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_open(csn_fs *fs, const char *path, csn_cmf **ret, caisson_error *err) {
    csn_file *f;
    caisson_status status = csn_fs_open(fs, path, CSN_OPEN_READ, &f, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    return csn_cmf_open_file(f, ret, err);
}

caisson_status csn_cmf_open_file(csn_file *f, csn_cmf **ret, caisson_error *err) {
    csn_cmf *c;
    caisson_status status = CSN_NEW(1, &c, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, f->path);
        csn_file_close(f);
        return status;
    }
    c->file = f;
    status = open_envelope(c, err);
    if (status == CAISSON_OK) {
        status = open_header(c, err);
    }
    if (status == CAISSON_OK) {
        status = open_directory(c, err);
    }
    if (status == CAISSON_OK) {
        status = open_bit_sections(c, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, f->path);
        csn_cmf_close(c);
        return status;
    }
    *ret = c;
    return CAISSON_OK;
}

void csn_cmf_close(csn_cmf *c) {
    if (c == NULL) {
        return;
    }
    csn_json_free(c->header_doc);
    csn_json_free(c->masks_doc);
    csn_buf_free(&c->masks_section);
    csn_arena_done(&c->arena);
    csn_file_close(c->file);
    csn_free(c);
}

caisson_status csn_cmf_read_section(csn_cmf *c, int section, csn_buf *ret, caisson_error *err) {
    uint64_t len = c->envelope.len[section];
    uint64_t max = section == CSN_CMF_VOCAB  ? CAISSON_MAX_TOKENIZER_BYTES
                   : section == CSN_CMF_DATA ? SIZE_MAX / 2
                   : section == CSN_CMF_DIR  ? max_dir_bytes
                                             : CAISSON_MAX_HEADER_BYTES;
    CSN_TRY(check_limit(c, section, max, err));
    csn_buf b = CSN_BUF_INIT((size_t)len);
    CSN_TRY(csn_buf_reserve(&b, (size_t)len, err));
    caisson_status status =
        len == 0 ? CAISSON_OK
                 : csn_file_read_at(c->file, c->envelope.off[section], b.ptr, (size_t)len, err);
    if (status != CAISSON_OK) {
        csn_error_section(err, csn_cmf_section_names[section]);
        csn_buf_free(&b);
        return status;
    }
    b.len = (size_t)len;
    b.ptr[b.len] = '\0';
    *ret = b;
    return CAISSON_OK;
}
