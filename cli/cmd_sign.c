/* SPDX-License-Identifier: Apache-2.0 */
/* sign: a detached signature beside each file. */
#include <string.h>

#include "commands.h"
#include "open.h"
#include "term.h"

static int run(const cli_args *args) {
    for (size_t i = 0; i < args->n_positional; i++) {
        cli_progress progress;
        caisson_sign_options o = {
            .struct_size = sizeof(o), .on_progress = cli_on_progress, .ctx = &progress};
        caisson_public_key key;
        caisson_error err;
        cli_progress_init(&progress, "B", false);
        caisson_status status = caisson_sign(
            args->positional[i], cli_text(args, "key", CLI_SIGNING_KEY), &o, &key, &err);
        cli_progress_end(&progress);
        if (status != CAISSON_OK) {
            return cli_fail(args, &err);
        }
        cli_put_printable(stdout, args->positional[i], strlen(args->positional[i]));
        printf(".sig: signed with %s\n", key.hex);
    }
    return CLI_OK;
}

static const cli_option options[] = {
    {.name = "key",
     .short_name = "k",
     .kind = CLI_PATH,
     .value = "KEYFILE",
     .help = "The secret key, as caisson keygen makes it",
     .by_default = CLI_SIGNING_KEY},
    {0},
};

const cli_command cli_cmd_sign = {
    .name = "sign",
    .summary = "Sign .cmf files",
    .positionals = "FILE...",
    .min_args = 1,
    .max_args = 1u << 20,
    .groups = {options, cli_common_options},
    .details =
        "Writes FILE.sig beside each file: Ed25519 over the SHA-256 of the whole file, as JSON. A "
        "signature that is there is replaced. caisson verify checks it; run and chat do with "
        "--require-signature.",
    .examples = "caisson keygen models.key\ncaisson sign model.cmf --key models.key\n"
                "caisson run model.cmf \"Hello\" --require-signature models.key.pub",
    .run = run,
};
