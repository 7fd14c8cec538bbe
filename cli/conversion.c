/* SPDX-License-Identifier: Apache-2.0 */
/* What convert and quantize share: the library's conversion with a bar, and what it cost. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/json.h"
#include "conversion.h"
#include "open.h"
#include "score.h"
#include "rewrite.h"
#include "term.h"

enum { SHOWN = 8, MAX_JSON = 256 << 20, MAX_TEXT = 1 << 28 };

typedef struct row {
    char *name, *source_name;
    char from[24], to[24];
    uint32_t n_dims;
    uint64_t shape[6];
    uint64_t n_bytes;
    double error;
    bool coarser, kept_f32;
} row;

typedef struct job {
    const cli_args *args;
    cli_progress progress;
    row *rows;
    size_t n, cap;
    bool out_of_memory;
    char *first_file; /* of a .cmf that is whole, and what all its files take */
    uint32_t n_files;
    uint64_t n_bytes;
    caisson_score score, source_score; /* of --eval; n 0: not asked for */
} job;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    job *j = ctx;
    cli_progress_show(&j->progress, stage, done, total);
    return !cli_interrupted() && !j->out_of_memory;
}

static void on_log(void *ctx, caisson_log_level level, const char *line) {
    job *j = ctx;
    cli_progress_end(&j->progress);
    if (level == CAISSON_LOG_WARN) {
        cli_warn(j->args, "%s", line);
    } else {
        fprintf(stderr, "caisson %s: ", j->args->command->name);
        cli_put_printable(stderr, line, strlen(line));
        fputc('\n', stderr);
    }
}

static void on_tensor(void *ctx, const caisson_tensor_report *r) {
    job *j = ctx;
    if (j->n == j->cap) {
        size_t cap = j->cap == 0 ? 256 : j->cap * 2;
        row *more = realloc(j->rows, cap * sizeof(*more));
        if (more == NULL) {
            j->out_of_memory = true;
            return;
        }
        j->rows = more;
        j->cap = cap;
    }
    row *x = &j->rows[j->n];
    *x = (row){.name = strdup(r->name),
               .source_name = strdup(r->source_name),
               .n_dims = r->n_dims,
               .n_bytes = r->n_bytes,
               .error = r->relative_error,
               .coarser = r->source_is_coarser,
               .kept_f32 = r->kept_f32};
    if (x->name == NULL || x->source_name == NULL) {
        free(x->name);
        free(x->source_name);
        j->out_of_memory = true;
        return;
    }
    snprintf(x->from, sizeof(x->from), "%s", r->from);
    snprintf(x->to, sizeof(x->to), "%s", r->to);
    memcpy(x->shape, r->shape, sizeof(x->shape));
    j->n++;
}

/* Largest error first; equal ones by name, so that the list is the same every time. */
static int by_error(const void *a, const void *b) {
    const row *x = a;
    const row *y = b;
    return x->error != y->error ? (x->error < y->error) - (x->error > y->error)
                                : strcmp(x->name, y->name);
}

static const char *shape_text(const row *r, char *buf, size_t n) {
    size_t k = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < r->n_dims && k < n; i++) {
        k += (size_t)snprintf(buf + k, n - k, "%s%" PRIu64, i > 0 ? "x" : "", r->shape[i]);
    }
    return buf;
}

/* Bits a weight of n rows together. */
static double bits_of(const row *rows, size_t n) {
    double n_bytes = 0;
    double n_weights = 0;
    for (size_t i = 0; i < n; i++) {
        double weights = 1;
        for (uint32_t k = 0; k < rows[i].n_dims; k++) {
            weights *= (double)rows[i].shape[k];
        }
        n_bytes += (double)rows[i].n_bytes;
        n_weights += weights;
    }
    return n_weights > 0 ? 8 * n_bytes / n_weights : 0;
}

static void on_written(void *ctx, const char *path, uint32_t n_files, uint64_t n_bytes) {
    job *j = ctx;
    j->first_file = strdup(path);
    j->out_of_memory |= j->first_file == NULL;
    j->n_files = n_files;
    j->n_bytes = n_bytes;
}

