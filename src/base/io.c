/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same on every system: whole reads and writes over single calls, and replacing a file
 * at once. The calls themselves are in os_<system>.c. */
#include "base/io.h"

#include <errno.h>

#include "base/alloc.h"

void csn_file_close(csn_file *f) {
    if (f != NULL) {
        f->ops->close(f);
    }
}

caisson_status csn_file_size(csn_file *f, uint64_t *ret, caisson_error *err) {
    return f->ops->size(f, ret, err);
}

caisson_status csn_file_read_at(csn_file *f, uint64_t off, void *buf, size_t n,
                                caisson_error *err) {
    char *p = buf;
    size_t done = 0;
    while (done < n) {
        size_t got = 0;
        CSN_TRY(f->ops->read(f, off + done, p + done, n - done, &got, err));
        if (got == 0) {
            return CSN_FAIL(err, CAISSON_E_IO, .file = f->path, CSN_AT(off),
                            .what = "the file ends inside a read; was it cut while in use?",
                            CSN_VALUES(n, done));
        }
        done += got;
    }
    return CAISSON_OK;
}

caisson_status csn_file_write_at(csn_file *f, uint64_t off, const void *buf, size_t n,
                                 caisson_error *err) {
    const char *p = buf;
    size_t done = 0;
    while (done < n) {
        size_t put = 0;
        CSN_TRY(f->ops->write(f, off + done, p + done, n - done, &put, err));
        if (put == 0) {
            return CSN_FAIL(err, CAISSON_E_IO, .file = f->path, CSN_AT(off + done),
                            .what = "the system wrote nothing; is the disk full?",
                            .sys_errno = ENOSPC, CSN_VALUES(n, done));
        }
        done += put;
    }
    return CAISSON_OK;
}

caisson_status csn_file_open_direct(csn_file *f, csn_file **ret, caisson_error *err) {
    if (f->ops->open_direct == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = f->path,
                        .what = "the file cannot be read past the page cache");
    }
    return f->ops->open_direct(f, ret, err);
}

int csn_file_descriptor(csn_file *f) {
    return f->ops->descriptor != NULL ? f->ops->descriptor(f) : -1;
}

void csn_file_forget(csn_file *f, uint64_t off, uint64_t n) {
    if (f->ops->forget != NULL) {
        f->ops->forget(f, off, n);
    }
}

caisson_status csn_fs_read_all(csn_fs *fs, const char *path, uint64_t max, csn_buf *ret,
                               caisson_error *err) {
    csn_file *f = NULL;
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ, &f, err));
    csn_buf b = CSN_BUF_INIT(max > SIZE_MAX - 1 ? SIZE_MAX - 1 : (size_t)max);
    uint64_t size = 0;
    caisson_status status = csn_file_size(f, &size, err);
    if (status == CAISSON_OK && size > max) {
        status = CSN_FAIL(err, CAISSON_E_LIMIT, .file = path,
                          .what = "file is larger than its limit", CSN_VALUES(max, size));
    }
    if (status == CAISSON_OK) {
        status = csn_buf_reserve(&b, (size_t)size, err);
    }
    if (status == CAISSON_OK && size > 0) {
        status = csn_file_read_at(f, 0, b.ptr, (size_t)size, err);
    }
    csn_file_close(f);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_buf_free(&b);
        return status;
    }
    b.len = (size_t)size;
    if (b.ptr != NULL) {
        b.ptr[b.len] = '\0';
    }
    *ret = b;
    return CAISSON_OK;
}

/* Waits for a writer that is at work in the file, and removes what a killed one left. */
static void clear_temp(csn_fs *fs, const char *temp) {
    caisson_error ignored = {0};
    csn_file *f = NULL;
    bool is_there = true;
    if (csn_fs_open(fs, temp, CSN_OPEN_READ_WRITE, &f, &ignored) == CAISSON_OK) {
        f->ops->hold(f, CSN_HOLD_EXCLUSIVE);
        (void)f->ops->lock(f, &is_there, &ignored);
    } else {
        is_there = ignored.sys_errno != ENOENT;
    }
    if (is_there) { /* else it has become the file that it was written for */
        (void)fs->ops->remove(fs, temp, &ignored);
    }
    csn_file_close(f);
}

/* A new file that is ours until it is closed: who replaces the same file at the same time takes
 * turns with us, and never renames what we have half written. */
static caisson_status open_temp(csn_fs *fs, const char *temp, csn_file **ret, caisson_error *err) {
    enum { TRIES = 1000 }; /* each that fails is another writer's turn */
    for (int i = 0; i < TRIES; i++) {
        caisson_error e = {0};
        bool is_ours = false;
        csn_file *f;
        caisson_status status = csn_fs_open(fs, temp, CSN_OPEN_CREATE_NEW, &f, &e);
        if (status == CAISSON_OK) {
            f->ops->hold(f, CSN_HOLD_EXCLUSIVE);
            status = f->ops->lock(f, &is_ours, &e);
            if (is_ours) {
                *ret = f;
                return CAISSON_OK;
            }
            if (status != CAISSON_OK) {
                caisson_error ignored;
                (void)fs->ops->remove(fs, temp, &ignored);
            }
            csn_file_close(f);
        } else if (e.sys_errno == EEXIST) {
            clear_temp(fs, temp);
            status = CAISSON_OK;
        }
        if (status != CAISSON_OK) {
            *err = e;
            return status;
        }
    }
    return CSN_FAIL(err, CAISSON_E_BUSY, .file = temp, .what = "others write this file, on and on");
}

caisson_status csn_fs_write_all(csn_fs *fs, const char *path, csn_str bytes, caisson_error *err) {
    csn_buf temp = CSN_BUF_INIT(1 << 16);
    caisson_error ignored;
    csn_file *f = NULL;
    CSN_TRY(csn_buf_printf(&temp, err, "%s.tmp", path));
    caisson_status status = open_temp(fs, temp.ptr, &f, err);
    if (status == CAISSON_OK) {
        status = csn_file_write_at(f, 0, bytes.ptr, bytes.len, err);
        if (status == CAISSON_OK) {
            status = f->ops->sync(f, err);
        }
        if (status == CAISSON_OK) {
            status = fs->ops->rename(fs, temp.ptr, path, err);
        }
        if (status != CAISSON_OK) {
            (void)fs->ops->remove(fs, temp.ptr, &ignored);
        } else {
            status = fs->ops->sync_dir(fs, path, err);
        }
        csn_file_close(f); /* the next one's turn */
    }
    csn_buf_free(&temp);
    return status;
}
