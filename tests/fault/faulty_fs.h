/* SPDX-License-Identifier: Apache-2.0 */
/* A csn_fs around another one that can fail: the n-th operation (of all, or of one kind), short
 * reads and writes, a disk that is full after so many bytes, does not answer or has a bad place, a
 * process killed at an operation.
 *
 *   faulty_fs f;
 *   faulty_fs_init(&f, csn_fs_os());
 *   f.fail_at = 3; f.kinds = FAULTY_WRITE | FAULTY_SYNC;     the fourth of these fails with EIO
 */
#ifndef TESTS_FAULT_FAULTY_FS_H
#define TESTS_FAULT_FAULTY_FS_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/io.h"

enum {
    FAULTY_OPEN = 1,
    FAULTY_READ = 2,
    FAULTY_WRITE = 4,
    FAULTY_SIZE = 8,
    FAULTY_TRUNCATE = 16,
    FAULTY_SYNC = 32,
    FAULTY_RENAME = 64,
    FAULTY_REMOVE = 128,
    FAULTY_SYNC_DIR = 256,
    FAULTY_SPACE = 512,
    FAULTY_MAP = 1024,
    FAULTY_LOCK = 2048,
    FAULTY_DIRECT = 4096,
    FAULTY_ALL = 8191
};

typedef struct faulty_fs {
    csn_fs base;
    csn_fs *inner;
    _Atomic int64_t fail_at; /* operations of `kinds` before the one that fails; -1 = never */
    bool stays_broken;       /* all later ones fail too */
    bool kill;               /* SIGKILL instead of an error */
    unsigned kinds;
    _Atomic int64_t n;           /* operations of `kinds` so far */
    _Atomic bool stall;          /* reads do not come back as long as it is true, */
    _Atomic uint64_t stall_from; /* those from this offset on */
    _Atomic int n_held;          /* reads that it holds */
    _Atomic size_t short_by;     /* reads and writes move at most this many bytes; 0 = no limit */
    uint64_t bad_from, n_bad;    /* bytes of a file that no read may touch: a bad sector */
    uint64_t disk_left;          /* bytes that can still be written */
    int n_open;
} faulty_fs;

typedef struct faulty_file {
    csn_file base;
    faulty_fs *fs;
    csn_file *inner;
} faulty_file;

static bool faulty_hits(faulty_fs *f, unsigned kind) {
    if ((f->kinds & kind) == 0) {
        return false;
    }
    int64_t i = atomic_fetch_add(&f->n, 1);
    int64_t at = atomic_load(&f->fail_at);
    bool hit = at >= 0 && (f->stays_broken ? i >= at : i == at);
    if (hit && f->kill) {
        (void)raise(SIGKILL);
    }
    return hit;
}

static caisson_status faulty_error(const char *path, int e, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_IO, .file = path, .what = "injected fault", .sys_errno = e);
}

#define FAULTY_CHECK(fs, kind, path)                                                               \
    do {                                                                                           \
        if (faulty_hits((fs), (kind))) {                                                           \
            return faulty_error((path), EIO, err);                                                 \
        }                                                                                          \
    } while (0)

static csn_file *faulty_inner(csn_file *f) {
    return ((faulty_file *)f)->inner;
}

static caisson_status faulty_read(csn_file *f, uint64_t off, void *buf, size_t n, size_t *ret_n,
                                  caisson_error *err) {
    faulty_fs *fs = ((faulty_file *)f)->fs;
    atomic_fetch_add(&fs->n_held, 1);
    while (atomic_load(&fs->stall) && off >= atomic_load(&fs->stall_from)) {
        (void)usleep(1000);
    }
    atomic_fetch_sub(&fs->n_held, 1);
    FAULTY_CHECK(fs, FAULTY_READ, f->path);
    size_t most = atomic_load(&fs->short_by);
    n = most != 0 && n > most ? most : n;
    if (fs->n_bad > 0 && off < fs->bad_from + fs->n_bad && fs->bad_from < off + n) {
        return faulty_error(f->path, EIO, err);
    }
    return faulty_inner(f)->ops->read(faulty_inner(f), off, buf, n, ret_n, err);
}
static caisson_status faulty_write(csn_file *f, uint64_t off, const void *buf, size_t n,
                                   size_t *ret_n, caisson_error *err) {
    faulty_fs *fs = ((faulty_file *)f)->fs;
    FAULTY_CHECK(fs, FAULTY_WRITE, f->path);
    size_t most = atomic_load(&fs->short_by);
    n = most != 0 && n > most ? most : n;
    if (fs->disk_left == 0) {
        return faulty_error(f->path, ENOSPC, err);
    }
    n = n > fs->disk_left ? (size_t)fs->disk_left : n;
    fs->disk_left -= fs->disk_left == UINT64_MAX ? 0 : n;
    return faulty_inner(f)->ops->write(faulty_inner(f), off, buf, n, ret_n, err);
}
static caisson_status faulty_size(csn_file *f, uint64_t *ret, caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_SIZE, f->path);
    return csn_file_size(faulty_inner(f), ret, err);
}
static caisson_status faulty_stamp(csn_file *f, csn_file_stamp *ret, caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_SIZE, f->path);
    return faulty_inner(f)->ops->stamp(faulty_inner(f), ret, err);
}
static caisson_status faulty_truncate(csn_file *f, uint64_t size, caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_TRUNCATE, f->path);
    return faulty_inner(f)->ops->truncate(faulty_inner(f), size, err);
}
static caisson_status faulty_sync(csn_file *f, caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_SYNC, f->path);
    return faulty_inner(f)->ops->sync(faulty_inner(f), err);
}
static caisson_status faulty_lock(csn_file *f, bool *ret_is_ours, caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_LOCK, f->path);
    return faulty_inner(f)->ops->lock(faulty_inner(f), ret_is_ours, err);
}
static void faulty_take_mode(csn_file *f, const char *path) {
    faulty_inner(f)->ops->take_mode(faulty_inner(f), path);
}
static void faulty_hold(csn_file *f, csn_hold how) {
    faulty_inner(f)->ops->hold(faulty_inner(f), how);
}
static caisson_status faulty_map(csn_file *f, uint64_t size, const uint8_t **ret,
                                 caisson_error *err) {
    FAULTY_CHECK(((faulty_file *)f)->fs, FAULTY_MAP, f->path);
    return faulty_inner(f)->ops->map(faulty_inner(f), size, ret, err);
}
static void faulty_unmap(csn_file *f, const uint8_t *p, uint64_t size) {
    faulty_inner(f)->ops->unmap(faulty_inner(f), p, size);
}
static caisson_status faulty_open_direct(csn_file *f, csn_file **ret, caisson_error *err);
static void faulty_forget(csn_file *f, uint64_t off, uint64_t n) {
    csn_file_forget(faulty_inner(f), off, n);
}
static void faulty_close(csn_file *f) {
    ((faulty_file *)f)->fs->n_open--;
    csn_file_close(faulty_inner(f));
    free(f);
}