/* Tensors of the finished model that an earlier, interrupted run had written. */
static size_t n_done_before(const job *j, const char *result) {
    caisson_file *file;
    if (caisson_file_open(result, NULL, &file, NULL) != CAISSON_OK) {
        return 0;
    }
    size_t n = caisson_file_n_tensors(file);
    caisson_file_close(file);
    return n > j->n ? n - j->n : 0;
}

/* Bytes of what was written: all files of a .cmf, or of a directory. */
static uint64_t bytes_written(const job *j, const char *target) {
    struct stat st;
    DIR *dir = j->first_file == NULL ? opendir(target) : NULL;
    uint64_t n = 0;
    if (dir == NULL) {
        return j->n_bytes;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            n += (uint64_t)st.st_size;
        }
    }
    (void)closedir(dir);
    return n;
}

static void print_summary(const job *j, FILE *out, const char *target, double seconds) {
    char size[32];
    cli_bytes_text(bytes_written(j, target), size, sizeof(size));
    size_t n_coarser = 0;
    for (size_t i = 0; i < j->n; i++) {
        n_coarser += j->rows[i].coarser;
    }
    fputs("wrote ", out);
    cli_put_printable(out, target, strlen(target));
    size_t n_before = n_done_before(j, target);
    if (j->n_files > 1) {
        fprintf(out, " and %" PRIu32 " more file%s", j->n_files - 1, j->n_files > 2 ? "s" : "");
    }
    fprintf(out, ": %zu tensors, %s, ", j->n + n_before, size);
    if (n_before == 0) {
        fprintf(out, "%.2f bits a weight, ", bits_of(j->rows, j->n));
    }
    fprintf(out, "%.1f s\n", seconds);
    if (n_before > 0) {
        fprintf(out,
                "went on from an interrupted conversion: %zu tensors were done before, of which "
                "nothing more is told\n",
                n_before);
    }
    size_t shown = 0;
    for (size_t i = 0; i < j->n && i < SHOWN && j->rows[i].error > 0; i++, shown++) {
        const row *r = &j->rows[i];
        char shape[128];
        if (i == 0) {
            fputs("relative error against the source, largest first, and bits a weight:\n", out);
        }
        fprintf(out, "  %.2e %6.2f  %-8s from %-8s %-14s ", r->error, bits_of(r, 1), r->to, r->from,
                shape_text(r, shape, sizeof(shape)));
        cli_put_printable(out, r->name, strlen(r->name));
        fputc('\n', out);
    }
    if (shown == 0 && j->n > 0) {
        fputs("no value was rounded: each type holds what the source gave\n", out);
    } else if (j->n > shown) {
        fprintf(out, "  ... and %zu more (--json lists all)\n", j->n - shown);
    }
    for (size_t i = 0; i < j->n; i++) {
        if (j->rows[i].kept_f32) {
            fputs("kept in f32 (a value that f16, or bf16, cannot hold): ", out);
            cli_put_printable(out, j->rows[i].name, strlen(j->rows[i].name));
            fputc('\n', out);
        }
    }
    if (n_coarser > 0) {
        fprintf(out,
                "note: the source is already coarser than the target in %zu of %zu tensors: the "
                "file grows, its quality does not\n",
                n_coarser, j->n);
    }
}

static void print_score(const job *j, FILE *out) {
    const caisson_score *s = &j->score;
    if (s->n > 0) {
        double n = (double)s->n;
        fprintf(out,
                "perplexity %.4f (source %.4f), mean KL %.6f nats, largest %.6f, same best token "
                "%.2f%%, %" PRIu64 " tokens\n",
                exp(s->nll / n), exp(j->source_score.nll / (double)j->source_score.n), s->kl / n,
                s->kl_max, 100.0 * (double)s->n_same / n, s->n);
    }
}

static void put_score(csn_jw *w, const job *j) {
    const caisson_score *s = &j->score;
    if (s->n > 0) {
        double n = (double)s->n;
        csn_jw_key(w, CSN_STR("eval"));
        csn_jw_object(w);
        csn_jw_put_f64(w, "ppl", exp(s->nll / n));
        csn_jw_put_f64(w, "ppl_source", exp(j->source_score.nll / (double)j->source_score.n));
        csn_jw_put_f64(w, "kl", s->kl / n);
        csn_jw_put_f64(w, "kl_max", s->kl_max);
        csn_jw_put_f64(w, "same_argmax", (double)s->n_same / n);
        csn_jw_put_u64(w, "n_tokens", s->n);
        csn_jw_object_end(w);
    }
}

