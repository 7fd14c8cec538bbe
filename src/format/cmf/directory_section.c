/* SPDX-License-Identifier: Apache-2.0 */
/* The binary tensor directory (CMF 3): a count, records of 56 bytes, a pool of names. Records are
 * checked one by one first, then each tensor's range and size, in the order of facts 1.5. */
#include "base/size.h"
#include "base/utf8.h"
#include "caisson/limits.h"
#include "format/cmf/cmf_internal.h"

static caisson_status fail_record(caisson_error *err, caisson_status code, const csn_cmf *c,
                                  uint64_t i, csn_str name, const char *what, uint64_t want,
                                  uint64_t got) {
    uint64_t at = c->envelope.off[CSN_CMF_DIR] + CSN_CMF_DIR_HEAD_BYTES + i * CSN_CMF_RECORD_BYTES;
    return CSN_FAIL(err, code, .section = "directory", .tensor = name, CSN_AT(at), .what = what,
                    CSN_VALUES(want, got));
}

static caisson_status read_record(csn_cmf *c, const uint8_t *r, uint32_t i, const uint8_t *pool,
                                  uint64_t pool_len, csn_tensor *ret, caisson_error *err) {
    uint32_t name_off = csn_get32(r);
    uint16_t name_len = csn_get16(r + 4);
    unsigned n_dims = r[7];
    csn_str none = {0};
    if (n_dims > CSN_MAX_DIMS) {
        return fail_record(err, CAISSON_E_PARSE, c, i, none, "too many dimensions", CSN_MAX_DIMS,
                           n_dims);
    }
    if (!csn_range_fits(name_off, name_len, pool_len)) {
        return fail_record(err, CAISSON_E_PARSE, c, i, none, "name leaves the name pool", pool_len,
                           (uint64_t)name_off + name_len);
    }
    csn_tensor t = {.name = {(const char *)pool + name_off, name_len},
                    .offset = csn_get64(r + 32),
                    .nbytes = csn_get64(r + 40),
                    .hash = csn_get64(r + 48)};
    size_t bad;
    if (!csn_utf8_valid(t.name, &bad)) {
        return fail_record(err, CAISSON_E_PARSE, c, i, t.name, "name is not UTF-8", 0, bad);
    }
    t.dtype = csn_dtype_by_cmf(r[6]);
    if (t.dtype == NULL) {
        return fail_record(err, CAISSON_E_PARSE, c, i, t.name, "unknown tensor dtype id", 16, r[6]);
    }
    t.shape.n_dims = n_dims;
    for (unsigned d = 0; d < n_dims; d++) {
        t.shape.dim[d] = csn_get32(r + 8 + 4 * d);
    }
    *ret = t;
    return CAISSON_OK;
}

/* The bytes that a payload says its own size in: widths, offsets, outliers. */
static caisson_status check_payload(const csn_cmf *c, const csn_tensor *t, caisson_error *err) {
    const csn_dtype *d = t->dtype;
    uint64_t from = d->check_from != NULL ? d->check_from(&t->shape, t->nbytes) : 0;
    uint64_t n = d->check_bytes != NULL ? d->check_bytes(&t->shape, t->nbytes) : t->nbytes - from;
    void *bytes = NULL;
    CSN_TRY(csn_alloc_aligned(n, &bytes, err)); /* n <= nbytes, which lies inside the file */
    caisson_status status = csn_file_read_at(c->file, t->offset + from, bytes, n, err);
    if (status == CAISSON_OK) {
        status = d->check(&t->shape, bytes, t->nbytes, err);
    }
    csn_free_aligned(bytes);
    return status;
}

