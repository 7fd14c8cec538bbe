/* SPDX-License-Identifier: Apache-2.0 */
/* caisson COMMAND ...: finds the command, parses its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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

static int unknown_command(const char *name) {
    cli_guess guess = {.word = name, .n = strlen(name)};
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        cli_guess_try(&guess, (*c)->name);
    }
    return guess.name != NULL
               ? cli_usage_error(NULL, "no command \"%s\"; did you mean %s?", name, guess.name)
               : cli_usage_error(NULL, "no command \"%s\"", name);
}

/* caisson help [COMMAND] */
static int run_help(int argc, char **argv) {
    if (argc == 0) {
        cli_print_overview(stdout);
        return cli_finish_stdout();
    }
    const cli_command *command = cli_find_command(argv[0]);
    if (command == NULL) {
        return unknown_command(argv[0]);
    }
    cli_print_help(command, stdout);
    return cli_finish_stdout();
}

/* A standard stream that the caller closed would be the first file we open: a model would be read
 * as the text to tokenise, and what we print would land in the file we write. What stands in for it
 * is opened the wrong way round, so that using it still fails. */
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv) {
    hold_standard_streams();
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
        return unknown_command(name);
    }
    return run_command(command, argc - 2, argv + 2);
}