static void put_row(csn_jw *w, const row *r) {
    csn_jw_object(w);
    csn_jw_put_str(w, "name", csn_str_from(r->name));
    csn_jw_put_str(w, "source_name", csn_str_from(r->source_name));
    csn_jw_put_str(w, "from", csn_str_from(r->from));
    csn_jw_put_str(w, "to", csn_str_from(r->to));
    csn_jw_key(w, CSN_STR("shape"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < r->n_dims; i++) {
        csn_jw_u64(w, r->shape[i]);
    }
    csn_jw_array_end(w);
    csn_jw_put_u64(w, "bytes", r->n_bytes);
    csn_jw_put_f64(w, "bits_per_weight", bits_of(r, 1));
    csn_jw_put_f64(w, "relative_error", r->error);
    csn_jw_put_bool(w, "source_is_coarser", r->coarser);
    csn_jw_put_bool(w, "kept_f32", r->kept_f32);
    csn_jw_object_end(w);
}

static int print_json(const job *j, FILE *out, const char *target, double seconds) {
    caisson_error err;
    csn_buf buf = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&buf, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "file", csn_str_from(target));
    csn_jw_put_u64(&w, "files", j->n_files > 0 ? j->n_files : 1);
    csn_jw_put_u64(&w, "bytes", bytes_written(j, target));
    csn_jw_put_f64(&w, "seconds", seconds);
    csn_jw_put_u64(&w, "n_done_before", n_done_before(j, target));
    csn_jw_put_f64(&w, "bits_per_weight", bits_of(j->rows, j->n)); /* of the rest */
    put_score(&w, j);
    csn_jw_key(&w, CSN_STR("tensors"));
    csn_jw_array(&w);
    for (size_t i = 0; i < j->n; i++) {
        put_row(&w, &j->rows[i]);
    }
    csn_jw_array_end(&w);
    csn_jw_object_end(&w);
    int rc = CLI_OK;
    if (csn_jw_end(&w) != CAISSON_OK) {
        rc = cli_fail(j->args, &err);
    } else {
        fprintf(out, "%s\n", buf.ptr);
    }
    csn_buf_free(&buf);
    return rc;
}

int cli_convert(const cli_args *args, const char *source, const char *target,
                const cli_convert_job *what) {
    job j = {.args = args};
    if (target != NULL && cli_check_target(args, target) != CLI_OK) {
        return CLI_FAILED;
    }
    cli_progress_init(&j.progress, "B", false);
    uint64_t t0 = csn_now_ns();
    caisson_convert_options o = {
        .struct_size = sizeof(o),
        .quant = what->quant,
        .rules = what->rules,
        .n_rules = what->n_rules,
        .n_threads = (uint32_t)cli_int(args, "threads", 0),
        .overwrite = what->overwrite,
        .shard_max_bytes = what->shard_max_bytes,
        .expert_quant = what->expert_quant,
        .trunk_bits = what->trunk_bits,
        .reference_encoder = what->reference_encoder,
        .mean_bits = what->mean_bits,
        .bits_over = what->bits_over,
        .outliers = what->outliers,
        .calibrate = what->calibrate.ptr,
        .calibrate_n = what->calibrate.n,
        .on_progress = on_progress,
        .on_tensor = on_tensor,
        .on_log = on_log,
        .on_written = on_written,
        .ctx = &j,
    };
    caisson_error err;
    caisson_status status = caisson_convert(source, target, &o, &err);
    const char *result = j.first_file != NULL ? j.first_file : target != NULL ? target : source;
    double seconds = (double)(csn_now_ns() - t0) * 1e-9;
    cli_progress_end(&j.progress);
    int rc = CLI_OK;
    if (j.out_of_memory) {
        rc = cli_fail_text(args, "out of memory");
    } else if (status != CAISSON_OK) {
        rc = cli_fail(args, &err);
        if (rc == CLI_INTERRUPTED && target != NULL) {
            fputs("The part that is done is kept; the same command goes on from there.\n", stderr);
        }
    } else if (what->eval.ptr != NULL) {
        rc = cli_score_files(args, result, source, what->eval.ptr, what->eval.n, &j.score,
                             &j.source_score);
    }
    if (rc == CLI_OK) {
        if (j.n > 0) {
            qsort(j.rows, j.n, sizeof(*j.rows), by_error);
        }
        if (what->json) {
            rc = print_json(&j, what->summary, result, seconds);
        } else {
            print_summary(&j, what->summary, result, seconds);
            print_score(&j, what->summary);
        }
    }
    for (size_t i = 0; i < j.n; i++) {
        free(j.rows[i].name);
        free(j.rows[i].source_name);
    }
    free(j.rows);
    free(j.first_file);
    return rc;
}

