/* SPDX-License-Identifier: Apache-2.0 */
/* The operating system's files behind the contract of io.h, for POSIX systems. Interrupted calls
 * are repeated; everything else that the kernel refuses becomes CAISSON_E_IO with errno. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include "base/alloc.h"
#include "base/io.h"
#include "base/os.h"

typedef struct os_file {
    csn_file base;
    int fd;
    char path[];
} os_file;

enum { MAX_CALL = 1 << 30 }; /* Linux moves at most 2^31 - 4096 bytes a call */

static caisson_status fail_io(caisson_error *err, const char *path, const char *what) {
    int e = errno;
    return CSN_FAIL(err, CAISSON_E_IO, .file = path, .what = what, .sys_errno = e);
}

static caisson_status os_read(csn_file *f, uint64_t off, void *buf, size_t n, size_t *ret_n,
                              caisson_error *err) {
    ssize_t k;
    do {
        k = pread(((os_file *)f)->fd, buf, n < MAX_CALL ? n : MAX_CALL, (off_t)off);
    } while (k < 0 && errno == EINTR);
    if (k < 0) {
        return fail_io(err, f->path, "cannot read");
    }
    *ret_n = (size_t)k;
    return CAISSON_OK;
}

static caisson_status os_write(csn_file *f, uint64_t off, const void *buf, size_t n, size_t *ret_n,
                               caisson_error *err) {
    ssize_t k;
    do {
        k = pwrite(((os_file *)f)->fd, buf, n < MAX_CALL ? n : MAX_CALL, (off_t)off);
    } while (k < 0 && errno == EINTR);
    if (k < 0) {
        return fail_io(err, f->path, "cannot write");
    }
    *ret_n = (size_t)k;
    return CAISSON_OK;
}

static caisson_status os_size(csn_file *f, uint64_t *ret, caisson_error *err) {
    struct stat st;
    if (fstat(((os_file *)f)->fd, &st) != 0) {
        return fail_io(err, f->path, "cannot read the size");
    }
    *ret = (uint64_t)st.st_size;
    return CAISSON_OK;
}

static caisson_status os_stamp(csn_file *f, csn_file_stamp *ret, caisson_error *err) {
    struct stat st;
    if (fstat(((os_file *)f)->fd, &st) != 0) {
        return fail_io(err, f->path, "cannot read the attributes");
    }
    *ret = (csn_file_stamp){
        .device = (uint64_t)st.st_dev,
        .inode = (uint64_t)st.st_ino,
        .size = (uint64_t)st.st_size,
        .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
        .changed_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
    };
    return CAISSON_OK;
}

static caisson_status os_truncate(csn_file *f, uint64_t size, caisson_error *err) {
    int rc;
    do {
        rc = ftruncate(((os_file *)f)->fd, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        return fail_io(err, f->path, "cannot set the size");
    }
    return CAISSON_OK;
}

static int sync_fd(int fd) {
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

static caisson_status os_sync(csn_file *f, caisson_error *err) {
    if (sync_fd(((os_file *)f)->fd) != 0) {
        return fail_io(err, f->path, "cannot write to the disk (fsync)");
    }
    return CAISSON_OK;
}

/* flock belongs to the open file, not to the process: two writers in one process see each other
 * too, and closing another descriptor of the same file gives nothing up. */
static caisson_status os_lock(csn_file *f, bool *ret_is_ours, caisson_error *err) {
    int fd = ((os_file *)f)->fd;
    struct stat held, named;
    int rc;
    do {
        rc = flock(fd, LOCK_EX | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && errno == EWOULDBLOCK) {
        *ret_is_ours = false;
        return CAISSON_OK;
    }
    if (fstat(fd, &held) != 0) {
        return fail_io(err, f->path, "cannot read the size");
    }
    /* Its last holder may have renamed or removed it between our open and our lock. */
    *ret_is_ours =
        stat(f->path, &named) == 0 && held.st_dev == named.st_dev && held.st_ino == named.st_ino;
    return CAISSON_OK;
}

static void os_take_mode(csn_file *f, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0) {
        (void)fchmod(((os_file *)f)->fd, st.st_mode & 0777);
    }
}

/* A lock of byte ranges that belongs to the open file, as flock does; both can be held at once. */
static void os_hold(csn_file *f, csn_hold how) {
#ifdef F_OFD_SETLKW
    static const short types[] = {
        [CSN_HOLD_NONE] = F_UNLCK, [CSN_HOLD_SHARED] = F_RDLCK, [CSN_HOLD_EXCLUSIVE] = F_WRLCK};
    struct flock all = {.l_type = types[how], .l_whence = SEEK_SET};
    int rc;
    do {
        rc = fcntl(((os_file *)f)->fd, F_OFD_SETLKW, &all);
    } while (rc != 0 && errno == EINTR);
#else
    (void)f;
    (void)how;
#endif
}

static caisson_status os_map(csn_file *f, uint64_t size, const uint8_t **ret, caisson_error *err) {
    if (size == 0 || size > SIZE_MAX) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = f->path,
                        .what = "cannot map a file of this size", CSN_VALUES(SIZE_MAX, size));
    }
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, ((os_file *)f)->fd, 0);
    if (p == MAP_FAILED) {
        return fail_io(err, f->path, "cannot map");
    }
    *ret = p;
    return CAISSON_OK;
}

