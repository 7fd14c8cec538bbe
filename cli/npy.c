/* SPDX-License-Identifier: Apache-2.0 */
/* The header is a Python dict, padded with blanks so that the values begin at a multiple of 64.
 * Both of our platforms are little-endian, as "<f4" says. */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>

int cli_npy_open(const cli_args *args, const char *path, uint32_t n_dims, const uint64_t *shape,
                 cli_out *ret) {
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
    int rc = cli_out_open(args, path, ret);
    if (rc != CLI_OK) {
        return rc;
    }
    fwrite(head, 1, sizeof(head), ret->file);
    fwrite(dict, 1, n, ret->file);
    fprintf(ret->file, "%*s\n", (int)(total - 10 - n - 1), "");
    return CLI_OK;
}

void cli_npy_write(const cli_out *out, const float *values, uint64_t n) {
    fwrite(values, sizeof(*values), (size_t)n, out->file);
}
