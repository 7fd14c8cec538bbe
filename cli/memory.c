/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "open.h"

static const char *io_choice(unsigned i) {
    static const char *const words[] = {"uring", "threads", "buffered", NULL};
    return words[i];
}

const cli_option cli_memory_options[] = {
    {.name = "budget",
     .kind = CLI_TEXT,
     .value = "SIZE",
     .help = "Memory that the model and its context may take: bytes, or K, M, G (powers of 1024); "
             "routed experts beyond it are read when they are wanted (caisson plan MODEL)",
     .by_default = "of a .waste what the machine can spare; a .cmf is mapped"},
    {.name = "stream-trunk",
     .kind = CLI_FLAG,
     .help = "Where not even the other weights fit into the budget: read them layer by layer, for "
             "every token (same result)"},
    {.name = "io",
     .kind = CLI_CHOICE,
     .value = "HOW",
     .choices = io_choice,
     .help = "How experts and layers are read (same result)",
     .by_default = "uring where the kernel has it, else threads"},
    {.name = "no-lookahead",
     .kind = CLI_FLAG,
     .help = "Do not guess which experts the next layer will want (same result)"},
    {.name = "verify-records",
     .kind = CLI_FLAG,
     .help = "Check each expert's checksum whenever it is read, and each layer of --stream-trunk "
             "where there are digests of it (caisson verify --write-digests)"},
    {.name = "learn",
     .kind = CLI_FLAG,
     .help = "Note at the end, in usage.waste in the model's directory, which experts were used: "
             "the next run reads them first (same result)"},
    {.name = "stats",
     .kind = CLI_FLAG,
     .help = "Tell at the end what was read of routed experts and layers"},
    {0},
};

int cli_budget(const cli_args *args, uint64_t *ret) {
    static const char units[] = "KMG";
    const char *text = cli_text(args, "budget", "");
    size_t n_digits = strspn(text, "0123456789");
    uint64_t n = 0;
    *ret = 0;
    if (!cli_has(args, "budget")) {
        return CLI_OK;
    }
    if (csn_str_to_u64(csn_str_make(text, n_digits), &n) && n > 0) {
        const char *unit = text[n_digits] != '\0' ? strchr(units, text[n_digits]) : NULL;
        unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
        bool ends = text[n_digits] == '\0' || (unit != NULL && text[n_digits + 1] == '\0');
        if (ends && n <= UINT64_MAX >> shift) {
            *ret = n << shift;
            return CLI_OK;
        }
    }
    return cli_usage_error(args->command, "--budget: \"%s\" is not a size (such as 8G or 512M)",
                           text);
}

/* What --skill, --blend and --route-dynamic will put into memory; a chat may change its skill. */
static void count_skills(const cli_args *args, caisson_open_options *o) {
    const char *skill = cli_text(args, "skill", NULL);
    bool may_change = cli_has(args, "blend") || cli_has(args, "route-dynamic") ||
                      strcmp(args->command->name, "chat") == 0 ||
                      (skill != NULL && strcmp(skill, "auto") == 0);
    bool is_none = skill == NULL || strcmp(skill, "none") == 0;
    o->budget_skill = may_change ? "*" : is_none ? NULL : skill;
    o->budget_blends = cli_has(args, "blend");
}

static caisson_io io_of(const char *word) {
    return strcmp(word, "uring") == 0      ? CAISSON_IO_URING
           : strcmp(word, "threads") == 0  ? CAISSON_IO_THREADS
           : strcmp(word, "buffered") == 0 ? CAISSON_IO_BUFFERED
                                           : CAISSON_IO_DEFAULT;
}

int cli_memory(const cli_args *args, caisson_open_options *o) {
    if (!cli_knows(args, "budget")) {
        return CLI_OK;
    }
    caisson_session_options s = cli_session_options(args, CAISSON_COMPUTE_DEFAULT, 0);
    o->budget_n_ctx = s.n_ctx;
    o->budget_type_k = s.type_k;
    o->budget_type_v = s.type_v;
    count_skills(args, o);
    o->io = io_of(cli_text(args, "io", ""));
    o->stream_trunk = cli_has(args, "stream-trunk");
    o->no_lookahead = cli_has(args, "no-lookahead");
    o->verify_records = cli_has(args, "verify-records");
    return cli_budget(args, &o->budget_bytes);
}

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* How much of the time in which something was read nobody waited. */
static double overlap(const caisson_expert_stats *s) {
    return s->read_s > 0 && s->stall_s < s->read_s ? 100.0 * (1.0 - s->stall_s / s->read_s) : 0;
}

static void print_line(const char *what, const caisson_expert_stats *s) {
    fprintf(stderr,
            "%-10s %9" PRIu64 " hits %9" PRIu64 " misses (%5.1f%% hits) | %8" PRIu64
            " reads %9.1f MB | ahead %8" PRIu64 " reads %9.1f MB, %5.1f%% used | stalled %7.2f s, "
            "%5.1f%% overlapped\n",
            what, s->hits, s->misses, percent(s->hits, s->hits + s->misses), s->reads,
            (double)s->bytes * 1e-6, s->ahead_reads, (double)s->ahead_bytes * 1e-6,
            percent(s->ahead_used_bytes, s->ahead_bytes), s->stall_s, overlap(s));
}

/* The last place that anything was guessed in. */
static unsigned n_places(const caisson_expert_stats *s) {
    unsigned n = CAISSON_EXPERT_GUESSES;
    while (n > 0 && s->guessed[n - 1] == 0) {
        n--;
    }
    return n;
}

static void print_guesses(const caisson_expert_stats *s) {
    unsigned n = n_places(s);
    if (n == 0) {
        return;
    }
    fputs("guesses, best first:", stderr);
    for (unsigned i = 0; i < n; i++) {
        fprintf(stderr, " %.1f%%", percent(s->guessed_right[i], s->guessed[i]));
    }
    fputs(" right\n", stderr);
}