/* PATTERN=TYPE, cut at the last '='. The pattern lives in `copy`, which the caller frees. */
static int parse_rule(const cli_args *args, const char *text, char **copy,
                      caisson_tensor_rule *ret) {
    const char *eq = strrchr(text, '=');
    if (eq == NULL || eq == text || eq[1] == '\0') {
        return cli_usage_error(args->command, "--tensor must be PATTERN=TYPE, not \"%s\"", text);
    }
    for (unsigned i = 0; caisson_quant_name(i) != NULL; i++) {
        if (strcmp(caisson_quant_name(i), eq + 1) == 0) {
            *copy = strndup(text, (size_t)(eq - text));
            *ret = (caisson_tensor_rule){*copy, eq + 1};
            return *copy != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
        }
    }
    return cli_usage_error(args->command, "--tensor: \"%s\" is not a type that can be written",
                           eq + 1);
}

/* Options that mean something for two types only. */
static const struct {
    const char *option, *types[2];
} wants[] = {
    {"bits", {"vbit", "vbit_ro"}},
    {"bits-over", {"vbit", "vbit_ro"}},
    {"outliers", {"q1s", "q1t"}},
    {"calibrate", {"q1s", "q1t"}},
};

static bool is_one_of(const char *type, const char *const types[2]) {
    return type != NULL && (strcmp(type, types[0]) == 0 || strcmp(type, types[1]) == 0);
}

/* Options that mean something for one kind of target only. */
static int check_target_options(const cli_args *args, const char *target) {
    static const char *const of_cmf[] = {"quant",    "tensor",    "bits",    "bits-over",
                                         "outliers", "calibrate", "encoder", "shard-max-size"};
    static const char *const of_waste[] = {"expert-quant", "trunk-bits"};
    bool is_waste = target != NULL && cli_is_waste(target);
    const char *const *refused = is_waste ? of_cmf : of_waste;
    size_t n =
        is_waste ? sizeof(of_cmf) / sizeof(of_cmf[0]) : sizeof(of_waste) / sizeof(of_waste[0]);
    for (size_t i = 0; i < n; i++) {
        if (cli_has(args, refused[i])) {
            return cli_usage_error(args->command, "--%s is for targets OUT%s", refused[i],
                                   is_waste ? ".cmf" : ".waste");
        }
    }
    return CLI_OK;
}

static int check_wants(const cli_args *args, const caisson_tensor_rule *rules, size_t n) {
    for (size_t k = 0; k < sizeof(wants) / sizeof(wants[0]); k++) {
        bool is_met = !cli_has(args, wants[k].option) ||
                      is_one_of(cli_text(args, "quant", NULL), wants[k].types);
        for (size_t i = 0; i < n; i++) {
            is_met = is_met || is_one_of(rules[i].quant, wants[k].types);
        }
        if (!is_met) {
            return cli_usage_error(args->command, "--%s is for the types %s and %s",
                                   wants[k].option, wants[k].types[0], wants[k].types[1]);
        }
    }
    return CLI_OK;
}

bool cli_says_types(const cli_args *args) {
    bool says = cli_has(args, "quant") || cli_has(args, "tensor");
    if (!says) {
        (void)cli_usage_error(args->command,
                              "say which types: --quant TYPE or --tensor PATTERN=TYPE");
    }
    return says;
}

int cli_read_option_text(const cli_args *args, const char *option, char **ret,
                         cli_text_file *ret_view) {
    if (!cli_has(args, option)) {
        return CLI_OK;
    }
    int rc = cli_read_text(args, cli_text(args, option, ""), MAX_TEXT, ret, &ret_view->n);
    ret_view->ptr = *ret;
    return rc;
}

