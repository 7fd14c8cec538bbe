/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming writer. Payloads go behind the gap as they come; vocab, header, directory and, last
 * of all, the envelope are written when the last payload is there. What is not yet a file carries
 * the name `<path>.part`; its journal lets a killed conversion go on where the disk is sure.
 *
 * Before the envelope is written the file is opened under it by our own reader (seal.c): a header
 * that we could not read back never replaces anything. */
#include <errno.h>

#include "base/hash64.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "format/journal.h"
#include "format/cmf/layout.h"
#include "format/cmf/seal.h"

enum {
    SYNC_BYTES = 64 << 20, /* payload bytes between two marks, if the plan does not say */
    SLACK_BYTES = 1 << 20, /* left free on the disk beside the file itself */
    ZERO_BYTES = 4096
};

struct csn_cmf_writer {
    csn_fs *fs;
    csn_buf path, part, journal_path;
    csn_arena arena;
    csn_cmf_layout layout;
    csn_file *file;
    csn_journal journal;
    csn_journal_entry *done; /* [n], of the payloads written so far */
    uint32_t n_done;
    uint64_t vocab_bytes; /* of the plan */
    uint64_t unsynced_bytes, sync_bytes;
    bool is_finished;
};

static caisson_status make_path(csn_buf *b, const char *path, const char *suffix,
                                caisson_error *err) {
    *b = CSN_BUF_INIT(1 << 16);
    return csn_buf_printf(b, err, "%s%s", path, suffix);
}

static caisson_status remove_if_there(csn_fs *fs, const char *path, caisson_error *err) {
    return fs->ops->exists(fs, path) ? fs->ops->remove(fs, path, err) : CAISSON_OK;
}

/* Opens or makes the partial file and claims it: nobody else touches it or its journal from here
 * on. The claim ends with the process, so a killed one never stands in the way. */
static caisson_status claim(csn_cmf_writer *w, bool *ret_is_new, caisson_error *err) {
    bool is_ours;
    *ret_is_new = !w->fs->ops->exists(w->fs, w->part.ptr);
    CSN_TRY(csn_fs_open(w->fs, w->part.ptr, *ret_is_new ? CSN_OPEN_CREATE_NEW : CSN_OPEN_READ_WRITE,
                        &w->file, err));
    CSN_TRY(w->file->ops->lock(w->file, &is_ours, err));
    if (!is_ours) {
        csn_file_close(w->file);
        w->file = NULL;
        return CSN_FAIL(err, CAISSON_E_BUSY, .file = w->path.ptr,
                        .what = "another conversion is writing this file");
    }
    w->file->ops->take_mode(w->file, w->path.ptr); /* what it replaces may be for few eyes */
    return CAISSON_OK;
}

/* The entries of the journal that the file bears out. A tensor may be stored as f32 in place of its
 * dtype; anything else was not this plan's. */
static caisson_status believe(csn_cmf_writer *w, uint64_t size, uint32_t *ret_n, uint64_t *ret_end,
                              caisson_error *err) {
    const uint64_t f32_id = (uint64_t)csn_dtype_by_name(CSN_STR("f32"))->cmf_id;
    *ret_end = w->layout.data_off;
    for (*ret_n = 0; *ret_n < w->journal.n; ++*ret_n) {
        const csn_tensor *t = &w->layout.dir.tensors[*ret_n];
        uint64_t id = w->done[*ret_n].dtype_id;
        if (id != (uint64_t)t->dtype->cmf_id && id != f32_id) {
            break;
        }
        if (id != (uint64_t)t->dtype->cmf_id) {
            CSN_TRY(csn_cmf_layout_to_f32(&w->layout, *ret_n, err));
        }
        if (t->dtype->nbytes != NULL && w->done[*ret_n].nbytes != t->nbytes) {
            break;
        }
        CSN_TRY(csn_cmf_layout_resize(&w->layout, *ret_n, w->done[*ret_n].nbytes, err));
        if (t->offset + t->nbytes > size) {
            break; /* the journal knows more than the file has: do not believe it */
        }
        *ret_end = t->nbytes > 0 ? t->offset + t->nbytes : *ret_end;
    }
    return CAISSON_OK;
}

/* Goes on with an unfinished file of the same plan, if there is one. *ret_is_resumed = false: there
 * is none, or it is of no use. */
