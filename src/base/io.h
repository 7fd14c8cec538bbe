/* SPDX-License-Identifier: Apache-2.0 */
/* All file access, behind one contract, so that tests can return short reads, EIO and a full disk.
 *
 * csn_fs makes and removes files; csn_file is one open file. csn_fs_os() is the real thing; tests
 * wrap it (tests/fault/faulty_fs.h). A short read at the end of a file is an error here:
 * csn_file_read_at fills the whole buffer or fails, and never trusts one system call to do so.
 */
#ifndef CSN_BASE_IO_H
#define CSN_BASE_IO_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_file csn_file;
typedef struct csn_fs csn_fs;

/* What tells one state of a file from another without reading it. */
typedef struct csn_file_stamp {
    uint64_t device, inode, size;
    int64_t modified_ns, changed_ns; /* times of the last change: content; content or attributes */
} csn_file_stamp;

/* How csn_file_ops.hold holds a file. */
typedef enum csn_hold {
    CSN_HOLD_NONE,   /* gives it up */
    CSN_HOLD_SHARED, /* beside other shared ones */
    CSN_HOLD_EXCLUSIVE
} csn_hold;

typedef struct csn_file_ops {
    /* Reads or writes up to n bytes at off; *ret_n = how many (0 = end of file). */
    caisson_status (*read)(csn_file *f, uint64_t off, void *buf, size_t n, size_t *ret_n,
                           caisson_error *err);
    caisson_status (*write)(csn_file *f, uint64_t off, const void *buf, size_t n, size_t *ret_n,
                            caisson_error *err);
    caisson_status (*size)(csn_file *f, uint64_t *ret, caisson_error *err);
    caisson_status (*stamp)(csn_file *f, csn_file_stamp *ret, caisson_error *err);
    caisson_status (*truncate)(csn_file *f, uint64_t size, caisson_error *err);
    caisson_status (*sync)(csn_file *f, caisson_error *err);
    /* Claims the file for this open file until it is closed or its process ends, however that
     * ends. *ret_is_ours false: somebody else holds it, or its path names another file by now.
     * Where the file system knows no locks everybody is told true. */
    caisson_status (*lock)(csn_file *f, bool *ret_is_ours, caisson_error *err);
    /* Gives the file the permissions of the one at `path`, if there is one and the system lets us:
     * it is going to stand in its place. */
    void (*take_mode)(csn_file *f, const char *path);
    /* Between those who hold the file, shared or exclusive: waits for its turn. Apart from `lock`,
     * which a writer keeps for as long as it works; this is for the moment in which a reader reads,
     * or a writer writes, the few bytes that say where all others are. Where the file system knows
     * no such locks nobody waits. */
    void (*hold)(csn_file *f, csn_hold how);
    /* Maps [0, size) read-only. */
    caisson_status (*map)(csn_file *f, uint64_t size, const uint8_t **ret, caisson_error *err);
    void (*unmap)(csn_file *f, const uint8_t *p, uint64_t size);
    /* Opens a second time what f reads, past the page cache; the new file may be read and closed.
     * Offsets, lengths and addresses of its reads are multiples of CSN_DIRECT_ALIGN.
     * CAISSON_E_UNSUPPORTED where the system cannot, CAISSON_E_IO if f->path names another file by
     * now. NULL: cannot. */
    caisson_status (*open_direct)(csn_file *f, csn_file **ret, caisson_error *err);
    /* The system's number of the open file, for reads that the kernel does in the background; -1
     * or NULL: it has none, everything goes through `read`. */
    int (*descriptor)(csn_file *f);
    /* Advice: the page cache may drop these bytes. NULL: nothing to drop. */
    void (*forget)(csn_file *f, uint64_t off, uint64_t n);
    void (*close)(csn_file *f);
} csn_file_ops;

enum { CSN_DIRECT_ALIGN = 4096 }; /* suits every disk block in use */

struct csn_file {
    const csn_file_ops *ops;
    const char *path; /* owned by the file; for error messages */
};

typedef enum csn_open_mode {
    CSN_OPEN_READ,
    CSN_OPEN_CREATE_NEW,
    CSN_OPEN_CREATE_PRIVATE, /* the same, readable by its owner alone */
    CSN_OPEN_READ_WRITE
} csn_open_mode;

typedef struct csn_fs_ops {
    caisson_status (*open)(csn_fs *fs, const char *path, csn_open_mode mode, csn_file **ret,
                           caisson_error *err);
    caisson_status (*rename)(csn_fs *fs, const char *from, const char *to, caisson_error *err);
    /* Both are there; each gets the other's place at once where the system can do that. */
    caisson_status (*exchange)(csn_fs *fs, const char *a, const char *b, caisson_error *err);
    /* A file, or a directory that is empty. */
    caisson_status (*remove)(csn_fs *fs, const char *path, caisson_error *err);
    caisson_status (*sync_dir)(csn_fs *fs, const char *path_in_dir, caisson_error *err);
    caisson_status (*free_bytes)(csn_fs *fs, const char *path_in_dir, uint64_t *ret,
                                 caisson_error *err);
    /* False only if nothing has this name: a link to nothing has it, and what the system cannot
     * tell counts as there, so that opening it says what is wrong. */
    bool (*exists)(csn_fs *fs, const char *path);
    bool (*is_dir)(csn_fs *fs, const char *path);
    /* OK as well if the directory is there. */
    caisson_status (*make_dir)(csn_fs *fs, const char *path, caisson_error *err);
    /* Calls fn for each name in the directory, "." and ".." left out, in no order. */
    caisson_status (*list)(csn_fs *fs, const char *path, void (*fn)(void *ctx, csn_str name),
                           void *ctx, caisson_error *err);
} csn_fs_ops;

struct csn_fs {
    const csn_fs_ops *ops;
};

csn_fs *csn_fs_os(void); /* the operating system's files; never NULL, never freed */

static inline caisson_status csn_fs_open(csn_fs *fs, const char *path, csn_open_mode mode,
                                         csn_file **ret, caisson_error *err) {
    return fs->ops->open(fs, path, mode, ret, err);
}
void csn_file_close(csn_file *f); /* NULL is fine */
caisson_status csn_file_size(csn_file *f, uint64_t *ret, caisson_error *err);
/* Exactly n bytes, or CAISSON_E_IO (file shorter than asked: both numbers are in the error). */
caisson_status csn_file_read_at(csn_file *f, uint64_t off, void *buf, size_t n, caisson_error *err);
caisson_status csn_file_write_at(csn_file *f, uint64_t off, const void *buf, size_t n,
                                 caisson_error *err);
caisson_status csn_file_open_direct(csn_file *f, csn_file **ret, caisson_error *err);
int csn_file_descriptor(csn_file *f);
void csn_file_forget(csn_file *f, uint64_t off, uint64_t n);
/* The whole file into *ret (max bytes at most, else CAISSON_E_LIMIT); ret->max is set by it. */
caisson_status csn_fs_read_all(csn_fs *fs, const char *path, uint64_t max, csn_buf *ret,
                               caisson_error *err);
/* The whole file replaced at once: written beside it, synced, renamed, directory synced. Several
 * threads or processes may do so at the same time: one of them is the last. */
caisson_status csn_fs_write_all(csn_fs *fs, const char *path, csn_str bytes, caisson_error *err);

#endif
