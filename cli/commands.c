/* SPDX-License-Identifier: Apache-2.0 */
/* The commands. To add one: cli/cmd_<name>.c, its declaration in commands.h, a row here. */
#include "commands.h"

#include <string.h>

/* clang-format off */ /* one a line: rows are added from several sides */
const cli_command *const cli_commands[] = {
    &cli_cmd_convert,
    &cli_cmd_quantize,
    &cli_cmd_info,
    &cli_cmd_verify,
    &cli_cmd_run,
    &cli_cmd_chat,
    &cli_cmd_tokenize,
    &cli_cmd_detokenize,
    &cli_cmd_render,
    &cli_cmd_eval,
    &cli_cmd_ppl,
    &cli_cmd_bench,
    &cli_cmd_plan,
    &cli_cmd_tensor,
    &cli_cmd_masks,
    &cli_cmd_skill,
    &cli_cmd_header,
    &cli_cmd_extract,
    &cli_cmd_diff,
    &cli_cmd_export,
    &cli_cmd_requant,
    &cli_cmd_compact,
    &cli_cmd_merge,
    &cli_cmd_split,
    &cli_cmd_synth,
    &cli_cmd_keygen,
    &cli_cmd_sign,
    &cli_cmd_completion,
    &cli_cmd_man,
    NULL,
};
/* clang-format on */

const cli_command *cli_find_command(const char *name) {
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        if (strcmp((*c)->name, name) == 0) {
            return *c;
        }
    }
    return NULL;
}
