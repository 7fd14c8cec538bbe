/* SPDX-License-Identifier: Apache-2.0 */
/* How a conversion begins or goes on: the units that the journal tells of and the files bear out
 * are kept. */
#include <errno.h>

#include "base/hash64.h"
#include "base/size.h"
#include "format/warp/manifest_write.h"
#include "format/warp/writer_internal.h"

enum { SLACK_BYTES = 8 << 20 /* left free on the disk beside the model: tokenizer, manifest */ };

static uint64_t mix_str(uint64_t id, csn_str s) {
    return csn_journal_mix(csn_journal_mix(id, s.len), csn_hash64(s.ptr, s.len));
}

static uint64_t plan_id(const csn_warp_plan *p) {
    uint64_t id = mix_str(mix_str(7, p->fingerprint), p->config);
    id = mix_str(mix_str(id, p->prefix), p->arch);
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        id = mix_str(id, p->trunk[i].name);
        id = csn_journal_mix(id, (uint64_t)p->trunk[i].dtype->warp_fmt);
    }
    for (uint32_t i = 0; i < p->n_layers; i++) {
        id = csn_journal_mix(id, p->layers[i]);
    }
    id = csn_journal_mix(id, p->n_experts);
    return mix_str(id, csn_str_from(p->coding->name));
}

static caisson_status file_has(csn_warp_writer *w, const char *name, uint64_t nbytes, bool *ret,
                               caisson_error *err) {
    csn_buf b;
    csn_file *f;
    uint64_t size = 0;
    *ret = false;
    CSN_TRY(csn_warp_writer_path(w, name, &b, err));
    caisson_status status = CAISSON_OK;
    if (w->fs->ops->exists(w->fs, b.ptr)) {
        status = csn_fs_open(w->fs, b.ptr, CSN_OPEN_READ, &f, err);
        if (status == CAISSON_OK) {
            status = csn_file_size(f, &size, err);
            csn_file_close(f);
            *ret = size >= nbytes;
        }
    }
    csn_buf_free(&b);
    return status;
}

/* The leading units of the journal that the files bear out. */
static caisson_status believe(csn_warp_writer *w, caisson_error *err) {
    for (w->n_done = 0; w->n_done < w->journal.n; w->n_done++) {
        uint32_t i = w->n_done, n_trunk = w->plan.n_trunk;
        char name[CSN_WARP_BANK_NAME] = "trunk.bin";
        bool is_there;
        uint64_t need = i < n_trunk ? w->offsets[i + 1] : csn_warp_writer_bank_bytes(w);
        if (i >= n_trunk) {
            uint64_t n_books = (uint64_t)(i - n_trunk + 1) * csn_warp_writer_n_books(w);
            CSN_TRY(file_has(w, "codebooks.bin", n_books * csn_warp_writer_book_bytes(w), &is_there,
                             err));
            if (!is_there) {
                break;
            }
            csn_warp_bank_name(w->plan.layers[i - n_trunk], name);
        }
        CSN_TRY(file_has(w, name, need, &is_there, err));
        if (!is_there || w->done[i].nbytes != csn_warp_writer_unit_bytes(w, i)) {
            break;
        }
    }
    return csn_journal_cut(&w->journal, w->n_done, err);
}

static caisson_status claim(csn_warp_writer *w, caisson_error *err) {
    bool is_ours = false;
    const char *p = w->lock_path.ptr;
    bool is_known = w->fs->ops->exists(w->fs, p);
    if (!is_known && w->fs->ops->exists(w->fs, w->dir.ptr)) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->dir.ptr,
                        .what = "where the model would be written lies what no conversion left: "
                                "it is not touched");
    }
    CSN_TRY(
        csn_fs_open(w->fs, p, is_known ? CSN_OPEN_READ_WRITE : CSN_OPEN_CREATE_NEW, &w->lock, err));
    CSN_TRY(w->lock->ops->lock(w->lock, &is_ours, err));
    if (!is_ours) {
        csn_file_close(w->lock);
        w->lock = NULL;
        return CSN_FAIL(err, CAISSON_E_BUSY, .file = w->path.ptr,
                        .what = "another conversion is writing this model");
    }
    return CAISSON_OK;
}

static caisson_status check_space(csn_warp_writer *w, caisson_error *err) {
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    uint64_t free_bytes, need = SLACK_BYTES;
    for (uint32_t i = w->n_done; i < n; i++) {
        if (!csn_add(need, csn_warp_writer_unit_bytes(w, i), &need)) {
            need = UINT64_MAX;
            break;
        }
    }
    CSN_TRY(w->fs->ops->free_bytes(w->fs, w->path.ptr, &free_bytes, err));
    if (free_bytes < need) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = w->path.ptr,
                        .what = "not enough free space for the model", .sys_errno = ENOSPC,
                        CSN_VALUES(need, free_bytes));
    }
    return CAISSON_OK;
}

static caisson_status begin_anew(csn_warp_writer *w, uint64_t id, caisson_error *err) {
    w->is_anew = true;
    CSN_TRY(csn_warp_writer_remove_dir(w->fs, w->dir.ptr, err));
    CSN_TRY(check_space(w, err));
    CSN_TRY(w->fs->ops->make_dir(w->fs, w->dir.ptr, err));
    return csn_journal_create(w->fs, w->journal_path.ptr, id, &w->journal, err);
}

caisson_status csn_warp_writer_begin(csn_warp_writer *w, caisson_error *err) {
    uint64_t id = plan_id(&w->plan);
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    bool is_there;
    caisson_status status = CAISSON_E_PARSE;
    CSN_TRY(csn_warp_writer_check_target(w, &is_there, err));
    CSN_TRY(claim(w, err));
    if (w->plan.fingerprint.len > 0 && w->fs->ops->exists(w->fs, w->journal_path.ptr)) {
        caisson_error e = {0};
        status = csn_journal_resume(w->fs, w->journal_path.ptr, id, n, w->done, &w->journal, &e);
        if (status != CAISSON_OK && status != CAISSON_E_PARSE) {
            *err = e;
            return status;
        }
    }
    if (status == CAISSON_OK) {
        CSN_TRY(believe(w, err));
        return check_space(w, err);
    }
    return begin_anew(w, id, err);
}