static void os_unmap(csn_file *f, const uint8_t *p, uint64_t size) {
    (void)f;
    (void)munmap((void *)(uintptr_t)p, (size_t)size);
}

static caisson_status os_open_direct(csn_file *f, csn_file **ret, caisson_error *err);

static int os_descriptor(csn_file *f) {
    return ((os_file *)f)->fd;
}

static void os_forget(csn_file *f, uint64_t off, uint64_t n) {
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(((os_file *)f)->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
#else
    (void)f;
    (void)off;
    (void)n;
#endif
}

static void os_close(csn_file *f) {
    (void)close(((os_file *)f)->fd); /* written files were synced: nothing can be lost here */
    csn_free(f);
}

static const csn_file_ops os_file_ops = {
    .read = os_read,
    .write = os_write,
    .size = os_size,
    .stamp = os_stamp,
    .truncate = os_truncate,
    .sync = os_sync,
    .lock = os_lock,
    .take_mode = os_take_mode,
    .hold = os_hold,
    .map = os_map,
    .unmap = os_unmap,
    .open_direct = os_open_direct,
    .descriptor = os_descriptor,
    .forget = os_forget,
    .close = os_close,
};

/* A FIFO in the place of the file would hold us until somebody writes into it: opened without
 * waiting it can be looked at, and refused. */
static int open_at_once(const char *path, int flags, mode_t mode) {
    int fd;
    do {
        fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    }
    return fd;
}

static caisson_status os_open_direct(csn_file *f, csn_file **ret, caisson_error *err) {
#ifdef O_DIRECT
    size_t n = strlen(f->path);
    os_file *direct;
    CSN_TRY(csn_alloc(1, sizeof(*direct) + n + 1, (void **)&direct, err));
    memcpy(direct->path, f->path, n + 1);
    direct->base = (csn_file){.ops = &os_file_ops, .path = direct->path};
    direct->fd = open_at_once(f->path, O_RDONLY | O_DIRECT, 0);
    if (direct->fd < 0) {
        int e = errno;
        csn_free(direct);
        return CSN_FAIL(err, e == EINVAL ? CAISSON_E_UNSUPPORTED : CAISSON_E_IO, .file = f->path,
                        .what = "cannot open past the page cache", .sys_errno = e);
    }
    struct stat held, opened;
    if (fstat(((os_file *)f)->fd, &held) != 0 || fstat(direct->fd, &opened) != 0 ||
        held.st_dev != opened.st_dev || held.st_ino != opened.st_ino) {
        os_close(&direct->base);
        return CSN_FAIL(err, CAISSON_E_IO, .file = f->path,
                        .what = "the path names another file than it did before");
    }
    *ret = &direct->base;
    return CAISSON_OK;
#else
    (void)ret;
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = f->path,
                    .what = "this system reads everything through its page cache");
#endif
}

static caisson_status os_open(csn_fs *fs, const char *path, csn_open_mode mode, csn_file **ret,
                              caisson_error *err) {
    (void)fs;
    static const int flags[] = {
        [CSN_OPEN_READ] = O_RDONLY,
        [CSN_OPEN_CREATE_NEW] = O_RDWR | O_CREAT | O_EXCL,
        [CSN_OPEN_CREATE_PRIVATE] = O_RDWR | O_CREAT | O_EXCL,
        [CSN_OPEN_READ_WRITE] = O_RDWR,
    };
    size_t n = strlen(path);
    os_file *f;
    CSN_TRY(csn_alloc(1, sizeof(*f) + n + 1, (void **)&f, err));
    memcpy(f->path, path, n + 1);
    f->fd = open_at_once(path, flags[mode], mode == CSN_OPEN_CREATE_PRIVATE ? 0600 : 0644);
    if (f->fd < 0) {
        caisson_status status =
            fail_io(err, path, (flags[mode] & O_CREAT) != 0 ? "cannot create" : "cannot open");
        csn_free(f);
        return status;
    }
    struct stat st;
    bool is_known = fstat(f->fd, &st) == 0;
    if (!is_known || !S_ISREG(st.st_mode)) {
        caisson_status status =
            is_known ? CSN_FAIL(err, CAISSON_E_IO, .file = path, .what = "not a regular file")
                     : fail_io(err, path, "cannot read the attributes");
        (void)close(f->fd);
        csn_free(f);
        return status;
    }
    f->base = (csn_file){.ops = &os_file_ops, .path = f->path};
    *ret = &f->base;
    return CAISSON_OK;
}

static caisson_status os_rename(csn_fs *fs, const char *from, const char *to, caisson_error *err) {
    (void)fs;
    if (rename(from, to) != 0) {
        return fail_io(err, to, "cannot rename the finished file into place");
    }
    return CAISSON_OK;
}

