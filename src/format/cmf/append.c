/* SPDX-License-Identifier: Apache-2.0 */
/* Growing a file (facts 10.6). What is new goes behind the end: payloads as they come, and at the
 * commit the sections that changed. Nothing that is there is written to but the envelope, so that
 * whoever has the file open, or mapped, keeps the model that he opened; and the envelope is written
 * in one call, behind a sync of all it points to, so that a writer killed at any instant leaves the
 * old model or the new one. What the old model alone used stays as dead bytes until `compact`. */
#include "base/hash64.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "format/cmf/layout.h"
#include "format/cmf/seal.h"

typedef struct record {
    csn_tensor tensor; /* offset absolute */
    uint8_t digest[CSN_DIGEST_BYTES];
    bool is_removed;
} record;

struct csn_cmf_append {
    csn_cmf *cmf; /* as it was opened; its file is the one that grows */
    csn_arena arena;
    record *records; /* [n] of [cap]: those of cmf->dir in its order, then new ones */
    uint32_t n, cap;
    uint64_t data_off; /* of the blob, once has_blob */
    uint64_t end;      /* where the next bytes go */
    csn_buf masks, header;
    bool has_blob, has_new_directory, has_new_masks, has_new_header;
    /* Whether payloads have digests: in a file without them the old ones were never read, and are
     * not now. */
    bool has_digests;
    bool is_grown; /* something may lie behind the old end */
    bool is_ready; /* all is on the disk but `envelope`, which will point at it */
    uint8_t envelope[CSN_CMF_ENVELOPE_BYTES];
    bool is_pointed; /* the envelope may point behind the old end: nothing is taken back */
};

