/* SPDX-License-Identifier: Apache-2.0 */
/* The order of things on the disk: a tensor or a bank is synced, then the journal says that it is
 * there; the manifest is written when all are, and the whole is opened by our own reader; then one
 * rename makes a model of the directory. What the journal does not tell of is written again. */
#include "format/warp/writer_internal.h"

#include "base/size.h"

static caisson_status make_paths(csn_warp_writer *w, const char *path, caisson_error *err) {
    csn_buf *const all[] = {&w->path, &w->dir, &w->lock_path, &w->journal_path};
    static const char *const suffix[] = {"", ".part", ".part.lock", (".part/" CSN_WARP_JOURNAL)};
    csn_str base = csn_str_from(path);
    while (base.len > 1 && base.ptr[base.len - 1] == '/') {
        base.len--;
    }
    for (int i = 0; i < 4; i++) {
        *all[i] = CSN_BUF_INIT(1 << 16);
        CSN_TRY(csn_buf_printf(all[i], err, "%.*s%s", CSN_STR_ARGS(base), suffix[i]));
    }
    return CAISSON_OK;
}

static caisson_status check_plan(csn_warp_writer *w, caisson_error *err) {
    const csn_warp_plan *p = &w->plan;
    uint64_t at = 0;
    CSN_TRY(CSN_ARENA_NEW(&w->arena, (size_t)p->n_trunk + 1, &w->offsets, err));
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        const csn_warp_plan_tensor *t = &p->trunk[i];
        uint64_t n;
        if (t->dtype->warp_fmt == CSN_NO_ID || t->shape.n_dims == 0 || t->shape.n_dims > 4) {
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "trunk", .tensor = t->name,
                            .what = "a type or shape that the trunk cannot hold",
                            .got = csn_str_from(t->dtype->name));
        }
        CSN_TRY(t->dtype->nbytes(&t->shape, &n, err));
        if (!csn_add(at, n, &at)) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "trunk", .tensor = t->name,
                            .what = "the trunk's size does not fit in 64 bits");
        }
        w->offsets[i + 1] = at;
    }
    if (p->n_layers == 0) {
        return CAISSON_OK;
    }
    uint64_t n_books = (uint64_t)p->n_layers * CSN_WARP_N_KINDS * p->coding->stages;
    if (n_books > CSN_WARP_MAX_BOOKS || p->n_experts > UINT16_MAX) {
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "codebooks",
                        .what = "more codebooks or experts than a record can name",
                        CSN_VALUES(CSN_WARP_MAX_BOOKS, n_books));
    }
    return csn_warp_layout_make(p->coding, p->expert_width, p->expert_hidden, &w->layout, err);
}

caisson_status csn_warp_writer_new(csn_fs *fs, const char *path, const csn_warp_plan *plan,
                                   bool replace, csn_warp_writer **ret, uint32_t *ret_n_tensors,
                                   uint32_t *ret_n_banks, caisson_error *err) {
    csn_warp_writer *w;
    CSN_TRY(CSN_NEW(1, &w, err));
    w->fs = fs;
    w->plan = *plan;
    w->replace = replace;
    caisson_status status = make_paths(w, path, err);
    if (status == CAISSON_OK) {
        status = check_plan(w, err);
    }
    if (status == CAISSON_OK) {
        status =
            CSN_ARENA_NEW(&w->arena, (size_t)plan->n_trunk + plan->n_layers + 1, &w->done, err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_writer_begin(w, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_warp_writer_close(w, w->is_anew);
        return status;
    }
    *ret = w;
    *ret_n_tensors = w->n_done < plan->n_trunk ? w->n_done : plan->n_trunk;
    *ret_n_banks = w->n_done - *ret_n_tensors;
    return CAISSON_OK;
}

const csn_warp_layout *csn_warp_writer_layout(const csn_warp_writer *w) {
    return &w->layout;
}

caisson_status csn_warp_writer_mark(csn_warp_writer *w, csn_file *f, caisson_error *err) {
    if (w->journal.n == w->n_done) {
        return CAISSON_OK;
    }
    CSN_TRY(f->ops->sync(f, err));
    w->unsynced_bytes = 0;
    return csn_journal_append(&w->journal, w->done, w->n_done, err);
}

void csn_warp_writer_close(csn_warp_writer *w, bool discard) {
    caisson_error ignored;
    if (w == NULL) {
        return;
    }
    if (!w->is_finished && !discard && w->trunk != NULL && w->n_done <= w->plan.n_trunk) {
        (void)csn_warp_writer_mark(w, w->trunk, &ignored); /* else the old marks still hold */
    }
    csn_file_close(w->trunk);
    csn_file_close(w->books);
    csn_file_close(w->bank);
    csn_journal_close(&w->journal);
    if (!w->is_finished && discard) {
        (void)csn_warp_writer_remove_dir(w->fs, w->dir.ptr, &ignored);
    }
    /* By the lock the next call knows that what could not be removed may go. */
    if (w->lock != NULL && (w->is_finished || discard) && !w->fs->ops->exists(w->fs, w->dir.ptr)) {
        (void)w->fs->ops->remove(w->fs, w->lock_path.ptr, &ignored);
    }
    csn_file_close(w->lock);
    csn_buf_free(&w->path);
    csn_buf_free(&w->dir);
    csn_buf_free(&w->lock_path);
    csn_buf_free(&w->journal_path);
    csn_arena_done(&w->arena);
    csn_free(w);
}