static caisson_status try_resume(csn_cmf_writer *w, bool *ret_is_resumed, caisson_error *err) {
    uint64_t size, end;
    uint32_t n;
    *ret_is_resumed = false;
    if (!w->fs->ops->exists(w->fs, w->journal_path.ptr)) {
        return CAISSON_OK;
    }
    caisson_status status = csn_journal_resume(w->fs, w->journal_path.ptr, w->layout.plan_id,
                                               w->layout.dir.n, w->done, &w->journal, err);
    if (status == CAISSON_E_PARSE) {
        return CAISSON_OK; /* another conversion's */
    }
    CSN_TRY(status);
    CSN_TRY(csn_file_size(w->file, &size, err));
    CSN_TRY(believe(w, size, &n, &end, err));
    CSN_TRY(csn_journal_cut(&w->journal, n, err));
    CSN_TRY(w->file->ops->truncate(w->file, end, err)); /* what follows reads as zeros again */
    w->n_done = n;
    *ret_is_resumed = true;
    return CAISSON_OK;
}

static caisson_status check_space(csn_cmf_writer *w, caisson_error *err) {
    uint64_t free_bytes;
    uint64_t have = 0;
    CSN_TRY(w->fs->ops->free_bytes(w->fs, w->path.ptr, &free_bytes, err));
    if (w->n_done > 0) { /* this much is on the disk */
        const csn_tensor *t = &w->layout.dir.tensors[w->n_done - 1];
        have = t->offset + t->nbytes - w->layout.data_off;
    }
    uint64_t need = w->layout.data_off + w->layout.data_len - have + SLACK_BYTES;
    if (!csn_add(need, w->vocab_bytes, &need) || free_bytes < need) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = w->path.ptr,
                        .what = "not enough free space for the file", .sys_errno = ENOSPC,
                        CSN_VALUES(need, free_bytes));
    }
    return CAISSON_OK;
}

/* What lies in the file is of no use, and its space is wanted. */
static caisson_status begin_anew(csn_cmf_writer *w, caisson_error *err) {
    CSN_TRY(remove_if_there(w->fs, w->journal_path.ptr, err));
    CSN_TRY(w->file->ops->truncate(w->file, 0, err));
    CSN_TRY(check_space(w, err));
    return csn_journal_create(w->fs, w->journal_path.ptr, w->layout.plan_id, &w->journal, err);
}

static void remove_partial(csn_cmf_writer *w) {
    caisson_error ignored;
    csn_journal_close(&w->journal);
    (void)w->fs->ops->remove(w->fs, w->journal_path.ptr, &ignored);
    (void)w->fs->ops->remove(w->fs, w->part.ptr, &ignored);
}

static caisson_status start(csn_cmf_writer *w, const char *path, const csn_cmf_plan *plan,
                            caisson_error *err) {
    bool is_new, is_resumed = false;
    CSN_TRY(make_path(&w->path, path, "", err));
    CSN_TRY(make_path(&w->part, path, ".part", err));
    CSN_TRY(make_path(&w->journal_path, path, ".part.journal", err));
    CSN_TRY(csn_cmf_layout_make(plan, &w->arena, &w->layout, err));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, plan->n, &w->done, err));
    CSN_TRY(claim(w, &is_new, err));
    if (!is_new) {
        CSN_TRY(try_resume(w, &is_resumed, err));
    }
    if (is_resumed) {
        return check_space(w, err);
    }
    caisson_status status = begin_anew(w, err);
    if (status != CAISSON_OK) {
        remove_partial(w);
    }
    return status;
}

static void free_writer(csn_cmf_writer *w) {
    csn_journal_close(&w->journal);
    csn_file_close(w->file);
    csn_buf_free(&w->path);
    csn_buf_free(&w->part);
    csn_buf_free(&w->journal_path);
    csn_arena_done(&w->arena);
    csn_free(w);
}

caisson_status csn_cmf_writer_new(csn_fs *fs, const char *path, const csn_cmf_plan *plan,
                                  csn_cmf_writer **ret, uint32_t *ret_n_done, caisson_error *err) {
    csn_cmf_writer *w;
    CSN_TRY(CSN_NEW(1, &w, err));
    w->fs = fs;
    w->vocab_bytes = plan->vocab_bytes;
    w->sync_bytes = plan->sync_bytes != 0 ? plan->sync_bytes : SYNC_BYTES;
    caisson_status status = start(w, path, plan, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        free_writer(w);
        return status;
    }
    *ret = w;
    *ret_n_done = w->n_done;
    return CAISSON_OK;
}

/* Payloads to the disk first, then the journal says that they are there. */
static caisson_status mark(csn_cmf_writer *w, caisson_error *err) {
    if (w->journal.n == w->n_done) {
        return CAISSON_OK;
    }
    CSN_TRY(w->file->ops->sync(w->file, err));
    w->unsynced_bytes = 0;
    return csn_journal_append(&w->journal, w->done, w->n_done, err);
}

