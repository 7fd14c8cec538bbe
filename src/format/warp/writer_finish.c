/* SPDX-License-Identifier: Apache-2.0 */
/* The end: what was written becomes a model that our own reader opens, or nothing changes. */
#include "format/warp/manifest_write.h"
#include "format/warp/writer_internal.h"

static caisson_status check_whole(csn_warp_writer *w, caisson_error *err) {
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    if (w->n_done != n || w->bank != NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "tensors or banks of the plan are missing",
                        CSN_VALUES(n, w->n_done));
    }
    if (w->plan.n_trunk == 0 && w->trunk == NULL) {
        CSN_TRY(csn_warp_writer_open(w, "trunk.bin", &w->trunk, err));
    }
    if (w->plan.n_layers == 0 && w->books == NULL) { /* a dense model has an empty one */
        CSN_TRY(csn_warp_writer_open(w, "codebooks.bin", &w->books, err));
    }
    return CAISSON_OK;
}

static caisson_status write_manifest(csn_warp_writer *w, caisson_error *err) {
    csn_buf json = CSN_BUF_INIT(CSN_WARP_MAX_MANIFEST);
    caisson_status status =
        csn_warp_manifest_write(&w->plan, w->offsets, csn_warp_writer_bank_bytes(w), &json, err);
    if (status == CAISSON_OK) {
        status = csn_warp_writer_file(w, "manifest.json", csn_buf_view(&json), err);
    }
    csn_buf_free(&json);
    return status;
}

/* What our own reader refuses never replaces anything. */
static caisson_status check_readable(csn_warp_writer *w, caisson_error *err) {
    csn_warp *r;
    CSN_TRY(csn_warp_open(w->fs, w->dir.ptr, NULL, &r, err));
    csn_warp_close(r);
    return CAISSON_OK;
}

typedef struct looker {
    csn_fs *fs;
    const char *dir;
    bool has_dir;
} looker;

static void look_for_dir(void *ctx, csn_str name) {
    looker *l = ctx;
    caisson_error ignored;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    if (csn_buf_printf(&b, &ignored, "%s/%.*s", l->dir, CSN_STR_ARGS(name)) != CAISSON_OK ||
        l->fs->ops->is_dir(l->fs, b.ptr)) {
        l->has_dir = true;
    }
    csn_buf_free(&b);
}

/* Only a model is replaced, never somebody's directory. */
caisson_status csn_warp_writer_check_target(const csn_warp_writer *w, bool *ret_is_there,
                                            caisson_error *err) {
    looker l = {w->fs, w->path.ptr, false};
    *ret_is_there = w->fs->ops->exists(w->fs, w->path.ptr);
    if (!*ret_is_there) {
        return CAISSON_OK;
    }
    if (!w->replace) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->path.ptr,
                        .what = "target exists; say that it may be replaced");
    }
    if (!csn_warp_is(w->fs, w->path.ptr)) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->path.ptr,
                        .what = "the target is no WARP model, and is left alone");
    }
    CSN_TRY(w->fs->ops->list(w->fs, w->path.ptr, look_for_dir, &l, err));
    if (l.has_dir) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->path.ptr,
                        .what = "the target holds a directory, which no model has, and is left "
                                "alone");
    }
    return CAISSON_OK;
}

/* The journal goes along and is removed where the model is: at `dir` it would tell of the model
 * that was replaced. */
static caisson_status put_in_place(csn_warp_writer *w, bool is_there, const char *journal,
                                   caisson_error *err) {
    caisson_error ignored;
    CSN_TRY(w->fs->ops->sync_dir(w->fs, w->dir.ptr, err));
    if (is_there) {
        CSN_TRY(w->fs->ops->exchange(w->fs, w->dir.ptr, w->path.ptr, err));
    } else {
        CSN_TRY(w->fs->ops->rename(w->fs, w->dir.ptr, w->path.ptr, err));
    }
    w->is_finished = true; /* the model is in place, whatever follows */
    csn_journal_close(&w->journal);
    (void)w->fs->ops->remove(w->fs, journal, &ignored);
    (void)csn_warp_writer_remove_dir(w->fs, w->dir.ptr, &ignored); /* what was replaced */
    return w->fs->ops->sync_dir(w->fs, w->path.ptr, err);
}

static caisson_status replace_target(csn_warp_writer *w, bool is_there, caisson_error *err) {
    csn_buf journal = CSN_BUF_INIT(1 << 16);
    caisson_status status = csn_buf_printf(&journal, err, "%s/" CSN_WARP_JOURNAL, w->path.ptr);
    if (status == CAISSON_OK) {
        status = put_in_place(w, is_there, journal.ptr, err);
    }
    csn_buf_free(&journal);
    return status;
}

/* What was written opens with our reader, and gets its digests. */
static caisson_status seal(const csn_warp_writer *w, caisson_error *err) {
    csn_warp *written;
    CSN_TRY(csn_warp_open(w->fs, w->dir.ptr, NULL, &written, err));
    caisson_status status = csn_warp_write_digests(written, NULL, err);
    csn_warp_close(written);
    return status;
}

caisson_status csn_warp_writer_finish(csn_warp_writer *w, caisson_error *err) {
    bool is_there = false;
    caisson_status status = check_whole(w, err);
    if (status == CAISSON_OK) {
        status = csn_warp_writer_check_target(w, &is_there, err);
    }
    if (status == CAISSON_OK) {
        status = write_manifest(w, err);
    }
    if (status == CAISSON_OK) {
        status = check_readable(w, err);
    }
    if (status == CAISSON_OK) {
        status = seal(w, err);
    }
    if (status == CAISSON_OK) {
        status = replace_target(w, is_there, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, w->path.ptr);
    }
    return status;
}