caisson_status csn_cmf_open_locked(csn_fs *fs, const char *path, csn_cmf **ret,
                                   caisson_error *err) {
    csn_file *f;
    bool is_ours = false;
    caisson_status status = csn_fs_open(fs, path, CSN_OPEN_READ_WRITE, &f, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    status = f->ops->lock(f, &is_ours, err);
    if (status == CAISSON_OK && !is_ours) {
        status = CSN_FAIL(err, CAISSON_E_BUSY, .file = path,
                          .what = "another program is writing this file");
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_file_close(f);
        return status;
    }
    return csn_cmf_open_file(f, ret, err);
}

static caisson_status start(csn_cmf_append *a, caisson_error *err) {
    const csn_cmf *c = a->cmf;
    a->cap = c->dir.n + 1;
    a->has_blob = c->envelope.len[CSN_CMF_DATA] > 0;
    a->data_off = c->envelope.off[CSN_CMF_DATA];
    a->end = c->envelope.file_bytes;
    a->has_digests = c->tensor_digests != NULL || c->dir.n == 0;
    CSN_TRY(CSN_NEW(a->cap, &a->records, err));
    for (a->n = 0; a->n < c->dir.n; a->n++) {
        a->records[a->n].tensor = c->dir.tensors[a->n];
        if (c->tensor_digests != NULL) {
            memcpy(a->records[a->n].digest, c->tensor_digests + (size_t)a->n * CSN_DIGEST_BYTES,
                   CSN_DIGEST_BYTES);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_append_begin(csn_fs *fs, const char *path, csn_cmf_append **ret,
                                    caisson_error *err) {
    csn_cmf_append *a;
    CSN_TRY(CSN_NEW(1, &a, err));
    a->masks = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    a->header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = csn_cmf_open_locked(fs, path, &a->cmf, err);
    if (status == CAISSON_OK) {
        status = start(a, err);
    }
    if (status != CAISSON_OK) {
        csn_cmf_append_close(a);
        return status;
    }
    *ret = a;
    return CAISSON_OK;
}

caisson_status csn_cmf_append_begin_model(csn_fs *fs, const char *path, csn_cmf_append **ret,
                                          csn_cmf **ret_model, caisson_error *err) {
    csn_cmf *model;
    csn_cmf_append *a;
    CSN_TRY(csn_cmf_open_model(fs, path, NULL, NULL, &model, err));
    caisson_status status = csn_cmf_append_begin(fs, model->file->path, &a, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_append_check_same(a, model, err);
        if (status != CAISSON_OK) {
            csn_cmf_append_close(a);
        }
    }
    if (status != CAISSON_OK) {
        csn_cmf_close(model);
        return status;
    }
    *ret = a;
    *ret_model = model;
    return CAISSON_OK;
}

caisson_status csn_cmf_append_check_same(const csn_cmf_append *a, const csn_cmf *then,
                                         caisson_error *err) {
    if (memcmp(&then->envelope, &a->cmf->envelope, sizeof(then->envelope)) != 0) {
        return CSN_FAIL(err, CAISSON_E_BUSY, .file = a->cmf->file->path,
                        .what = "another program changed the file meanwhile");
    }
    return CAISSON_OK;
}

const csn_cmf *csn_cmf_append_cmf(const csn_cmf_append *a) {
    return a->cmf;
}

/* Writes n bytes at the next place of this alignment. */
static caisson_status put(csn_cmf_append *a, uint64_t align, const void *bytes, uint64_t n,
                          uint64_t *ret_off, caisson_error *err) {
    uint64_t off, end;
    if (!csn_align_up(a->end, align, &off) || !csn_add(off, n, &end) || end > INT64_MAX) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "the file's size does not fit in 63 bits",
                        CSN_VALUES(a->end, n));
    }
    a->is_grown = true;
    CSN_TRY(csn_file_write_at(a->cmf->file, off, bytes, (size_t)n, err));
    a->end = end;
    *ret_off = off;
    return CAISSON_OK;
}

/* The record of a name of the old directory, or NULL. */
static record *old_record(csn_cmf_append *a, csn_str name) {
    const csn_tensor *t = csn_directory_find(&a->cmf->dir, name);
    return t != NULL ? &a->records[t - a->cmf->dir.tensors] : NULL;
}

/* Where the record of a tensor of this name goes. */
static caisson_status find_slot(csn_cmf_append *a, csn_str name, record **ret, caisson_error *err) {
    record *old = old_record(a, name);
    if (old != NULL) {
        *ret = old;
        return CAISSON_OK;
    }
    if (a->n == CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "directory", .what = "too many tensors",
                        CSN_VALUES(CAISSON_MAX_TENSORS, (uint64_t)a->n + 1));
    }
    if (a->n == a->cap) {
        CSN_TRY(CSN_GROW(&a->records, 2 * (size_t)a->cap, err));
        a->cap *= 2;
    }
    *ret = a->records + a->n;
    return CAISSON_OK;
}

static caisson_status add_tensor(csn_cmf_append *a, const csn_cmf_plan_tensor *plan,
                                 const void *bytes, uint64_t nbytes, caisson_error *err) {
    record r = {0};
    CSN_TRY(csn_cmf_describe(plan, &a->arena, &r.tensor, err));
    if (nbytes != r.tensor.nbytes) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "payload differs in size from shape x dtype",
                        CSN_VALUES(r.tensor.nbytes, nbytes));
    }
    record *slot;
    CSN_TRY(find_slot(a, plan->name, &slot, err));
    if (nbytes > 0) {
        uint64_t align = nbytes >= CSN_CMF_LARGE || !a->has_blob ? CSN_CMF_PAGE : CSN_CMF_ALIGN;
        CSN_TRY(put(a, align, bytes, nbytes, &r.tensor.offset, err));
        a->data_off = a->has_blob ? a->data_off : r.tensor.offset;
        a->has_blob = true;
    }
    r.tensor.hash = csn_hash64(bytes, (size_t)nbytes);
    csn_digest(bytes, (size_t)nbytes, r.digest);
    *slot = r;
    a->n += slot == a->records + a->n;
    a->has_new_directory = true;
    return CAISSON_OK;
}

