/* SPDX-License-Identifier: Apache-2.0 */
#include "rewrite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "open.h"
#include "term.h"

const cli_option cli_rewrite_options[] = {
    CLI_TARGET_OPTIONS("OUT", "Where the model goes"),
    {0},
};

const cli_option cli_shard_options[] = {
    {.name = "shard-max-size",
     .kind = CLI_TEXT,
     .value = "N[K|M|G]",
     .help = "Cut the model into files of at most N bytes (K, M, G: powers of 1000; KiB, MiB, GiB: "
             "of 1024), OUT-00001-of-0000N.cmf and so on"},
    {0},
};

int cli_size(const cli_args *args, const char *option, uint64_t *ret) {
    static const struct {
        const char *name;
        uint64_t n;
    } units[] = {{"", 1},          {"K", 1000},      {"M", 1000000},  {"G", 1000000000},
                 {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    const char *text = cli_text(args, option, "");
    size_t n_digits = strspn(text, "0123456789");
    uint64_t n;
    if (csn_str_to_u64(csn_str_make(text, n_digits), &n) && n > 0) {
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcmp(text + n_digits, units[i].name) == 0 && n <= UINT64_MAX / units[i].n) {
                *ret = n * units[i].n;
                return CLI_OK;
            }
        }
    }
    return cli_usage_error(args->command, "--%s: \"%s\" is not a size (such as 500M, 2G or 512MiB)",
                           option, text);
}

/* What was written: `target`, or the first of its shards; malloc'd. */
static char *first_file(const char *target, uint32_t n_files) {
    size_t n = strlen(target) + sizeof("-00001-of-00001.cmf");
    char *name = malloc(n);
    csn_str base = csn_str_from(target);
    base.len -= csn_str_ends(base, CSN_STR(".cmf")) ? 4 : 0;
    if (name != NULL && n_files > 1) {
        snprintf(name, n, "%.*s-00001-of-%05" PRIu32 ".cmf", CSN_STR_ARGS(base), n_files);
    } else if (name != NULL) {
        memcpy(name, target, strlen(target) + 1);
    }
    return name;
}

static int tell(const cli_args *args, const char *target, const caisson_rewrite_report *r) {
    if (cli_has(args, "json")) {
        caisson_error err;
        csn_buf out = CSN_BUF_INIT(1 << 20);
        csn_jw w = csn_jw_begin(&out, &err);
        csn_jw_object(&w);
        csn_jw_put_str(&w, "output", csn_str_from(target));
        csn_jw_put_u64(&w, "bytes_before", r->n_bytes_before);
        csn_jw_put_u64(&w, "bytes_after", r->n_bytes_after);
        csn_jw_put_u64(&w, "files_before", r->n_files_before);
        csn_jw_put_u64(&w, "files_after", r->n_files_after);
        csn_jw_object_end(&w);
        return cli_put_json(args, &w, &out, &err);
    }
    char before[32], after[32];
    cli_put_printable(stdout, target, strlen(target));
    printf(": %s in %" PRIu32 " file%s", cli_bytes_text(r->n_bytes_after, after, sizeof(after)),
           r->n_files_after, r->n_files_after == 1 ? "" : "s");
    printf(" (was %s in %" PRIu32 ")\n", cli_bytes_text(r->n_bytes_before, before, sizeof(before)),
           r->n_files_before);
    return CLI_OK;
}

int cli_rewrite(const cli_args *args, const char *source, const char *target,
                uint64_t shard_max_bytes) {
    cli_progress progress;
    caisson_error err;
    caisson_rewrite_report report;
    caisson_rewrite_options o = {.struct_size = sizeof(o),
                                 .overwrite = cli_has(args, "force"),
                                 .shard_max_bytes = shard_max_bytes,
                                 .on_progress = cli_on_progress,
                                 .ctx = &progress};
    if (target != NULL && shard_max_bytes == 0) {
        int rc = cli_check_target(args, target);
        if (rc != CLI_OK) {
            return rc;
        }
    }
    /* In the place of what a link names, not of the link. */
    char *real = target == NULL ? realpath(source, NULL) : NULL;
    cli_progress_init(&progress, "B", false);
    caisson_status status =
        caisson_rewrite(real != NULL ? real : source, target, &o, &report, &err);
    cli_progress_end(&progress);
    free(real);
    if (status != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    char *name = first_file(target != NULL ? target : source, report.n_files_after);
    int rc = name != NULL ? tell(args, name, &report) : cli_fail_text(args, "out of memory");
    free(name);
    return rc;
}