int cli_conversion_run(const cli_args *args, const cli_convert_job *texts) {
    const char *target = cli_text(args, "output", NULL);
    if (target == NULL && !texts->in_place) {
        return cli_usage_error(args->command, "the target is missing: -o OUT.cmf");
    }
    if (check_target_options(args, target) != CLI_OK) {
        return CLI_USAGE;
    }
    const cli_value *rules = cli_get(args, "tensor");
    caisson_tensor_rule *list = calloc(rules->n_list + 1, sizeof(*list));
    char **copies = calloc(rules->n_list + 1, sizeof(*copies));
    int rc = list != NULL && copies != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
    for (size_t i = 0; rc == CLI_OK && list != NULL && i < rules->n_list; i++) {
        rc = parse_rule(args, rules->list[i], &copies[i], &list[i]);
    }
    if (rc == CLI_OK && list != NULL) {
        rc = check_wants(args, list, rules->n_list);
    }
    uint64_t shard_max_bytes = 0;
    if (rc == CLI_OK && cli_has(args, "shard-max-size")) {
        rc = cli_size(args, "shard-max-size", &shard_max_bytes);
    }
    if (rc == CLI_OK) {
        cli_convert_job what = *texts;
        what.shard_max_bytes = shard_max_bytes;
        what.quant = cli_text(args, "quant", NULL);
        what.rules = list;
        what.n_rules = rules->n_list;
        what.overwrite = cli_has(args, "force");
        what.reference_encoder = strcmp(cli_text(args, "encoder", "search"), "reference") == 0;
        what.mean_bits = cli_real(args, "bits", 0);
        what.bits_over = cli_text(args, "bits-over", NULL);
        what.outliers = cli_real(args, "outliers", 0);
        if (cli_has(args, "outliers") && what.outliers == 0) {
            what.outliers = -1;
        }
        what.expert_quant = cli_text(args, "expert-quant", NULL);
        what.trunk_bits = (uint32_t)cli_int(args, "trunk-bits", 0);
        what.json = cli_has(args, "json");
        rc = cli_convert(args, args->positional[0], target, &what);
    }
    for (size_t i = 0; copies != NULL && i < rules->n_list; i++) {
        free(copies[i]);
    }
    free(copies);
    free(list);
    return rc;
}

static const char *encoder_choice(unsigned i) {
    static const char *const names[] = {"search", "reference", NULL};
    return names[i];
}

static const char *bits_over_choice(unsigned i) {
    static const char *const names[] = {"tensor", "experts", "layers", NULL};
    return names[i];
}

const cli_option cli_target_options[] = {
    CLI_TARGET_OPTIONS("OUT.cmf", "The file to write (needed)"),
    {0},
};

const cli_option cli_conversion_options[] = {
    {.name = "tensor",
     .kind = CLI_LIST,
     .value = "PATTERN=TYPE",
     .help = "Another type for the tensors whose names match (* and ? as in a shell); may be "
             "given several times, the first match counts"},
    {.name = "bits",
     .kind = CLI_REAL,
     .value = "B",
     .min = 3,
     .max = 8,
     .help = "Types vbit and vbit_ro: bits a weight, as the mean over the rows of a tensor; loud "
             "rows get more, quiet ones fewer",
     .by_default = "4.25"},
    {.name = "bits-over",
     .kind = CLI_CHOICE,
     .value = "WHAT",
     .choices = bits_over_choice,
     .help =
         "Types vbit and vbit_ro: whose rows share the bits: those of each tensor, of a layer's "
         "experts (each projection by itself), or of a projection in all layers; loud tensors "
         "then get more. The source is read twice",
     .by_default = "tensor"},
    {.name = "outliers",
     .kind = CLI_REAL,
     .value = "SHARE",
     .min = 0,
     .max = 0.25,
     .help = "Types q1s and q1t: share of the weights that stay f16",
     .by_default = "0.01 of q1s, none of q1t"},
    {.name = "encoder",
     .kind = CLI_CHOICE,
     .value = "WHICH",
     .choices = encoder_choice,
     .help = "Scales of q4_block, q4_tiled and q4tp: search for the smallest squared error, or the "
             "bytes that the format's reference writes",
     .by_default = "search"},
    {0},
};
