/* SPDX-License-Identifier: Apache-2.0 */
/* extract: the bytes of a section or of a tensor. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "open.h"
#include "out.h"
#include "term.h"

enum { PIECE = 1 << 20 };

static int put_section(const cli_args *args, caisson_file *file, const char *name, FILE *out) {
    caisson_error err;
    caisson_text text = {0};
    if (caisson_file_section(file, name, &text, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    fwrite(text.ptr, 1, text.n, out);
    caisson_text_free(&text);
    return CLI_OK;
}

static int put_tensor(const cli_args *args, caisson_file *file, const char *name, FILE *out) {
    caisson_error err;
    caisson_tensor_info t;
    int64_t i = caisson_file_find(file, name, strlen(name));
    if (i < 0 || !caisson_file_tensor(file, (uint32_t)i, &t)) {
        return cli_fail_text(args, "no tensor is called \"%s\": caisson tensor lists the names",
                             name);
    }
    char *piece = malloc(PIECE);
    int rc = piece != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
    for (uint64_t at = 0; at < t.n_bytes && rc == CLI_OK && piece != NULL && !ferror(out);
         at += PIECE) {
        uint64_t n = t.n_bytes - at < PIECE ? t.n_bytes - at : PIECE;
        if (caisson_file_payload(file, (uint32_t)i, at, n, piece, &err) != CAISSON_OK) {
            rc = cli_fail(args, &err);
        } else {
            fwrite(piece, 1, (size_t)n, out);
        }
        if (cli_interrupted()) {
            rc = CLI_INTERRUPTED;
        }
    }
    free(piece);
    return rc;
}

static int extract(const cli_args *args, caisson_file *file, const char *path) {
    const char *section = cli_text(args, "section", NULL);
    cli_out out;
    int rc = cli_check_target(args, path);
    if (rc == CLI_OK) {
        rc = cli_out_open(args, path, &out);
    }
    if (rc != CLI_OK) {
        return rc;
    }
    rc = section != NULL ? put_section(args, file, section, out.file)
                         : put_tensor(args, file, args->positional[1], out.file);
    return cli_out_close(args, &out, rc);
}

static int run(const cli_args *args) {
    const char *path = cli_text(args, "output", NULL);
    bool has_name = args->n_positional == 2;
    if (path == NULL || has_name == cli_has(args, "section")) {
        return cli_usage_error(args->command, "say what and where: TENSOR or --section NAME, and "
                                              "--output OUT");
    }
    caisson_file *file;
    int rc = cli_open_file(args, args->positional[0], &file);
    if (rc == CLI_OK) {
        rc = extract(args, file, path);
        caisson_file_close(file);
    }
    return rc;
}

static const char *section_choice(unsigned i) {
    static const char *const names[] = {"header", "directory", "masks", "vocab", "index"};
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : NULL;
}

static const cli_option options[] = {
    {.name = "section",
     .kind = CLI_CHOICE,
     .value = "NAME",
     .choices = section_choice,
     .help = "A section in place of a tensor; vocab is the tokenizer.json"},
    {.name = "output",
     .short_name = "o",
     .kind = CLI_PATH,
     .value = "OUT",
     .help = "The file to write (needed); one that is there is replaced"},
    {0},
};

const cli_command cli_cmd_extract = {
    .name = "extract",
    .summary = "Write a section or a tensor's bytes to a file",
    .positionals = "FILE [TENSOR]",
    .min_args = 1,
    .max_args = 2,
    .groups = {options, cli_file_options, cli_common_options},
    .details = "The bytes as they lie in the file; caisson tensor FILE NAME --npy OUT writes a "
               "tensor's values, and caisson export all of them.",
    .examples = "caisson extract model.cmf --section vocab -o tokenizer.json\n"
                "caisson extract model.cmf model.norm.weight -o norm.bin",
    .run = run,
};
