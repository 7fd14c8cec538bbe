/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a CMF file: the checks of facts 1.5 in their order, each in a file of its own. Nothing is
 * allocated for a number that the file has not the bytes for. */
#include <string.h>

#include "base/hash64.h"
#include "caisson/limits.h"
#include "format/cmf/cmf_internal.h"

static const uint64_t max_dir_bytes = CSN_CMF_DIR_HEAD_BYTES +
                                      (uint64_t)CAISSON_MAX_TENSORS * CSN_CMF_RECORD_BYTES +
                                      CAISSON_MAX_HEADER_BYTES;

/* One file on its way to be open. With `fn` what is wrong with one part is told and the other parts
 * are read all the same. */
struct opening {
    csn_cmf *c;
    csn_cmf_fault_fn fn; /* NULL: the first fault ends it */
    void *ctx;
};

/* How one part of a section went: OK also when its fault was told, the first of a section only,
 * because the next would follow from it. */
static caisson_status pass(const struct opening *o, int section, caisson_status status,
                           caisson_error *err) {
    if (status == CAISSON_OK || o->fn == NULL || status == CAISSON_E_NOMEM) {
        return status;
    }
    if (!o->c->is_told[section]) {
        o->c->is_told[section] = true;
        csn_error_section(err, csn_cmf_section_names[section]);
        csn_error_file(err, o->c->file->path);
        /* Where parsing stopped is no range, and the damage may lie before it. */
        if (err->n_bytes == 0 && strcmp(err->section, csn_cmf_section_names[section]) == 0) {
            err->has_offset = true;
            err->offset = o->c->envelope.off[section];
            err->n_bytes = o->c->envelope.len[section];
        }
        o->fn(o->ctx, err);
    }
    return CAISSON_OK;
}

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
                        CSN_RANGE(c->envelope.off[section], c->envelope.len[section]),
                        .what = "bytes do not have the stored hash",
                        CSN_TEXTS(csn_str_from(want), csn_str_from(got)));
    }
    return CAISSON_OK;
}

static caisson_status open_envelope(csn_cmf *c, caisson_error *err) {
    uint64_t size = 0;
    uint8_t bytes[CSN_CMF_ENVELOPE_BYTES];
    c->file->ops->hold(c->file, CSN_HOLD_SHARED); /* it may be growing: append.c */
    caisson_status status = csn_file_size(c->file, &size, err);
    if (status == CAISSON_OK && size < sizeof(bytes)) {
        status =
            CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "envelope",
                     .what = "file is too small for the envelope", CSN_VALUES(sizeof(bytes), size));
    }
    if (status == CAISSON_OK) {
        status = csn_file_read_at(c->file, 0, bytes, sizeof(bytes), err);
    }
    c->file->ops->hold(c->file, CSN_HOLD_NONE);
    CSN_TRY(status);
    return csn_cmf_parse_envelope(bytes, size, &c->envelope, err);
}

static caisson_status read_header(const struct opening *o, void *bytes, caisson_error *err) {
    csn_cmf *c = o->c;
    uint64_t off = c->envelope.off[CSN_CMF_HEADER];
    uint64_t len = c->envelope.len[CSN_CMF_HEADER];
    CSN_TRY(csn_file_read_at(c->file, off, bytes, len, err));
    caisson_status status = check_hash(c, CSN_CMF_HEADER, c->envelope.header_hash, bytes, err);
    CSN_TRY(pass(o, CSN_CMF_HEADER, status, err));
    status = csn_cmf_parse_header(c, csn_str_make(bytes, len), err);
    if (status != CAISSON_OK) {
        csn_error_section(err, "header");
        err->offset += off; /* it was relative to the text */
        c->header = NULL;
    }
    return status;
}

static caisson_status open_header(const struct opening *o, caisson_error *err) {
    CSN_TRY(check_limit(o->c, CSN_CMF_HEADER, CAISSON_MAX_HEADER_BYTES, err));
    void *bytes;
    CSN_TRY(csn_alloc_aligned(o->c->envelope.len[CSN_CMF_HEADER], &bytes, err));
    caisson_status status = read_header(o, bytes, err);
    csn_free_aligned(bytes);
    return status;
}

