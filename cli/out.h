/* SPDX-License-Identifier: Apache-2.0 */
/* A file of output that takes the place of what is there only when it is whole. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <stdio.h>

#include "cli.h"

typedef struct cli_out {
    FILE *file; /* errors of writing are kept for close */
    const char *path;
    char *target, *part; /* part: the file until then; NULL: a device, written in its place */
} cli_out;

bool cli_is_same_file(const char *a, const char *b);
/* CLI_OK, or the exit code with the message printed: `path` is one of the command's arguments. */
int cli_check_other(const cli_args *args, const char *path);

/* CLI_OK, or the exit code with the message printed. A file that the command reads is refused. */
int cli_out_open(const cli_args *args, const char *path, cli_out *ret);
/* rc: how it went so far. Unless that is CLI_OK and all was written, what was there stays. Returns
 * rc, or the exit code with the message printed (disk full ...). */
int cli_out_close(const cli_args *args, cli_out *out, int rc);

#endif
