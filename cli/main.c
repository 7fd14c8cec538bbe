/* SPDX-License-Identifier: Apache-2.0 */
/* caisson COMMAND ...: finds the command, parses its options, runs it. */
#include <string.h>

#include "cli.h"
#include "term.h"

static int run_command(const cli_command *command, int argc, char **argv) {
    cli_args args;
    int rc = cli_parse(command, argc, argv, &args);
    if (rc == CLI_OK && args.wants_help) {
        cli_print_help(command, stdout);
    } else if (rc == CLI_OK) {
        cli_interrupts_end_at(command->ends_at_once ? 1 : 2);
        rc = command->run(&args);
    }
    cli_args_done(&args);
    int rc_out = cli_finish_stdout();
    return rc != CLI_OK ? rc : rc_out;
}

/* caisson help [COMMAND] */
static int run_help(int argc, char **argv) {
    if (argc == 0) {
        cli_print_overview(stdout);
        return cli_finish_stdout();
    }
    const cli_command *command = cli_find_command(argv[0]);
    if (command == NULL) {
        return cli_usage_error(NULL, "no command \"%s\"", argv[0]);
    }
    cli_print_help(command, stdout);
    return cli_finish_stdout();
}

int main(int argc, char **argv) {
    cli_catch_interrupts();
    if (argc < 2) {
        cli_print_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return run_help(strcmp(name, "help") == 0 ? argc - 2 : 0, argv + 2);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("caisson %s\n", caisson_version());
        return cli_finish_stdout();
    }
    const cli_command *command = cli_find_command(name);
    if (command == NULL) {
        return cli_usage_error(NULL, "no command \"%s\"", name);
    }
    return run_command(command, argc - 2, argv + 2);
}
