/* SPDX-License-Identifier: Apache-2.0 */
/* A file system in memory behind csn_fs, for tests and fuzz targets: named files, no directories
 * (a path is a directory when some file's path begins with it and a '/'). Not thread-safe. */
#ifndef CSN_TESTS_SUPPORT_MEMORY_FS_H
#define CSN_TESTS_SUPPORT_MEMORY_FS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

enum { MEMORY_FS_MAX_FILES = 64 };

typedef struct memory_fs_node {
    char *path;
    uint8_t *bytes;
    size_t len;
    int64_t changed_ns;     /* the test's to change */
    const csn_file *holder; /* of the lock */
} memory_fs_node;

typedef struct memory_fs {
    csn_fs base;
    memory_fs_node nodes[MEMORY_FS_MAX_FILES];
    uint64_t free_bytes;
    int n_open;
} memory_fs;

typedef struct memory_fs_file {
    csn_file base;
    memory_fs *fs;
    memory_fs_node *node;
    char path[512];
} memory_fs_file;

static memory_fs_node *memory_fs_find(memory_fs *m, const char *path) {
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        if (m->nodes[i].path != NULL && strcmp(m->nodes[i].path, path) == 0) {
            return &m->nodes[i];
        }
    }
    return NULL;
}

/* Creates or replaces a file. */
static inline memory_fs_node *memory_fs_put(memory_fs *m, const char *path, const void *bytes,
                                            size_t n) {
    memory_fs_node *node = memory_fs_find(m, path);
    for (int i = 0; node == NULL && i < MEMORY_FS_MAX_FILES; i++) {
        if (m->nodes[i].path == NULL) {
            node = &m->nodes[i];
            node->path = strdup(path);
        }
    }
    if (node == NULL) {
        abort();
    }
    free(node->bytes);
    node->bytes = malloc(n + 1);
    if (n > 0) {
        memcpy(node->bytes, bytes, n);
    }
    node->len = n;
    return node;
}

static inline void memory_fs_drop(memory_fs_node *node) {
    free(node->path);
    free(node->bytes);
    *node = (memory_fs_node){0};
}

static caisson_status memory_file_read(csn_file *f, uint64_t off, void *buf, size_t n,
                                       size_t *ret_n, caisson_error *err) {
    (void)err;
    memory_fs_node *node = ((memory_fs_file *)f)->node;
    size_t left = off < node->len ? node->len - (size_t)off : 0;
    *ret_n = n < left ? n : left;
    if (*ret_n > 0) {
        memcpy(buf, node->bytes + off, *ret_n);
    }
    return CAISSON_OK;
}
static caisson_status memory_file_truncate(csn_file *f, uint64_t size, caisson_error *err) {
    (void)err;
    memory_fs_node *node = ((memory_fs_file *)f)->node;
    node->bytes = realloc(node->bytes, (size_t)size + 1);
    if (size > node->len) {
        memset(node->bytes + node->len, 0, (size_t)size - node->len);
    }
    node->len = (size_t)size;
    return CAISSON_OK;
}
static caisson_status memory_file_write(csn_file *f, uint64_t off, const void *buf, size_t n,
                                        size_t *ret_n, caisson_error *err) {
    memory_fs_node *node = ((memory_fs_file *)f)->node;
    if (off + n > node->len) {
        (void)memory_file_truncate(f, off + n, err);
    }
    memcpy(node->bytes + off, buf, n);
    *ret_n = n;
    return CAISSON_OK;
}
static caisson_status memory_file_size(csn_file *f, uint64_t *ret, caisson_error *err) {
    (void)err;
    *ret = ((memory_fs_file *)f)->node->len;
    return CAISSON_OK;
}
static caisson_status memory_file_stamp(csn_file *f, csn_file_stamp *ret, caisson_error *err) {
    (void)err;
    memory_fs_node *node = ((memory_fs_file *)f)->node;
    *ret = (csn_file_stamp){.size = node->len, .changed_ns = node->changed_ns};
    return CAISSON_OK;
}
static caisson_status memory_file_sync(csn_file *f, caisson_error *err) {
    (void)f;
    (void)err;
    return CAISSON_OK;
}
static caisson_status memory_file_lock(csn_file *f, bool *ret_is_ours, caisson_error *err) {
    (void)err;
    memory_fs_node *node = ((memory_fs_file *)f)->node;
    *ret_is_ours = node->holder == NULL || node->holder == f;
    node->holder = *ret_is_ours ? f : node->holder;
    return CAISSON_OK;
}
static void memory_file_take_mode(csn_file *f, const char *path) {
    (void)f;
    (void)path;
}
static void memory_file_hold(csn_file *f, csn_hold how) {
    (void)f;
    (void)how;
}
static caisson_status memory_file_map(csn_file *f, uint64_t size, const uint8_t **ret,
                                      caisson_error *err) {
    (void)size;
    (void)err;
    *ret = ((memory_fs_file *)f)->node->bytes;
    return CAISSON_OK;
}
static void memory_file_unmap(csn_file *f, const uint8_t *p, uint64_t size) {
    (void)f;
    (void)p;
    (void)size;
}
static void memory_file_close(csn_file *f) {
    memory_fs_file *file = (memory_fs_file *)f;
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) { /* its node may be gone */
        memory_fs_node *node = &file->fs->nodes[i];
        node->holder = node->holder == f ? NULL : node->holder;
    }
    file->fs->n_open--;
    free(f);
}