static caisson_status open_directory(const struct opening *o, caisson_error *err) {
    csn_cmf *c = o->c;
    uint64_t len = c->envelope.len[CSN_CMF_DIR];
    CSN_TRY(check_limit(c, CSN_CMF_DIR, max_dir_bytes, err));
    void *bytes; /* names stay in it */
    CSN_TRY(csn_arena_alloc(&c->arena, len, 1, &bytes, err));
    CSN_TRY(csn_file_read_at(c->file, c->envelope.off[CSN_CMF_DIR], bytes, len, err));
    caisson_status status = check_hash(c, CSN_CMF_DIR, c->envelope.dir_hash, bytes, err);
    CSN_TRY(pass(o, CSN_CMF_DIR, status, err));
    status = csn_cmf_parse_directory(c, bytes, len, o->fn, o->ctx, err);
    if (status == CAISSON_OK) {
        status = csn_directory_index(&c->dir, &c->arena, err);
    }
    if (status != CAISSON_OK) {
        c->dir = (csn_directory){0};
    }
    return status;
}

/* What header and directory say of each other. */
static caisson_status open_both(const struct opening *o, caisson_error *err) {
    csn_cmf *c = o->c;
    if (c->header != NULL && c->dir.buckets != NULL) {
        CSN_TRY(pass(o, CSN_CMF_HEADER, csn_cmf_parse_digests(c, err), err));
        CSN_TRY(pass(o, CSN_CMF_HEADER, csn_cmf_parse_skills(c, err), err));
    }
    return pass(o, CSN_CMF_DIR, csn_cmf_check_ranges(c, err), err);
}

/* Masks are kept; the index is read and checked. */
static caisson_status open_bit_section(csn_cmf *c, int section, caisson_error *err) {
    csn_buf b = {0};
    CSN_TRY(csn_cmf_read_section(c, section, &b, err));
    const uint8_t *bytes = (const uint8_t *)b.ptr;
    bool is_masks = section == CSN_CMF_MASKS;
    caisson_status status = is_masks ? csn_cmf_parse_masks(bytes, b.len, &c->arch, &c->arena,
                                                           &c->masks_doc, &c->masks, err)
                                     : csn_cmf_check_index(bytes, b.len, err);
    if (status == CAISSON_OK && is_masks) {
        c->masks_section = b;
        return CAISSON_OK;
    }
    csn_buf_free(&b);
    if (status != CAISSON_OK) {
        csn_error_section(err, csn_cmf_section_names[section]);
        err->offset += c->envelope.off[section] + (is_masks ? 8 : 0); /* of the meta JSON */
    }
    return status;
}

static caisson_status open_sections(const struct opening *o, caisson_error *err) {
    csn_cmf *c = o->c;
    CSN_TRY(open_envelope(c, err));
    CSN_TRY(pass(o, CSN_CMF_HEADER, open_header(o, err), err));
    CSN_TRY(pass(o, CSN_CMF_DIR, open_directory(o, err), err));
    CSN_TRY(open_both(o, err));
    if (c->envelope.len[CSN_CMF_MASKS] > 0 && c->header != NULL) {
        CSN_TRY(pass(o, CSN_CMF_MASKS, open_bit_section(c, CSN_CMF_MASKS, err), err));
    }
    if (c->envelope.len[CSN_CMF_INDEX] > 0) {
        CSN_TRY(pass(o, CSN_CMF_INDEX, open_bit_section(c, CSN_CMF_INDEX, err), err));
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

static caisson_status open_file(csn_file *f, csn_cmf_fault_fn fn, void *ctx, csn_cmf **ret,
                                caisson_error *err) {
    csn_cmf *c;
    caisson_error fault; /* told ones are not the caller's */
    caisson_status status = CSN_NEW(1, &c, &fault);
    if (status != CAISSON_OK) {
        csn_file_close(f);
        *err = fault;
        return status;
    }
    c->file = f;
    status = open_sections(&(struct opening){c, fn, ctx}, &fault);
    if (status != CAISSON_OK) {
        csn_error_file(&fault, f->path);
        csn_cmf_close(c);
        *err = fault;
        return status;
    }
    c->n_files = 1;
    c->n_own = c->dir.n;
    *ret = c;
    return CAISSON_OK;
}

caisson_status csn_cmf_open_file(csn_file *f, csn_cmf **ret, caisson_error *err) {
    return open_file(f, NULL, NULL, ret, err);
}

caisson_status csn_cmf_open_damaged(csn_file *f, csn_cmf_fault_fn fn, void *ctx, csn_cmf **ret,
                                    caisson_error *err) {
    return open_file(f, fn, ctx, ret, err);
}

void csn_cmf_close(csn_cmf *c) {
    if (c == NULL) {
        return;
    }
    for (uint32_t i = 1; i < c->n_files; i++) {
        csn_cmf_close(c->files[i]); /* which has no others */
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
