/* SPDX-License-Identifier: Apache-2.0 */
/* plan: the memory that a model needs, and the speed that the disk allows with less than all. */
#include <inttypes.h>

#include "base/json.h"
#include "commands.h"
#include "memory.h"
#include "open.h"
#include "term.h"

enum { MAX_JSON = 1 << 16 };

static int print_json(const cli_args *args, const caisson_memory_plan *p) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_u64(&w, "ctx", p->n_ctx);
    csn_jw_put_u64(&w, "weights_bytes", p->weights_bytes);
    csn_jw_put_u64(&w, "skill_bytes", p->skill_bytes);
    csn_jw_put_u64(&w, "kv_bytes", p->kv_bytes);
    csn_jw_put_u64(&w, "buffer_bytes", p->buffer_bytes);
    csn_jw_put_u64(&w, "min_cache_bytes", p->min_cache_bytes);
    csn_jw_put_u64(&w, "min_trunk_bytes", p->min_trunk_bytes);
    csn_jw_put_u64(&w, "floor_bytes", p->floor_bytes);
    csn_jw_put_u64(&w, "resident_bytes", p->resident_bytes);
    csn_jw_put_u64(&w, "table_bytes", p->table_bytes);
    csn_jw_put_u64(&w, "limit_bytes", p->limit_bytes);
    csn_jw_put_str(&w, "limit_by", csn_str_from(p->limit_by));
    csn_jw_put_u64(&w, "budget_bytes", p->budget_bytes);
    csn_jw_put_bool(&w, "fits", p->fits);
    csn_jw_put_u64(&w, "cache_bytes", p->cache_bytes);
    csn_jw_put_u64(&w, "trunk_bytes", p->trunk_bytes);
    csn_jw_put_u64(&w, "mask_bytes", p->mask_bytes);
    csn_jw_put_u64(&w, "bytes_per_token", p->bytes_per_token);
    csn_jw_put_u64(&w, "read_bytes_per_token", p->read_bytes_per_token);
    csn_jw_put_u64(&w, "read_trunk_bytes_per_token", p->read_trunk_bytes_per_token);
    csn_jw_put_u64(&w, "disk_bytes_per_s", (uint64_t)p->disk_bytes_per_s);
    csn_jw_key(&w, CSN_STR("tokens_per_s"));
    if (p->tokens_per_s > 0) {
        csn_jw_f64(&w, p->tokens_per_s);
    } else {
        csn_jw_null(&w);
    }
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

static void print_bytes(const char *what, uint64_t bytes, const char *note) {
    char size[32];
    printf("%-24s %12s  %s\n", what, cli_bytes_text(bytes, size, sizeof(size)), note);
}

static void print_text(const caisson_memory_plan *p) {
    char size[32];
    char note[96];
    bool has_trunk = p->min_trunk_bytes > 0;
    print_bytes("weights", p->weights_bytes, has_trunk ? "not streamed" : "all but routed experts");
    if (has_trunk) {
        print_bytes("layers", p->min_trunk_bytes, "two of them, at least");
    }
    if (p->skill_bytes > 0) {
        print_bytes("skills", p->skill_bytes, "");
    }
    (void)snprintf(note, sizeof(note), "of %" PRIu32 " tokens", p->n_ctx);
    print_bytes("kv cache", p->kv_bytes, note);
    print_bytes("buffers", p->buffer_bytes, "at least");
    print_bytes("experts", p->min_cache_bytes, "at least");
    print_bytes("floor", p->floor_bytes, "the smallest --budget");
    print_bytes("resident", p->resident_bytes, "with this --budget nothing is read twice");
    if (p->table_bytes > 0) {
        print_bytes("embedding", p->table_bytes, "read row by row; of a .cmf only with --budget");
    }
    print_bytes("limit", p->limit_bytes, p->limit_by);
    print_bytes("budget", p->budget_bytes,
                p->fits ? "" : "more than the limit: it does not run here");
    if (has_trunk) {
        print_bytes("kept of layers", p->trunk_bytes, "head included");
        print_bytes("read for each token", p->read_trunk_bytes_per_token, "of layers and head");
    }
    if (p->mask_bytes > 0) {
        print_bytes("copies for a task", p->mask_bytes, "of what its mask leaves");
    }
    if (p->bytes_per_token > 0) {
        print_bytes("cache of experts", p->cache_bytes, "");
        print_bytes("experts of one token", p->bytes_per_token, "");
        print_bytes("read for each token", p->read_bytes_per_token,
                    "of experts, if all are used alike");
    }
    if (p->disk_bytes_per_s > 0) {
        printf("%-24s %12s/s\n", "disk",
               cli_bytes_text((uint64_t)p->disk_bytes_per_s, size, sizeof(size)));
    }
    if (p->tokens_per_s > 0) {
        printf("%-24s %12.3g tokens/s\n", "the disk allows", p->tokens_per_s);
    }
}