caisson_status csn_cmf_writer_tensor(csn_cmf_writer *w, const void *bytes, uint64_t nbytes,
                                     caisson_error *err) {
    if (w->n_done == w->layout.dir.n) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr,
                        .what = "more tensors than the plan has",
                        CSN_VALUES(w->layout.dir.n, (uint64_t)w->n_done + 1));
    }
    const csn_tensor *t = &w->layout.dir.tensors[w->n_done];
    bool is_more = nbytes > t->nbytes;
    caisson_status status = csn_cmf_layout_resize(&w->layout, w->n_done, nbytes, err);
    if (status == CAISSON_OK && is_more) {
        status = check_space(w, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, w->path.ptr);
        return status;
    }
    if (nbytes > 0) {
        status = csn_file_write_at(w->file, t->offset, bytes, (size_t)nbytes, err);
        if (status != CAISSON_OK) {
            csn_error_tensor(err, t->name);
            return status;
        }
    }
    csn_journal_entry *e = &w->done[w->n_done++];
    e->hash = csn_hash64(bytes, (size_t)nbytes);
    csn_digest(bytes, (size_t)nbytes, e->digest);
    e->dtype_id = (uint64_t)t->dtype->cmf_id;
    e->nbytes = nbytes;
    w->unsynced_bytes += nbytes;
    return w->unsynced_bytes >= w->sync_bytes ? mark(w, err) : CAISSON_OK;
}

caisson_status csn_cmf_writer_keep_f32(csn_cmf_writer *w, caisson_error *err) {
    if (w->n_done == w->layout.dir.n) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr,
                        .what = "more tensors than the plan has",
                        CSN_VALUES(w->layout.dir.n, (uint64_t)w->n_done + 1));
    }
    CSN_TRY(csn_cmf_layout_to_f32(&w->layout, w->n_done, err));
    return check_space(w, err);
}

const csn_dtype *csn_cmf_writer_dtype(const csn_cmf_writer *w, uint32_t i) {
    return w->layout.dir.tensors[i].dtype;
}

static caisson_status write_zeros(csn_cmf_writer *w, uint64_t from, uint64_t to,
                                  caisson_error *err) {
    static const uint8_t zeros[ZERO_BYTES];
    while (from < to) {
        size_t n = to - from < ZERO_BYTES ? (size_t)(to - from) : ZERO_BYTES;
        CSN_TRY(csn_file_write_at(w->file, from, zeros, n, err));
        from += n;
    }
    return CAISSON_OK;
}

/* A section behind the blob; an empty one is none. */
static caisson_status write_section(csn_cmf_writer *w, int section, csn_str bytes, uint64_t *end,
                                    csn_cmf_envelope *e, caisson_error *err) {
    if (bytes.len == 0) {
        return CAISSON_OK;
    }
    e->off[section] = *end;
    e->len[section] = bytes.len;
    *end += bytes.len;
    return csn_file_write_at(w->file, e->off[section], bytes.ptr, bytes.len, err);
}

/* Everything but payloads and envelope. */
static caisson_status write_head(csn_cmf_writer *w, csn_str header, csn_str dir, csn_str masks,
                                 csn_str vocab, csn_cmf_envelope *e, caisson_error *err) {
    csn_cmf_layout *l = &w->layout;
    e->off[CSN_CMF_HEADER] = CSN_CMF_ENVELOPE_BYTES;
    e->len[CSN_CMF_HEADER] = header.len;
    e->off[CSN_CMF_DIR] = CSN_CMF_ENVELOPE_BYTES + header.len;
    e->len[CSN_CMF_DIR] = dir.len;
    e->off[CSN_CMF_DATA] = l->data_off;
    e->len[CSN_CMF_DATA] = l->data_len;
    uint64_t end = l->data_off + l->data_len;
    uint64_t head_end = e->off[CSN_CMF_DIR] + dir.len;
    if (head_end > l->data_off) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header",
                        .what = "header is longer than the plan reserved",
                        CSN_VALUES(l->data_off - dir.len - CSN_CMF_ENVELOPE_BYTES, header.len));
    }
    CSN_TRY(write_section(w, CSN_CMF_MASKS, masks, &end, e, err));
    CSN_TRY(write_section(w, CSN_CMF_VOCAB, vocab, &end, e, err));
    CSN_TRY(csn_file_write_at(w->file, e->off[CSN_CMF_HEADER], header.ptr, header.len, err));
    CSN_TRY(csn_file_write_at(w->file, e->off[CSN_CMF_DIR], dir.ptr, dir.len, err));
    CSN_TRY(write_zeros(w, head_end, l->data_off, err)); /* an earlier try may have left bytes */
    e->header_hash = csn_hash64(header.ptr, header.len);
    e->dir_hash = csn_hash64(dir.ptr, dir.len);
    return w->file->ops->truncate(w->file, end, err);
}

