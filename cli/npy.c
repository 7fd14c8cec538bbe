/* SPDX-License-Identifier: Apache-2.0 */
/* The header is a Python dict, padded with blanks so that the values begin at a multiple of 64.
 * Both of our platforms are little-endian, as "<f4" says. */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "open.h"

int cli_npy_open(const cli_args *args, const char *path, uint32_t n_dims, const uint64_t *shape,
                 cli_npy *ret) {
    char dict[256];
    size_t n =
        (size_t)snprintf(dict, sizeof(dict), "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (uint32_t i = 0; i < n_dims; i++) {
        n += (size_t)snprintf(dict + n, sizeof(dict) - n, "%" PRIu64 "%s", shape[i],
                              n_dims == 1      ? ","
                              : i + 1 < n_dims ? ", "
                                               : "");
    }
    n += (size_t)snprintf(dict + n, sizeof(dict) - n, "), }");
    size_t total = (10 + n + 1 + 63) / 64 * 64;
    unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    head[8] = (unsigned char)((total - 10) & 0xff);
    head[9] = (unsigned char)((total - 10) >> 8);
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        return cli_fail_text(args, "%s: cannot write: %s", path, strerror(errno));
    }
    fwrite(head, 1, sizeof(head), f);
    fwrite(dict, 1, n, f);
    fprintf(f, "%*s\n", (int)(total - 10 - n - 1), "");
    struct stat st;
    bool is_regular = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
    *ret = (cli_npy){f, path, is_regular};
    return CLI_OK;
}

void cli_npy_write(cli_npy *npy, const float *values, uint64_t n) {
    fwrite(values, sizeof(*values), (size_t)n, npy->file);
}

int cli_npy_close(const cli_args *args, cli_npy *npy) {
    bool bad = fflush(npy->file) != 0 || ferror(npy->file) != 0;
    int e = errno;
    if (fclose(npy->file) != 0 && !bad) {
        bad = true;
        e = errno;
    }
    npy->file = NULL;
    return bad ? cli_fail_text(args, "%s: cannot write: %s", npy->path, strerror(e)) : CLI_OK;
}

void cli_npy_remove(const cli_npy *npy) {
    if (npy->is_regular) {
        (void)remove(npy->path);
    }
}
