/* SPDX-License-Identifier: Apache-2.0 */
/* verify: every fault of every file, one line or one JSON object each. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum { MAX_JSON = 1 << 30, MAX_NOTES = 16 };

typedef struct job {
    const cli_args *args;
    cli_progress progress;
    csn_jw *json; /* NULL: lines on standard output */
    caisson_error notes[MAX_NOTES];
    unsigned n_notes;
    uint64_t bytes;
    caisson_public_key wanted, signer;
    bool is_wanted, is_signed;
} job;

static void put_text(csn_jw *w, const char *key, const char *text) {
    csn_jw_put_str_or_null(w, key, csn_str_from(text[0] != '\0' ? text : NULL));
}

/* One line, or one object of a list. */
static void tell(job *j, const char *kind, const caisson_error *fault) {
    char line[1200];
    caisson_error_format(fault, line, sizeof(line));
    if (j->json == NULL) {
        cli_progress_end(&j->progress);
        printf("%s [%s]\n", line, kind);
        return;
    }
    csn_jw_object(j->json);
    put_text(j->json, "code", kind);
    put_text(j->json, "section", fault->section);
    put_text(j->json, "tensor", fault->tensor);
    csn_jw_key(j->json, CSN_STR("offset"));
    if (fault->has_offset) {
        csn_jw_u64(j->json, fault->offset);
    } else {
        csn_jw_null(j->json);
    }
    csn_jw_key(j->json, CSN_STR("bytes"));
    if (fault->n_bytes != 0) {
        csn_jw_u64(j->json, fault->n_bytes);
    } else {
        csn_jw_null(j->json);
    }
    put_text(j->json, "want", fault->want);
    put_text(j->json, "got", fault->got);
    put_text(j->json, "what", fault->what);
    put_text(j->json, "message", line); /* the whole sentence, with what the system said */
    csn_jw_object_end(j->json);
}

static void on_fault(void *ctx, const caisson_error *fault) {
    job *j = ctx;
    tell(j, caisson_status_name(fault->code), fault);
}

static void on_note(void *ctx, const caisson_error *note) {
    job *j = ctx;
    if (j->n_notes < MAX_NOTES) {
        j->notes[j->n_notes++] = *note;
    }
}

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    job *j = ctx;
    j->bytes = total;
    cli_progress_show(&j->progress, stage, done, total);
    return !cli_interrupted();
}

static void on_signature(void *ctx, const caisson_public_key *key) {
    job *j = ctx;
    j->signer = *key;
    j->is_signed = true;
}

/* One file; *ret_valid says how it went. */
static int verify(job *j, const char *path, bool *ret_valid) {
    caisson_verify_options o = {
        .struct_size = sizeof(o),
        .n_threads = (uint32_t)cli_int(j->args, "threads", 0),
        .on_fault = on_fault,
        .on_progress = on_progress,
        .ctx = j,
        .require_signature = j->is_wanted ? j->wanted.hex : NULL,
        .on_signature = on_signature,
        .on_note = on_note,
    };
    j->is_signed = false;
    j->n_notes = 0;
    caisson_error err;
    uint64_t n_faults;
    uint64_t t0 = csn_now_ns();
    cli_progress_init(&j->progress, "B", false);
    if (j->json != NULL) {
        csn_jw_object(j->json);
        csn_jw_put_str(j->json, "file", csn_str_from(path));
        csn_jw_key(j->json, CSN_STR("problems"));
        csn_jw_array(j->json);
    }
    caisson_status status = caisson_verify(path, &o, &n_faults, &err);
    cli_progress_end(&j->progress);
    if (status != CAISSON_OK) {
        return cli_fail(j->args, &err);
    }
    *ret_valid = n_faults == 0;
    if (*ret_valid && cli_has(j->args, "write-digests")) {
        status = caisson_write_digests(path, &o, &err);
        cli_progress_end(&j->progress);
        if (status != CAISSON_OK) {
            return cli_fail(j->args, &err);
        }
    }
    if (j->json != NULL) {
        csn_jw_array_end(j->json);
        csn_jw_key(j->json, CSN_STR("notes"));
        csn_jw_array(j->json);
    }
    for (unsigned i = 0; i < j->n_notes; i++) {
        tell(j, "Note", &j->notes[i]);
    }
    if (j->json != NULL) {
        csn_jw_array_end(j->json);
        csn_jw_put_bool(j->json, "valid", *ret_valid);
        put_text(j->json, "signed_by", j->is_signed ? j->signer.hex : "");
        csn_jw_object_end(j->json);
    } else if (*ret_valid) {
        char size[32];
        cli_put_printable(stdout, path, strlen(path));
        printf(": valid (%s hashed in %.2f s)%s%s\n", cli_bytes_text(j->bytes, size, sizeof(size)),
               (double)(csn_now_ns() - t0) * 1e-9, j->is_signed ? ", signed with " : "",
               j->is_signed ? j->signer.hex : "");
    }
    return CLI_OK;
}

static int run(const cli_args *args) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    job j = {.args = args, .json = cli_has(args, "json") ? &w : NULL};
    csn_jw_array(&w);
    bool all_valid = true;
    int rc = cli_required_key(args, &j.wanted, &j.is_wanted);
    for (size_t i = 0; i < args->n_positional && rc == CLI_OK; i++) {
        bool valid = false;
        rc = verify(&j, args->positional[i], &valid);
        all_valid &= valid;
    }
    csn_jw_array_end(&w);
    if (rc == CLI_OK && j.json != NULL) {
        rc = cli_put_json(args, &w, &out, &err);
    } else {
        csn_buf_free(&out);
    }
    return rc != CLI_OK ? rc : all_valid ? CLI_OK : CLI_FAILED;
}

static const cli_option options[] = {
    {.name = "write-digests",
     .kind = CLI_FLAG,
     .help = "Of a .waste directory that is valid: put caisson.digests.json into it, which is "
             "checked from then on"},
    {0},
};

const cli_command cli_cmd_verify = {
    .name = "verify",
    .summary = "Check every byte of models against their hashes",
    .positionals = "FILE...",
    .min_args = 1,
    .max_args = 1u << 20,
    .groups = {options, cli_thread_options, cli_signature_options, cli_json_options,
               cli_common_options},
    .details =
        "Prints one line for each fault, with its range of bytes and both values, and never stops "
        "at the first. A scale or a value that is not a finite number is a fault, too. Of a .waste "
        "directory every record has a checksum; trunk and codebooks have "
        "digests only where --write-digests, or our converter, left them. Notes tell what is odd "
        "and no fault: reserved flags, feature bits that the "
        "content does not bear out, bytes that belong to nothing. A signature that lies beside a "
        "file (FILE.sig) is checked and its key "
        "shown; whose key "
        "it is only you know: --require-signature compares it. Exit code 0: every file is valid; "
        "1: "
        "at least one is not.\n"
        "JSON: [{\"file\":F, \"valid\":false, \"signed_by\":KEY, \"problems\":[{\"code\":C, "
        "\"section\":S,"
        "\"tensor\":T, \"offset\":O, \"bytes\":N, \"want\":W, \"got\":G}], \"notes\":[the same, "
        "code Note]}]; a part that a fault "
        "does not have is null; codes are InvalidMagic, UnsupportedVersion, UnsupportedFeature, "
        "Bounds, Parse, "
        "MissingTensor, Hash, Io, Signature; Limit and Unsupported: more or other than this build "
        "takes.",
    .examples = "caisson verify model.cmf\ncaisson verify --json *.cmf\n"
                "caisson verify --write-digests model.waste",
    .run = run,
};