/* False: neither the system nor the file system of the two knows how. */
static bool exchange_at_once(const char *a, const char *b) {
#if defined(__linux__) && defined(SYS_renameat2)
    enum { EXCHANGE = 2 }; /* RENAME_EXCHANGE of linux/fs.h */
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, EXCHANGE) == 0;
#else
    (void)a;
    (void)b;
    return false;
#endif
}

static caisson_status os_exchange(csn_fs *fs, const char *a, const char *b, caisson_error *err) {
    csn_buf aside = CSN_BUF_INIT(1 << 16);
    if (exchange_at_once(a, b)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_buf_printf(&aside, err, "%s.old", b));
    caisson_status status = os_rename(fs, b, aside.ptr, err);
    if (status == CAISSON_OK) {
        status = os_rename(fs, a, b, err);
        caisson_error ignored;
        (void)os_rename(fs, aside.ptr, status == CAISSON_OK ? a : b, &ignored);
    }
    csn_buf_free(&aside);
    return status;
}

static caisson_status os_remove(csn_fs *fs, const char *path, caisson_error *err) {
    (void)fs;
    if (remove(path) != 0) {
        return fail_io(err, path, "cannot remove");
    }
    return CAISSON_OK;
}

/* The directory part of path, "." if it has none. */
static caisson_status parent(const char *path, csn_buf *ret, caisson_error *err) {
    const char *slash = strrchr(path, '/');
    *ret = CSN_BUF_INIT(1 << 16);
    if (slash == NULL) {
        return csn_buf_str(ret, CSN_STR("."), err);
    }
    return csn_buf_append(ret, path, slash == path ? 1 : (size_t)(slash - path), err);
}

static caisson_status os_sync_dir(csn_fs *fs, const char *path_in_dir, caisson_error *err) {
    (void)fs;
    csn_buf dir;
    CSN_TRY(parent(path_in_dir, &dir, err));
    caisson_status status = CAISSON_OK;
    int fd = open_at_once(dir.ptr, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        status = fail_io(err, dir.ptr, "cannot open the directory");
    } else {
        if (sync_fd(fd) != 0 && errno != EINVAL) { /* some filesystems cannot sync a directory */
            status = fail_io(err, dir.ptr, "cannot write the directory to the disk (fsync)");
        }
        (void)close(fd);
    }
    csn_buf_free(&dir);
    return status;
}

static caisson_status os_free_bytes(csn_fs *fs, const char *path_in_dir, uint64_t *ret,
                                    caisson_error *err) {
    (void)fs;
    csn_buf dir;
    CSN_TRY(parent(path_in_dir, &dir, err));
    struct statvfs st;
    caisson_status status = CAISSON_OK;
    if (statvfs(dir.ptr, &st) != 0) {
        status = fail_io(err, dir.ptr, "cannot ask for free space");
    } else {
        *ret = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    }
    csn_buf_free(&dir);
    return status;
}

static bool os_exists(csn_fs *fs, const char *path) {
    (void)fs;
    struct stat st;
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static bool os_is_dir(csn_fs *fs, const char *path) {
    (void)fs;
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static caisson_status os_make_dir(csn_fs *fs, const char *path, caisson_error *err) {
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && os_is_dir(fs, path))) {
        return CAISSON_OK;
    }
    return fail_io(err, path, "cannot make the directory");
}

static caisson_status os_list(csn_fs *fs, const char *path, void (*fn)(void *ctx, csn_str name),
                              void *ctx, caisson_error *err) {
    (void)fs;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return fail_io(err, path, "cannot open the directory");
    }
    caisson_status status = CAISSON_OK;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (e == NULL) {
            if (errno != 0) {
                status = fail_io(err, path, "cannot read the directory");
            }
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            fn(ctx, csn_str_from(e->d_name));
        }
    }
    (void)closedir(dir);
    return status;
}

csn_fs *csn_fs_os(void) {
    static const csn_fs_ops ops = {
        .open = os_open,
        .rename = os_rename,
        .exchange = os_exchange,
        .remove = os_remove,
        .sync_dir = os_sync_dir,
        .free_bytes = os_free_bytes,
        .exists = os_exists,
        .is_dir = os_is_dir,
        .make_dir = os_make_dir,
        .list = os_list,
    };
    static csn_fs fs = {&ops};
    return &fs;
}

void csn_os_populate(void *page, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    (void)madvise(page, bytes, MADV_POPULATE_WRITE);
#else
    (void)page;
    (void)bytes;
#endif
}

void csn_os_discard(void *page, size_t bytes) {
#ifdef MADV_DONTNEED
    (void)madvise(page, bytes, MADV_DONTNEED);
#else
    (void)page;
    (void)bytes;
#endif
}

uint64_t csn_os_major_faults(void) {
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (uint64_t)use.ru_majflt : 0;
}

bool csn_os_zero_pages(void *page, size_t bytes) {
    enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED };
#ifdef __linux__
    /* The system call itself: it is safe in a handler, and the thread sanitizer does not take it
     * for a write that races with the other threads that stand at the same lost page. */
    return syscall(SYS_mmap, page, bytes, PROT_READ, FLAGS, -1, 0L) != -1;
#else
    return mmap(page, bytes, PROT_READ, FLAGS, -1, 0) != MAP_FAILED;
#endif
}
