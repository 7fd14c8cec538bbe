/* SPDX-License-Identifier: Apache-2.0 */
#include "out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "open.h"

static int cannot_write(const cli_args *args, const char *path, int e) {
    return cli_fail_text(args, "%s: cannot write: %s", path, strerror(e));
}

bool cli_is_same_file(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

int cli_check_other(const cli_args *args, const char *path) {
    for (size_t i = 0; i < args->n_positional; i++) {
        if (cli_is_same_file(args->positional[i], path)) {
            return cli_fail_text(args, "%s: is the file that is read, it is not replaced", path);
        }
    }
    return CLI_OK;
}

/* Through a link the file behind it is replaced. */
static int name_part(const cli_args *args, const char *path, cli_out *out) {
    out->target = realpath(path, NULL);
    if (out->target == NULL) {
        out->target = strdup(path);
    }
    size_t size = out->target != NULL ? strlen(out->target) + 32 : 0;
    out->part = out->target != NULL ? malloc(size) : NULL;
    if (out->part == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    (void)snprintf(out->part, size, "%s.part-%ld", out->target, (long)getpid());
    return CLI_OK;
}

int cli_out_open(const cli_args *args, const char *path, cli_out *ret) {
    cli_out out = {.path = path};
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    int rc = cli_check_other(args, path);
    if (rc == CLI_OK && (!is_there || S_ISREG(st.st_mode))) {
        rc = name_part(args, path, &out);
    }
    if (rc == CLI_OK) {
        out.file = fopen(out.part != NULL ? out.part : path, "wb");
        rc = out.file != NULL ? CLI_OK : cannot_write(args, path, errno);
    }
    if (rc != CLI_OK) {
        free(out.target);
        free(out.part);
        return rc;
    }
    if (out.part != NULL && is_there) {
        (void)fchmod(fileno(out.file), st.st_mode & 07777);
    }
    *ret = out;
    return CLI_OK;
}

int cli_out_close(const cli_args *args, cli_out *out, int rc) {
    bool is_bad = fflush(out->file) != 0 || ferror(out->file) != 0 ||
                  (out->part != NULL && fsync(fileno(out->file)) != 0);
    int e = errno;
    if (fclose(out->file) != 0 && !is_bad) {
        is_bad = true;
        e = errno;
    }
    out->file = NULL;
    if (!is_bad && rc == CLI_OK && out->part != NULL && rename(out->part, out->target) != 0) {
        is_bad = true;
        e = errno;
    }
    if (is_bad && rc == CLI_OK) {
        rc = cannot_write(args, out->path, e);
    }
    if (rc != CLI_OK && out->part != NULL) {
        (void)remove(out->part);
    }
    free(out->target);
    free(out->part);
    return rc;
}
