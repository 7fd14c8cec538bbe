/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the directory that is to be a model. */
#include "format/warp/writer_internal.h"

caisson_status csn_warp_writer_path(const csn_warp_writer *w, const char *name, csn_buf *ret,
                                    caisson_error *err) {
    *ret = CSN_BUF_INIT(1 << 16);
    return csn_buf_printf(ret, err, "%s/%s", w->dir.ptr, name);
}

caisson_status csn_warp_writer_open(csn_warp_writer *w, const char *name, csn_file **ret,
                                    caisson_error *err) {
    csn_buf b;
    CSN_TRY(csn_warp_writer_path(w, name, &b, err));
    csn_open_mode mode =
        w->fs->ops->exists(w->fs, b.ptr) ? CSN_OPEN_READ_WRITE : CSN_OPEN_CREATE_NEW;
    caisson_status status = csn_fs_open(w->fs, b.ptr, mode, ret, err);
    csn_buf_free(&b);
    return status;
}

caisson_status csn_warp_writer_remove(csn_fs *fs, const char *path, caisson_error *err) {
    return fs->ops->exists(fs, path) ? fs->ops->remove(fs, path, err) : CAISSON_OK;
}

typedef struct remover {
    csn_fs *fs;
    const char *dir;
    caisson_status status;
    caisson_error *err;
} remover;

static void remove_one(void *ctx, csn_str name) {
    remover *r = ctx;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    if (r->status == CAISSON_OK) {
        r->status = csn_buf_printf(&b, r->err, "%s/%.*s", r->dir, CSN_STR_ARGS(name));
    }
    if (r->status == CAISSON_OK) {
        r->status = r->fs->ops->remove(r->fs, b.ptr, r->err);
    }
    csn_buf_free(&b);
}

/* A directory of files; what is a symbolic link, itself or a bank, loses the link alone. */
caisson_status csn_warp_writer_remove_dir(csn_fs *fs, const char *dir, caisson_error *err) {
    remover r = {fs, dir, CAISSON_OK, err};
    caisson_error ignored; /* of a directory that is not empty */
    if (!fs->ops->is_dir(fs, dir) || fs->ops->remove(fs, dir, &ignored) == CAISSON_OK) {
        return CAISSON_OK;
    }
    CSN_TRY(fs->ops->list(fs, dir, remove_one, &r, err));
    CSN_TRY(r.status);
    return csn_warp_writer_remove(fs, dir, err);
}

caisson_status csn_warp_writer_file(csn_warp_writer *w, const char *name, csn_str bytes,
                                    caisson_error *err) {
    csn_buf b;
    CSN_TRY(csn_warp_writer_path(w, name, &b, err));
    caisson_status status = csn_fs_write_all(w->fs, b.ptr, bytes, err);
    csn_buf_free(&b);
    return status;
}
