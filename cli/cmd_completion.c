/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static int run(const cli_args *args) {
    if (!cli_print_completion(args->positional[0], stdout)) {
        return cli_usage_error(args->command, "\"%s\" is not bash, zsh or fish",
                               args->positional[0]);
    }
    return CLI_OK;
}

const cli_command cli_cmd_completion = {
    .name = "completion",
    .summary = "Print the completion script of a shell",
    .positionals = "bash|zsh|fish",
    .min_args = 1,
    .max_args = 1,
    .groups = {cli_common_options},
    .examples = "caisson completion bash > ~/.local/share/bash-completion/completions/caisson\n"
                "caisson completion zsh > ~/.zsh/completions/_caisson\n"
                "caisson completion fish > ~/.config/fish/completions/caisson.fish",
    .run = run,
};