caisson_status csn_cmf_append_tensor(csn_cmf_append *a, const csn_cmf_plan_tensor *plan,
                                     const void *bytes, uint64_t nbytes, caisson_error *err) {
    caisson_status status = add_tensor(a, plan, bytes, nbytes, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, a->cmf->file->path);
        csn_error_tensor(err, plan->name);
    }
    return status;
}

caisson_status csn_cmf_append_remove(csn_cmf_append *a, csn_str name, caisson_error *err) {
    record *r = old_record(a, name);
    if (r == NULL || r->is_removed) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .file = a->cmf->file->path, .section = "directory",
                        .tensor = name, .what = "no tensor of this name to remove");
    }
    r->is_removed = true;
    a->has_new_directory = true;
    return CAISSON_OK;
}

static caisson_status keep(csn_buf *b, csn_str bytes, caisson_error *err) {
    b->len = 0;
    return csn_buf_str(b, bytes, err);
}

caisson_status csn_cmf_append_masks(csn_cmf_append *a, csn_str section, caisson_error *err) {
    CSN_TRY(keep(&a->masks, section, err));
    a->has_new_masks = true;
    return CAISSON_OK;
}

caisson_status csn_cmf_append_header(csn_cmf_append *a, csn_str json, caisson_error *err) {
    CSN_TRY(keep(&a->header, json, err));
    a->has_new_header = true;
    return CAISSON_OK;
}

/* ---- commit: sections, sync, envelope, sync ---- */

static caisson_status put_section(csn_cmf_append *a, csn_cmf_envelope *e, int section,
                                  csn_str bytes, caisson_error *err) {
    e->len[section] = bytes.len;
    e->off[section] = 0;
    return bytes.len == 0 ? CAISSON_OK : put(a, 1, bytes.ptr, bytes.len, &e->off[section], err);
}

/* Tensors that stay, in order; their digests beside them. */
static caisson_status collect(csn_cmf_append *a, csn_directory *dir, csn_cmf_seals *seals,
                              caisson_error *err) {
    uint8_t *digests;
    CSN_TRY(CSN_ARENA_NEW(&a->arena, a->n, &dir->tensors, err));
    CSN_TRY(CSN_ARENA_NEW(&a->arena, (size_t)a->n * CSN_DIGEST_BYTES, &digests, err));
    for (uint32_t i = 0; i < a->n; i++) {
        if (!a->records[i].is_removed) {
            memcpy(digests + (size_t)dir->n * CSN_DIGEST_BYTES, a->records[i].digest,
                   CSN_DIGEST_BYTES);
            dir->tensors[dir->n++] = a->records[i].tensor;
        }
    }
    seals->tensor_digests = a->has_digests ? digests : NULL;
    seals->n_tensors = dir->n;
    return CAISSON_OK;
}

/* The directory as it will be, and the blob that its payloads span. */
static caisson_status put_directory(csn_cmf_append *a, csn_cmf_envelope *e, csn_cmf_seals *seals,
                                    caisson_error *err) {
    csn_directory dir = {0};
    uint8_t *bytes;
    CSN_TRY(collect(a, &dir, seals, err));
    if (!a->has_new_directory) {
        return CAISSON_OK;
    }
    uint64_t end = a->data_off;
    for (uint32_t i = 0; i < dir.n; i++) {
        const csn_tensor *t = &dir.tensors[i];
        end = t->nbytes > 0 && t->offset + t->nbytes > end ? t->offset + t->nbytes : end;
    }
    e->off[CSN_CMF_DATA] = a->data_off;
    e->len[CSN_CMF_DATA] = end - a->data_off;
    uint64_t n = csn_cmf_directory_bytes(&dir);
    CSN_TRY(csn_arena_alloc(&a->arena, (size_t)n, 1, (void **)&bytes, err));
    csn_cmf_directory_write(&dir, a->data_off, bytes);
    csn_str text = csn_str_make((const char *)bytes, (size_t)n);
    CSN_TRY(csn_cmf_seal_section(seals, CSN_CMF_DIR, text, &a->arena, err));
    e->dir_hash = csn_hash64(bytes, (size_t)n);
    return put_section(a, e, CSN_CMF_DIR, text, err);
}

