/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of its own for one test program, removed with all it holds. */
#ifndef TESTS_SUPPORT_TEMP_DIR_H
#define TESTS_SUPPORT_TEMP_DIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char temp_dir_path[256];

static inline int temp_dir_make(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0') { /* memory where there is some: fsync is slow on disks */
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    }
    snprintf(temp_dir_path, sizeof(temp_dir_path), "%s/caisson-test-XXXXXX", base);
    return mkdtemp(temp_dir_path) == NULL ? -1 : 0;
}

/* Path of `name` inside it, in one of eight static buffers. */
static inline const char *temp_path(const char *name) {
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof(paths[0]), "%s/%s", temp_dir_path, name);
    return p;
}

static inline void temp_dir_clear(void) {
    DIR *d = opendir(temp_dir_path);
    if (d == NULL) {
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)unlink(temp_path(e->d_name));
        }
    }
    (void)closedir(d);
}

static inline int temp_dir_remove(void **state) {
    (void)state;
    temp_dir_clear();
    return rmdir(temp_dir_path);
}

static inline void temp_copy(const char *from, const char *to) {
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    if (in == NULL || out == NULL) {
        abort();
    }
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof(buf), in)) > 0;) {
        if (fwrite(buf, 1, n, out) != n) {
            abort();
        }
    }
    (void)fclose(in);
    (void)fclose(out);
}

#endif
