/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static int run(const cli_args *args) {
    const cli_command *command = NULL;
    if (args->n_positional > 0) {
        command = cli_find_command(args->positional[0]);
        if (command == NULL) {
            return cli_usage_error(args->command, "no command \"%s\"", args->positional[0]);
        }
    }
    cli_print_man(command, stdout);
    return CLI_OK;
}

const cli_command cli_cmd_man = {
    .name = "man",
    .summary = "Print a man page (roff)",
    .positionals = "[COMMAND]",
    .min_args = 0,
    .max_args = 1,
    .groups = {cli_common_options},
    .examples = "caisson man run | man -l -",
    .run = run,
};