/* The envelope last, so that nothing before it makes a CMF file. */
static caisson_status write_envelope(csn_cmf_writer *w, csn_cmf_envelope *e, caisson_error *err) {
    uint8_t bytes[CSN_CMF_ENVELOPE_BYTES];
    CSN_TRY(csn_cmf_seal_envelope(w->file, e, bytes, err));
    CSN_TRY(csn_file_write_at(w->file, 0, bytes, sizeof(bytes), err));
    return w->file->ops->sync(w->file, err);
}

/* The directory section with the hashes of what was written; their digests go into the seals. */
static caisson_status make_directory(csn_cmf_writer *w, csn_cmf_seals *seals, csn_str *ret,
                                     caisson_error *err) {
    csn_directory *dir = &w->layout.dir;
    uint8_t *bytes, *digests;
    CSN_TRY(CSN_ARENA_NEW(&w->arena, (size_t)w->layout.dir_bytes, &bytes, err));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, (size_t)dir->n * CSN_DIGEST_BYTES, &digests, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        dir->tensors[i].hash = w->done[i].hash;
        memcpy(digests + (size_t)i * CSN_DIGEST_BYTES, w->done[i].digest, CSN_DIGEST_BYTES);
    }
    csn_cmf_directory_write(dir, w->layout.data_off, bytes);
    *ret = csn_str_make((const char *)bytes, (size_t)w->layout.dir_bytes);
    seals->tensor_digests = digests;
    seals->n_tensors = dir->n;
    return csn_cmf_seal_section(seals, CSN_CMF_DIR, *ret, &w->arena, err);
}

static caisson_status seal(csn_cmf_writer *w, csn_str header_json, csn_str masks, csn_str vocab,
                           csn_buf *header, caisson_error *err) {
    csn_cmf_seals seals = {0};
    csn_cmf_envelope envelope = {0};
    csn_str dir;
    if (w->n_done != w->layout.dir.n) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "tensors of the plan are missing",
                        CSN_VALUES(w->layout.dir.n, w->n_done));
    }
    CSN_TRY(make_directory(w, &seals, &dir, err));
    CSN_TRY(csn_cmf_seal_section(&seals, CSN_CMF_MASKS, masks, &w->arena, err));
    CSN_TRY(csn_cmf_seal_section(&seals, CSN_CMF_VOCAB, vocab, &w->arena, err));
    CSN_TRY(csn_cmf_seal_header(header_json, &seals, header, err));
    CSN_TRY(mark(w, err));
    CSN_TRY(write_head(w, csn_buf_view(header), dir, masks, vocab, &envelope, err));
    return write_envelope(w, &envelope, err);
}

caisson_status csn_cmf_writer_seal(csn_cmf_writer *w, csn_str header_json, csn_str masks,
                                   csn_str vocab, caisson_error *err) {
    csn_buf header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = seal(w, header_json, masks, vocab, &header, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, w->path.ptr);
    }
    csn_buf_free(&header);
    return status;
}

caisson_status csn_cmf_writer_rename(csn_cmf_writer *w, caisson_error *err) {
    caisson_error ignored;
    CSN_TRY(w->fs->ops->rename(w->fs, w->part.ptr, w->path.ptr, err));
    w->is_finished = true; /* the file is in place, whatever follows */
    csn_journal_close(&w->journal);
    (void)w->fs->ops->remove(w->fs, w->journal_path.ptr, &ignored); /* without .part it is void */
    caisson_status status = w->fs->ops->sync_dir(w->fs, w->path.ptr, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, w->path.ptr);
    }
    return status;
}

caisson_status csn_cmf_writer_finish(csn_cmf_writer *w, csn_str header_json, csn_str vocab,
                                     caisson_error *err) {
    CSN_TRY(csn_cmf_writer_seal(w, header_json, (csn_str){0}, vocab, err));
    return csn_cmf_writer_rename(w, err);
}

void csn_cmf_writer_close(csn_cmf_writer *w, bool discard) {
    caisson_error ignored;
    if (w == NULL) {
        return;
    }
    if (!w->is_finished && !discard) {
        (void)mark(w, &ignored); /* the old marks still hold */
    }
    if (!w->is_finished && discard) {
        remove_partial(w);
    }
    free_writer(w);
}
