/* SPDX-License-Identifier: Apache-2.0 */
/* One command a file cmd_<name>.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli.h"

extern const cli_command cli_cmd_convert, cli_cmd_info, cli_cmd_verify, cli_cmd_run, cli_cmd_chat;
extern const cli_command cli_cmd_tokenize, cli_cmd_detokenize, cli_cmd_render, cli_cmd_eval;
extern const cli_command cli_cmd_ppl, cli_cmd_bench, cli_cmd_plan, cli_cmd_tensor;
extern const cli_command cli_cmd_completion, cli_cmd_man, cli_cmd_masks, cli_cmd_skill;
extern const cli_command cli_cmd_keygen, cli_cmd_sign;
extern const cli_command cli_cmd_quantize, cli_cmd_synth;
extern const cli_command cli_cmd_compact, cli_cmd_merge, cli_cmd_split;
extern const cli_command cli_cmd_header, cli_cmd_extract, cli_cmd_diff, cli_cmd_export,
    cli_cmd_requant;

#endif