static caisson_status memory_fs_open(csn_fs *fs, const char *path, csn_open_mode mode,
                                     csn_file **ret, caisson_error *err) {
    static const csn_file_ops ops = {
        .read = memory_file_read,
        .write = memory_file_write,
        .size = memory_file_size,
        .stamp = memory_file_stamp,
        .truncate = memory_file_truncate,
        .sync = memory_file_sync,
        .lock = memory_file_lock,
        .take_mode = memory_file_take_mode,
        .hold = memory_file_hold,
        .map = memory_file_map,
        .unmap = memory_file_unmap,
        .close = memory_file_close,
    };
    memory_fs *m = (memory_fs *)fs;
    memory_fs_node *node = memory_fs_find(m, path);
    bool makes = mode == CSN_OPEN_CREATE_NEW || mode == CSN_OPEN_CREATE_PRIVATE;
    if ((node == NULL) == !makes) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = path, .what = "cannot open",
                        .sys_errno = makes ? EEXIST : ENOENT);
    }
    if (node == NULL) {
        node = memory_fs_put(m, path, "", 0);
    }
    memory_fs_file *f = calloc(1, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->base = (csn_file){.ops = &ops, .path = f->path};
    f->fs = m;
    f->node = node;
    m->n_open++;
    *ret = &f->base;
    return CAISSON_OK;
}
static caisson_status memory_fs_remove(csn_fs *fs, const char *path, caisson_error *err) {
    memory_fs_node *node = memory_fs_find((memory_fs *)fs, path);
    if (node == NULL) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = path, .what = "cannot remove");
    }
    memory_fs_drop(node);
    return CAISSON_OK;
}
/* Gives the files of a directory another one; false: there is none. */
static bool memory_fs_move(memory_fs *m, const char *from, const char *to) {
    size_t n = strlen(from);
    bool is_dir = false;
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        char *old = m->nodes[i].path, path[1024];
        if (old != NULL && strncmp(old, from, n) == 0 && old[n] == '/') {
            snprintf(path, sizeof(path), "%s%s", to, old + n);
            m->nodes[i].path = strdup(path);
            free(old);
            is_dir = true;
        }
    }
    return is_dir;
}
static caisson_status memory_fs_exchange(csn_fs *fs, const char *a, const char *b,
                                         caisson_error *err) {
    memory_fs *m = (memory_fs *)fs;
    bool is_there = memory_fs_move(m, a, "exchange") && memory_fs_move(m, b, a) &&
                    memory_fs_move(m, "exchange", b);
    return is_there ? CAISSON_OK
                    : CSN_FAIL(err, CAISSON_E_IO, .file = b, .what = "cannot exchange");
}
static caisson_status memory_fs_rename(csn_fs *fs, const char *from, const char *to,
                                       caisson_error *err) {
    memory_fs *m = (memory_fs *)fs;
    memory_fs_node *old = memory_fs_find(m, to), *node = memory_fs_find(m, from);
    if (memory_fs_move(m, from, to)) {
        return CAISSON_OK;
    }
    if (node == NULL) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = from, .what = "cannot rename");
    }
    if (old != NULL) {
        memory_fs_drop(old);
    }
    free(node->path);
    node->path = strdup(to);
    return CAISSON_OK;
}
static caisson_status memory_fs_sync_dir(csn_fs *fs, const char *path, caisson_error *err) {
    (void)fs;
    (void)path;
    (void)err;
    return CAISSON_OK;
}
static caisson_status memory_fs_free_bytes(csn_fs *fs, const char *path, uint64_t *ret,
                                           caisson_error *err) {
    (void)path;
    (void)err;
    *ret = ((memory_fs *)fs)->free_bytes;
    return CAISSON_OK;
}
static bool memory_fs_is_dir(csn_fs *fs, const char *path) {
    memory_fs *m = (memory_fs *)fs;
    size_t n = strlen(path);
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        const char *p = m->nodes[i].path;
        if (p != NULL && strncmp(p, path, n) == 0 && p[n] == '/') {
            return true;
        }
    }
    return false;
}
static caisson_status memory_fs_make_dir(csn_fs *fs, const char *path, caisson_error *err) {
    (void)fs;
    (void)path;
    (void)err;
    return CAISSON_OK;
}
static bool memory_fs_exists(csn_fs *fs, const char *path) {
    return memory_fs_find((memory_fs *)fs, path) != NULL || memory_fs_is_dir(fs, path);
}
static caisson_status memory_fs_list(csn_fs *fs, const char *path,
                                     void (*fn)(void *ctx, csn_str name), void *ctx,
                                     caisson_error *err) {
    (void)err;
    memory_fs *m = (memory_fs *)fs;
    size_t n = strlen(path);
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        const char *p = m->nodes[i].path;
        if (p != NULL && strncmp(p, path, n) == 0 && p[n] == '/' &&
            strchr(p + n + 1, '/') == NULL) {
            fn(ctx, csn_str_from(p + n + 1));
        }
    }
    return CAISSON_OK;
}

static inline void memory_fs_init(memory_fs *m) {
    static const csn_fs_ops ops = {
        .open = memory_fs_open,
        .rename = memory_fs_rename,
        .exchange = memory_fs_exchange,
        .remove = memory_fs_remove,
        .sync_dir = memory_fs_sync_dir,
        .free_bytes = memory_fs_free_bytes,
        .exists = memory_fs_exists,
        .is_dir = memory_fs_is_dir,
        .make_dir = memory_fs_make_dir,
        .list = memory_fs_list,
    };
    *m = (memory_fs){.base = {&ops}, .free_bytes = UINT64_MAX};
}

static inline void memory_fs_done(memory_fs *m) {
    for (int i = 0; i < MEMORY_FS_MAX_FILES; i++) {
        memory_fs_drop(&m->nodes[i]);
    }
}

#endif
