/* SPDX-License-Identifier: Apache-2.0 */
/* What a person can do about an error. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "cli.h"

/* A line on standard error; nothing where the message says it all. */
void cli_advise(const cli_args *args, const caisson_error *err);

#endif