static int run(const cli_args *args) {
    caisson_plan_options o = {
        .struct_size = sizeof(o),
        .n_ctx = cli_ctx(args, 0),
        .type_k = cli_kv_type(cli_text(args, "cache-type-k", "f16")),
        .type_v = cli_kv_type(cli_text(args, "cache-type-v", "f16")),
        .no_probe = cli_has(args, "no-probe"),
        .stream_trunk = cli_has(args, "stream-trunk"),
        .skill = cli_text(args, "skill", NULL),
        .blends = cli_has(args, "blends"),
    };
    int rc = cli_budget(args, &o.budget_bytes);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_memory_plan plan;
    caisson_error err;
    if (caisson_plan(args->positional[0], &o, &plan, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    if (cli_has(args, "json")) {
        return print_json(args, &plan);
    }
    print_text(&plan);
    return CLI_OK;
}

static const cli_option options[] = {
    {.name = "budget",
     .kind = CLI_TEXT,
     .value = "SIZE",
     .help = "Plan for so much memory: bytes, or K, M, G (powers of 1024)",
     .by_default = "what the machine can spare"},
    {.name = "stream-trunk",
     .kind = CLI_FLAG,
     .help = "Plan for weights that are read layer by layer where they do not fit"},
    CLI_CTX_OPTION("4096, or as many as the model was made for"),
    {.name = "skill",
     .kind = CLI_TEXT,
     .value = "ID",
     .help = "Count this skill of the file as well; * = all, as chat and --blend do"},
    {.name = "blends", .kind = CLI_FLAG, .help = "With --skill: and the sums of a blend of them"},
    {.name = "no-probe", .kind = CLI_FLAG, .help = "Do not measure the disk"},
    {0},
};

const cli_command cli_cmd_plan = {
    .name = "plan",
    .summary = "Tell how much memory a model needs, and how fast it runs with less than all",
    .positionals = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_kv_options, cli_json_options, cli_common_options},
    .details =
        "Reads header and directory, and for a third of a second experts, to see what the disk "
        "gives. The floor depends on the model, --ctx and the types of the KV cache alone. The "
        "limit is the smallest of the machine, the control groups above us and our own limits; "
        "without --budget three quarters of it are planned for, or less if that is enough.\n"
        "JSON: {\"ctx\":N, \"weights_bytes\":N, \"skill_bytes\":N, \"kv_bytes\":N, "
        "\"buffer_bytes\":N, "
        "\"min_cache_bytes\":N, \"min_trunk_bytes\":N, \"floor_bytes\":N (the sum of these six), "
        "\"resident_bytes\":N, \"table_bytes\":N (an embedding that is read row by row; a run of "
        "a .cmf without --budget keeps it in memory besides), "
        "\"limit_bytes\":N, \"limit_by\":S, \"budget_bytes\":N, "
        "\"fits\":B (what is taken of the budget is within the limit), \"cache_bytes\":N, "
        "\"trunk_bytes\":N, \"mask_bytes\":N, \"bytes_per_token\":N, \"read_bytes_per_token\":N, "
        "\"read_trunk_bytes_per_token\":N, \"disk_bytes_per_s\":N (0: not "
        "measured), \"tokens_per_s\":X or null (nothing is read, or not measured)}.",
    .examples = "caisson plan model.waste --budget 8G\ncaisson plan model.cmf -c 32768 --json",
    .run = run,
};
