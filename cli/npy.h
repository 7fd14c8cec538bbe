/* SPDX-License-Identifier: Apache-2.0 */
/* float32 arrays in the .npy format, version 1.0 (numpy's NEP 1), written row by row.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stdint.h>

#include "out.h"

/* Opens `path` and writes the header. CLI_OK, or the exit code with the message printed. */
int cli_npy_open(const cli_args *args, const char *path, uint32_t n_dims, const uint64_t *shape,
                 cli_out *ret);
/* The next n values in C order. Failures are kept for cli_out_close(). */
void cli_npy_write(const cli_out *out, const float *values, uint64_t n);

#endif
