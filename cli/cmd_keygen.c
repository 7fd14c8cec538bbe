/* SPDX-License-Identifier: Apache-2.0 */
/* keygen: a key pair for signing files. */
#include <string.h>

#include "commands.h"
#include "open.h"
#include "term.h"

static int run(const cli_args *args) {
    const char *path = args->n_positional > 0 ? args->positional[0] : CLI_SIGNING_KEY;
    caisson_public_key key;
    caisson_error err;
    if (caisson_keygen(path, &key, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    puts(key.hex);
    fputs("The secret key is in ", stderr);
    cli_put_printable(stderr, path, strlen(path));
    fputs(": keep it. Give the public key (above, and in the file of that name and .pub) to those "
          "who check your files.\n",
          stderr);
    return CLI_OK;
}

const cli_command cli_cmd_keygen = {
    .name = "keygen",
    .summary = "Make a key pair for signing .cmf files",
    .positionals = "[KEYFILE]",
    .min_args = 0,
    .max_args = 1,
    .groups = {cli_common_options},
    .details =
        "KEYFILE (" CLI_SIGNING_KEY ") gets the secret key, an Ed25519 seed of 64 hex digits, "
        "readable by its owner alone; KEYFILE.pub gets the public key, which is printed too. A key "
        "that is there is never replaced.",
    .examples = "caisson keygen ~/keys/models.key",
    .run = run,
};