static caisson_status put_header(csn_cmf_append *a, csn_cmf_envelope *e, const csn_cmf_seals *seals,
                                 caisson_error *err) {
    csn_buf sealed = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = CAISSON_OK;
    if (!a->has_new_header) {
        csn_jw w = csn_jw_begin(&a->header, err);
        csn_cmf_header_write(a->cmf, (csn_str){0}, &w);
        status = csn_jw_end(&w);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_seal_header(csn_buf_view(&a->header), seals, &sealed, err);
    }
    if (status == CAISSON_OK) {
        e->header_hash = csn_hash64(sealed.ptr, sealed.len);
        status = put_section(a, e, CSN_CMF_HEADER, csn_buf_view(&sealed), err);
    }
    csn_buf_free(&sealed);
    return status;
}

static caisson_status prepare(csn_cmf_append *a, caisson_error *err) {
    csn_file *f = a->cmf->file;
    csn_cmf_envelope e = a->cmf->envelope;
    csn_cmf_seals seals = {0};
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) { /* what stays is as sound as it was */
        seals.hash[i] = a->cmf->section_hash[i];
        seals.digest[i] = a->cmf->section_digest[i];
    }
    if (a->has_new_masks) {
        csn_str masks = csn_buf_view(&a->masks);
        CSN_TRY(csn_cmf_seal_section(&seals, CSN_CMF_MASKS, masks, &a->arena, err));
        CSN_TRY(put_section(a, &e, CSN_CMF_MASKS, masks, err));
        e.off[CSN_CMF_INDEX] = e.len[CSN_CMF_INDEX] = 0; /* it tells of the old masks */
        seals.hash[CSN_CMF_INDEX] = (csn_str){0};
        seals.digest[CSN_CMF_INDEX] = NULL;
    }
    CSN_TRY(put_directory(a, &e, &seals, err));
    CSN_TRY(put_header(a, &e, &seals, err));
    CSN_TRY(f->ops->sync(f, err));
    CSN_TRY(csn_cmf_seal_envelope(f, &e, a->envelope, err));
    a->is_ready = true;
    return CAISSON_OK;
}

static caisson_status point(csn_cmf_append *a, caisson_error *err) {
    csn_file *f = a->cmf->file;
    a->is_pointed = true;
    f->ops->hold(f, CSN_HOLD_EXCLUSIVE); /* against readers of these 128 bytes */
    caisson_status status = csn_file_write_at(f, 0, a->envelope, sizeof(a->envelope), err);
    f->ops->hold(f, CSN_HOLD_NONE);
    return status == CAISSON_OK ? f->ops->sync(f, err) : status;
}

caisson_status csn_cmf_append_prepare(csn_cmf_append *a, caisson_error *err) {
    caisson_status status = a->is_ready ? CAISSON_OK : prepare(a, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, a->cmf->file->path);
    }
    return status;
}

caisson_status csn_cmf_append_commit(csn_cmf_append *a, caisson_error *err) {
    CSN_TRY(csn_cmf_append_prepare(a, err));
    caisson_status status = point(a, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, a->cmf->file->path);
    }
    return status;
}

void csn_cmf_append_close(csn_cmf_append *a) {
    caisson_error ignored;
    if (a == NULL) {
        return;
    }
    if (a->is_grown && !a->is_pointed) {
        csn_file *f = a->cmf->file; /* else dead bytes stay, which do no harm */
        (void)f->ops->truncate(f, a->cmf->envelope.file_bytes, &ignored);
    }
    csn_cmf_close(a->cmf);
    csn_buf_free(&a->masks);
    csn_buf_free(&a->header);
    csn_free(a->records);
    csn_arena_done(&a->arena);
    csn_free(a);
}
