/* SPDX-License-Identifier: Apache-2.0 */
/* float32 arrays in the .npy format, version 1.0 (numpy's NEP 1), written row by row.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stdint.h>
#include <stdio.h>

#include "cli.h"

typedef struct cli_npy {
    FILE *file;
    const char *path;
    bool is_regular; /* a file that may be removed again, not a device */
} cli_npy;

/* Opens `path` (replaced if there) and writes the header. CLI_OK, or the exit code with the message
 * printed. */
int cli_npy_open(const cli_args *args, const char *path, uint32_t n_dims, const uint64_t *shape,
                 cli_npy *ret);
/* The next n values in C order. Failures are kept for close. */
void cli_npy_write(cli_npy *npy, const float *values, uint64_t n);
/* CLI_OK, or the exit code with the message printed (disk full ...). */
int cli_npy_close(const cli_args *args, cli_npy *npy);
/* After a close: half an array is worse than none. Devices stay. */
void cli_npy_remove(const cli_npy *npy);

#endif