/* Range and size of tensor i; turns its offset into an absolute one. */
static caisson_status check_tensor(const csn_cmf *c, uint32_t i, csn_tensor *t, csn_cmf_fault_fn fn,
                                   void *ctx, caisson_error *err) {
    uint64_t data_len = c->envelope.len[CSN_CMF_DATA];
    uint64_t end;
    uint64_t want;
    if (t->offset % CSN_CMF_ALIGN != 0) {
        return fail_record(err, CAISSON_E_BOUNDS, c, i, t->name, "offset is not a multiple of 64",
                           CSN_CMF_ALIGN, t->offset);
    }
    if (!csn_add(t->offset, t->nbytes, &end)) {
        return fail_record(err, CAISSON_E_BOUNDS, c, i, t->name, "offset plus bytes passes 64 bits",
                           t->offset, t->nbytes);
    }
    if (end > data_len) {
        return fail_record(err, CAISSON_E_BOUNDS, c, i, t->name,
                           "payload ends behind the data section", data_len, end);
    }
    if (!csn_shape_count(&t->shape, &want)) {
        return fail_record(err, CAISSON_E_BOUNDS, c, i, t->name,
                           "product of the dimensions passes 64 bits", UINT64_MAX, 0);
    }
    if (t->dtype->nbytes != NULL) {
        caisson_status status = t->dtype->nbytes(&t->shape, &want, err);
        if (status != CAISSON_OK) {
            csn_error_section(err, "directory");
            csn_error_tensor(err, t->name);
            return status;
        }
        if (want != t->nbytes) {
            return fail_record(err, CAISSON_E_BOUNDS, c, i, t->name,
                               "bytes differ from shape x dtype", want, t->nbytes);
        }
    }
    /* an empty blob's offset is not checked, so it may be anything; nothing is read through it */
    t->offset = data_len == 0 ? 0 : c->envelope.off[CSN_CMF_DATA] + t->offset;
    if (t->dtype->check != NULL) {
        caisson_status status = check_payload(c, t, err);
        if (status != CAISSON_OK) {
            csn_error_section(err, "data");
            csn_error_tensor(err, t->name);
            if (fn == NULL || status != CAISSON_E_BOUNDS) {
                return status;
            }
            t->is_malformed = true;
            csn_error_file(err, c->file->path);
            fn(ctx, err);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_parse_directory(csn_cmf *c, const uint8_t *bytes, uint64_t len,
                                       csn_cmf_fault_fn fn, void *ctx, caisson_error *err) {
    uint64_t base = c->envelope.off[CSN_CMF_DIR];
    if (len < CSN_CMF_DIR_HEAD_BYTES) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", CSN_AT(base),
                        .what = "section is too short", CSN_VALUES(CSN_CMF_DIR_HEAD_BYTES, len));
    }
    uint64_t count = csn_get64(bytes);
    uint64_t pool_off = csn_get64(bytes + 8);
    uint64_t records_end;
    if (!csn_mul(count, CSN_CMF_RECORD_BYTES, &records_end) ||
        !csn_add(records_end, CSN_CMF_DIR_HEAD_BYTES, &records_end) || records_end > len) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", CSN_AT(base),
                        .what = "more records than the section can hold",
                        CSN_VALUES((len - CSN_CMF_DIR_HEAD_BYTES) / CSN_CMF_RECORD_BYTES, count));
    }
    if (pool_off < records_end || pool_off > len) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", CSN_AT(base + 8),
                        .what = "name pool is not behind the records, inside the section",
                        CSN_VALUES(records_end, pool_off));
    }
    if (count > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "directory", CSN_AT(base),
                        .what = "too many tensors", CSN_VALUES(CAISSON_MAX_TENSORS, count));
    }
    uint32_t n = (uint32_t)count;
    uint64_t name_bytes = 0; /* records may share pool bytes: bound the work on names */
    CSN_TRY(CSN_ARENA_NEW(&c->arena, n, &c->dir.tensors, err));
    for (uint32_t i = 0; i < n; i++) {
        csn_tensor *t = &c->dir.tensors[i];
        const uint8_t *r = bytes + CSN_CMF_DIR_HEAD_BYTES + (uint64_t)i * CSN_CMF_RECORD_BYTES;
        name_bytes += csn_get16(r + 4);
        if (name_bytes > CAISSON_MAX_HEADER_BYTES) {
            return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "directory",
                            .what = "names are too long in all",
                            CSN_VALUES(CAISSON_MAX_HEADER_BYTES, name_bytes));
        }
        CSN_TRY(read_record(c, r, i, bytes + pool_off, len - pool_off, t, err));
    }
    for (uint32_t i = 0; i < n; i++) {
        CSN_TRY(check_tensor(c, i, &c->dir.tensors[i], fn, ctx, err));
    }
    c->dir.n = n;
    return CAISSON_OK;
}