static void print_disk(const caisson_expert_stats *s) {
    double mb = (double)(s->bytes + s->ahead_bytes) * 1e-6;
    fprintf(stderr, "disk: reads were under way for %.2f s, %.1f MB/s\n", s->read_s,
            s->read_s > 0 ? mb / s->read_s : 0);
}

static void print_trunk_stats(const caisson_model *model) {
    caisson_trunk_stats s;
    caisson_error err;
    if (caisson_model_trunk_stats(model, &s, &err) == CAISSON_OK && s.n_parts > 0) {
        fprintf(stderr,
                "layers: %s; %" PRIu32 " of %" PRIu32 " in memory | %" PRIu64
                " reads %9.1f MB | stalled %7.2f s\n",
                s.io, s.n_kept, s.n_parts, s.reads, (double)s.bytes * 1e-6, s.stall_s);
    }
}

static void print_stats(const caisson_model *model) {
    caisson_expert_stats all;
    caisson_error err;
    print_trunk_stats(model);
    if (caisson_model_expert_stats(model, UINT32_MAX, &all, &err) != CAISSON_OK) {
        return;
    }
    if (all.n_layers == 0) {
        fputs("experts: nothing is streamed\n", stderr);
        return;
    }
    fprintf(stderr, "experts: %s; cache of %.1f MB\n", all.io, (double)all.cache_bytes * 1e-6);
    for (uint32_t i = 0; i < all.n_layers; i++) {
        caisson_expert_stats s;
        char what[24];
        if (caisson_model_expert_stats(model, i, &s, &err) == CAISSON_OK) {
            snprintf(what, sizeof(what), "layer %" PRIu32, s.layer);
            print_line(what, &s);
        }
    }
    print_line("all", &all);
    print_guesses(&all);
    print_disk(&all);
}

void cli_end_experts(const cli_args *args, caisson_model *model) {
    caisson_error err;
    char text[1200];
    if (cli_has(args, "stats")) {
        print_stats(model);
    }
    if (cli_has(args, "learn") && caisson_model_save_usage(model, &err) != CAISSON_OK) {
        cli_warn(args, "%s", caisson_error_format(&err, text, sizeof(text)));
    }
}

uint64_t cli_expert_bytes(const caisson_model *model) {
    caisson_expert_stats all;
    caisson_error err;
    if (caisson_model_expert_stats(model, UINT32_MAX, &all, &err) != CAISSON_OK) {
        return 0;
    }
    return all.bytes + all.ahead_used_bytes;
}

static void put_counts(csn_jw *w, const char *key, const uint64_t counts[CAISSON_EXPERT_GUESSES]) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_array(w);
    for (unsigned i = 0; i < CAISSON_EXPERT_GUESSES; i++) {
        csn_jw_u64(w, counts[i]);
    }
    csn_jw_array_end(w);
}

static void put_one(csn_jw *w, const caisson_expert_stats *s) {
    csn_jw_put_u64(w, "hits", s->hits);
    csn_jw_put_u64(w, "misses", s->misses);
    csn_jw_put_u64(w, "reads", s->reads);
    csn_jw_put_u64(w, "bytes_read", s->bytes);
    csn_jw_put_u64(w, "ahead_reads", s->ahead_reads);
    csn_jw_put_u64(w, "ahead_bytes", s->ahead_bytes);
    csn_jw_put_u64(w, "ahead_used_reads", s->ahead_used_reads);
    csn_jw_put_u64(w, "ahead_used_bytes", s->ahead_used_bytes);
    csn_jw_put_f64(w, "stall_s", s->stall_s);
    csn_jw_put_f64(w, "read_s", s->read_s);
    csn_jw_put_f64(w, "overlap", overlap(s) / 100.0);
    put_counts(w, "guessed", s->guessed);
    put_counts(w, "guessed_right", s->guessed_right);
}

static void put_trunk_stats(csn_jw *w, const caisson_model *model) {
    caisson_trunk_stats s;
    caisson_error err;
    if (caisson_model_trunk_stats(model, &s, &err) != CAISSON_OK || s.n_parts == 0) {
        return;
    }
    csn_jw_key(w, CSN_STR("trunk"));
    csn_jw_object(w);
    csn_jw_put_str(w, "io", csn_str_from(s.io));
    csn_jw_put_u64(w, "parts", s.n_parts);
    csn_jw_put_u64(w, "kept", s.n_kept);
    csn_jw_put_u64(w, "reads", s.reads);
    csn_jw_put_u64(w, "bytes_read", s.bytes);
    csn_jw_put_f64(w, "stall_s", s.stall_s);
    csn_jw_object_end(w);
}

void cli_put_stats(csn_jw *w, const caisson_model *model) {
    caisson_expert_stats all;
    caisson_error err;
    put_trunk_stats(w, model);
    if (caisson_model_expert_stats(model, UINT32_MAX, &all, &err) != CAISSON_OK ||
        all.n_layers == 0) {
        return;
    }
    csn_jw_key(w, CSN_STR("experts"));
    csn_jw_object(w);
    csn_jw_put_str(w, "io", csn_str_from(all.io));
    csn_jw_put_u64(w, "cache_bytes", all.cache_bytes);
    put_one(w, &all);
    csn_jw_key(w, CSN_STR("layers"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < all.n_layers; i++) {
        caisson_expert_stats s;
        if (caisson_model_expert_stats(model, i, &s, &err) == CAISSON_OK) {
            csn_jw_object(w);
            csn_jw_put_u64(w, "layer", s.layer);
            put_one(w, &s);
            csn_jw_object_end(w);
        }
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}