/* A file around `inner`, which it takes. No descriptor: every read comes past us. */
static csn_file *faulty_wrap(faulty_fs *f, csn_file *inner) {
    static const csn_file_ops ops = {
        .read = faulty_read,
        .write = faulty_write,
        .size = faulty_size,
        .stamp = faulty_stamp,
        .truncate = faulty_truncate,
        .sync = faulty_sync,
        .lock = faulty_lock,
        .take_mode = faulty_take_mode,
        .hold = faulty_hold,
        .map = faulty_map,
        .unmap = faulty_unmap,
        .open_direct = faulty_open_direct,
        .forget = faulty_forget,
        .close = faulty_close,
    };
    faulty_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        abort();
    }
    file->base = (csn_file){.ops = &ops, .path = inner->path};
    file->fs = f;
    file->inner = inner;
    f->n_open++;
    return &file->base;
}
static caisson_status faulty_open_direct(csn_file *f, csn_file **ret, caisson_error *err) {
    faulty_fs *fs = ((faulty_file *)f)->fs;
    FAULTY_CHECK(fs, FAULTY_DIRECT, f->path);
    csn_file *inner;
    CSN_TRY(csn_file_open_direct(faulty_inner(f), &inner, err));
    *ret = faulty_wrap(fs, inner);
    return CAISSON_OK;
}
static caisson_status faulty_open(csn_fs *fs, const char *path, csn_open_mode mode, csn_file **ret,
                                  caisson_error *err) {
    faulty_fs *f = (faulty_fs *)fs;
    FAULTY_CHECK(f, FAULTY_OPEN, path);
    csn_file *inner;
    CSN_TRY(csn_fs_open(f->inner, path, mode, &inner, err));
    *ret = faulty_wrap(f, inner);
    return CAISSON_OK;
}
static caisson_status faulty_rename(csn_fs *fs, const char *from, const char *to,
                                    caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_RENAME, to);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->rename(inner, from, to, err);
}
static caisson_status faulty_exchange(csn_fs *fs, const char *a, const char *b,
                                      caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_RENAME, b);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->exchange(inner, a, b, err);
}
static caisson_status faulty_remove(csn_fs *fs, const char *path, caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_REMOVE, path);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->remove(inner, path, err);
}
static caisson_status faulty_sync_dir(csn_fs *fs, const char *path, caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_SYNC_DIR, path);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->sync_dir(inner, path, err);
}
static caisson_status faulty_free_bytes(csn_fs *fs, const char *path, uint64_t *ret,
                                        caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_SPACE, path);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->free_bytes(inner, path, ret, err);
}
static bool faulty_exists(csn_fs *fs, const char *path) {
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->exists(inner, path);
}
static bool faulty_is_dir(csn_fs *fs, const char *path) {
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->is_dir(inner, path);
}
static caisson_status faulty_make_dir(csn_fs *fs, const char *path, caisson_error *err) {
    FAULTY_CHECK((faulty_fs *)fs, FAULTY_OPEN, path);
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->make_dir(inner, path, err);
}
static caisson_status faulty_list(csn_fs *fs, const char *path, void (*fn)(void *ctx, csn_str name),
                                  void *ctx, caisson_error *err) {
    csn_fs *inner = ((faulty_fs *)fs)->inner;
    return inner->ops->list(inner, path, fn, ctx, err);
}

static inline void faulty_fs_init(faulty_fs *f, csn_fs *inner) {
    static const csn_fs_ops ops = {
        .open = faulty_open,
        .rename = faulty_rename,
        .exchange = faulty_exchange,
        .remove = faulty_remove,
        .sync_dir = faulty_sync_dir,
        .free_bytes = faulty_free_bytes,
        .exists = faulty_exists,
        .is_dir = faulty_is_dir,
        .make_dir = faulty_make_dir,
        .list = faulty_list,
    };
    *f = (faulty_fs){.base = {&ops},
                     .inner = inner,
                     .fail_at = -1,
                     .kinds = FAULTY_ALL,
                     .disk_left = UINT64_MAX};
}

#endif
