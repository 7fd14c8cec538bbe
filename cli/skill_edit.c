/* SPDX-License-Identifier: Apache-2.0 */
/* skill add, remove, quality, export, apply: what changes the skills of a file or makes a new one.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "open.h"
#include "out.h"
#include "score.h"
#include "skills.h"
#include "term.h"

enum { MAX_TEXT = 1 << 28, MAX_JSON = 256 << 20 };

typedef struct job {
    const cli_args *args;
    bool json;
    csn_jw w; /* --json: the tensors, as they come */
    csn_buf out;
    caisson_error err;
    uint64_t n_stored, n_bytes, n_same;
    cli_progress progress;
} job;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    job *j = ctx;
    j->progress.unit = strcmp(stage, "prompts") == 0 ? "prompts" : "B";
    cli_progress_show(&j->progress, stage, done, total);
    return !cli_interrupted();
}

static void on_log(void *ctx, caisson_log_level level, const char *line) {
    const job *j = ctx;
    if (level == CAISSON_LOG_WARN) {
        cli_warn(j->args, "%s", line);
    }
}

static void on_tensor(void *ctx, const caisson_skill_tensor *t) {
    job *j = ctx;
    if (t->to == NULL) {
        j->n_same++;
        return;
    }
    j->n_stored++;
    j->n_bytes += t->n_bytes;
    if (!j->json) {
        return;
    }
    csn_jw_object(&j->w);
    csn_jw_put_str(&j->w, "name", csn_str_make(t->name, t->name_n));
    csn_jw_put_f64(&j->w, "delta", t->delta);
    csn_jw_put_str(&j->w, "to", csn_str_from(t->to));
    csn_jw_put_u64(&j->w, "bytes", t->n_bytes);
    csn_jw_put_f64(&j->w, "relative_error", t->relative_error);
    csn_jw_object_end(&j->w);
}

/* The lines of a text that are not empty, each NUL-terminated in place; malloc'd list. */
static const char **split_lines(char *text, size_t *ret_n) {
    size_t most = 1;
    for (const char *p = text; *p != '\0'; p++) {
        most += *p == '\n';
    }
    const char **lines = malloc(most * sizeof(*lines));
    size_t n = 0;
    for (char *at = text, *next; lines != NULL && at != NULL; at = next) {
        next = strchr(at, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        at[strcspn(at, "\r")] = '\0';
        if (*at != '\0') {
            lines[n++] = at;
        }
    }
    *ret_n = n;
    return lines;
}

static int print_added(job *j, const char *path, const char *id) {
    if (!j->json) {
        printf("added ");
        cli_put_printable(stdout, id, strlen(id));
        printf(" to %s: %" PRIu64 " tensors, %.1f MB; %" PRIu64 " as in the base\n", path,
               j->n_stored, (double)j->n_bytes * 1e-6, j->n_same);
        return CLI_OK;
    }
    csn_jw_array_end(&j->w);
    csn_jw_put_u64(&j->w, "bytes", j->n_bytes);
    csn_jw_object_end(&j->w);
    return cli_put_json(j->args, &j->w, &j->out, &j->err);
}

static int add(job *j, const char *path, const char *id, char *prompts) {
    const cli_args *args = j->args;
    size_t n_prompts = 0;
    const char **lines = prompts != NULL ? split_lines(prompts, &n_prompts) : NULL;
    if (prompts != NULL && (lines == NULL || n_prompts == 0)) {
        free(lines);
        return cli_fail_text(args, lines == NULL ? "out of memory" : "--prompts has no line");
    }
    caisson_skill_add_options o = {
        .struct_size = sizeof(o),
        .name = cli_text(args, "name", NULL),
        .description = cli_text(args, "description", NULL),
        .input_mask_task = cli_text(args, "mask", NULL),
        .prompts = lines,
        .n_prompts = n_prompts,
        .rank = (uint32_t)cli_int(args, "rank", 0),
        .tensors = cli_text(args, "tensors", NULL),
        .quant = cli_text(args, "quant", NULL),
        .min_delta = cli_real(args, "min-delta", 0),
        .n_threads = (uint32_t)cli_int(args, "threads", 0),
        .on_progress = on_progress,
        .on_tensor = on_tensor,
        .on_log = on_log,
        .ctx = j,
        .layers = cli_text(args, "layers", NULL),
        .has_phi_layer = cli_has(args, "phi-layer"),
        .phi_layer = (uint32_t)cli_int(args, "phi-layer", 0),
        .holdout = cli_has(args, "holdout") && cli_int(args, "holdout", 0) == 0
                       ? 1 /* none */
                       : (uint32_t)cli_int(args, "holdout", 0),
    };
    j->out = CSN_BUF_INIT(MAX_JSON);
    j->w = csn_jw_begin(&j->out, &j->err);
    csn_jw_object(&j->w);
    csn_jw_key(&j->w, CSN_STR("tensors"));
    csn_jw_array(&j->w);
    caisson_error err;
    cli_progress_init(&j->progress, "", j->json);
    caisson_status s = caisson_skill_add(path, id, cli_text(args, "from", NULL), &o, &err);
    cli_progress_end(&j->progress);
    free(lines);
    int rc = s == CAISSON_OK ? print_added(j, path, id) : cli_fail(args, &err);
    csn_buf_free(&j->out);
    return rc;
}

int cli_skill_add(const cli_args *args, const char *path, const char *id) {
    job j = {.args = args, .json = cli_has(args, "json")};
    const char *file = cli_text(args, "prompts", NULL);
    char *prompts = NULL;
    size_t n = 0;
    if (id == NULL || !cli_has(args, "from")) {
        return cli_usage_error(args->command, "skill add FILE --id ID --from DONOR");
    }
    int rc = file != NULL ? cli_read_text(args, file, MAX_TEXT, &prompts, &n) : CLI_OK;
    if (rc == CLI_OK && prompts != NULL && strlen(prompts) != n) {
        rc = cli_fail_text(args, "%s holds a NUL byte", file);
    }
    if (rc == CLI_OK) {
        rc = add(&j, path, id, prompts);
    }
    free(prompts);
    return rc;
}

int cli_skill_remove(const cli_args *args, const char *path, const char *id) {
    caisson_error err;
    if (id == NULL) {
        return cli_usage_error(args->command, "skill remove FILE ID");
    }
    return caisson_skill_remove(path, id, &err) == CAISSON_OK
               ? cli_tell_done(args, "removed", "removed", id,
                               "; its bytes stay until caisson compact")
               : cli_fail(args, &err);
}

static int print_quality(const cli_args *args, const caisson_skill_quality *q) {
    if (!cli_has(args, "json")) {
        printf("ppl %.4f with the skill, %.4f without (%+.1f%%), %" PRIu64 " tokens%s\n",
               q->overlaid, q->backbone, (q->overlaid / q->backbone - 1) * 100, q->tokens,
               q->masked ? ", under its task mask" : "");
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(4096);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "metric", csn_str_from(q->metric));
    csn_jw_put_f64(&w, "backbone", q->backbone);
    csn_jw_put_f64(&w, "overlaid", q->overlaid);
    csn_jw_put_u64(&w, "tokens", q->tokens);
    csn_jw_put_bool(&w, "masked", q->masked);
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

/* The base without a mask, then the skill with its own. */
static int measure(const cli_args *args, const char *path, const char *id, const char *text,
                   size_t n, caisson_skill_quality *ret) {
    caisson_model *model;
    caisson_score base = {0};
    caisson_score own = {0};
    bool unused;
    int rc = cli_open_model(args, path, CLI_PART_RAW, &model);
    if (rc != CLI_OK) {
        return rc;
    }
    rc = cli_score_variant(args, model, NULL, id, text, n, &own, &ret->masked);
    if (rc == CLI_OK) {
        rc = cli_score_variant(args, model, "", NULL, text, n, &base, &unused);
    }
    caisson_model_close(model);
    if (rc == CLI_OK) {
        ret->overlaid = exp(own.nll / (double)own.n);
        ret->backbone = exp(base.nll / (double)base.n);
        ret->tokens = own.n;
    }
    return rc;
}

int cli_skill_quality(const cli_args *args, const char *path, const char *id) {
    const char *file = cli_text(args, "text", NULL);
    char *text = NULL;
    size_t n = 0;
    if (id == NULL || file == NULL) {
        return cli_usage_error(args->command, "skill quality FILE ID --text HELD_OUT");
    }
    int rc = cli_read_text(args, file, MAX_TEXT, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    const char *slash = strrchr(file, '/');
    caisson_skill_quality q = {.struct_size = sizeof(q),
                               .metric = "ppl",
                               .file = slash != NULL ? slash + 1 : file,
                               .dataset = text,
                               .dataset_n = n};
    caisson_error err;
    rc = measure(args, path, id, text, n, &q);
    if (rc == CLI_OK) {
        rc = caisson_skill_set_quality(path, id, &q, &err) == CAISSON_OK ? print_quality(args, &q)
                                                                         : cli_fail(args, &err);
    }
    free(text);
    return rc;
}

static bool on_write(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    cli_progress_show(ctx, stage, done, total);
    return !cli_interrupted();
}

/* export or apply, whose files are named: a bar, and what came of it. */
static int write_file(const cli_args *args, const char *first, const char *second, bool is_export) {
    const char *target = cli_text(args, "output", NULL);
    const char *base = cli_text(args, "base", NULL);
    cli_progress progress;
    caisson_error err;
    caisson_skill_cut_options o = {.struct_size = sizeof(o),
                                   .name = cli_text(args, "name", NULL),
                                   .overwrite = cli_has(args, "overwrite"),
                                   .force = cli_has(args, "force"),
                                   .on_progress = on_write,
                                   .ctx = &progress};
    if (second == NULL || target == NULL) {
        return cli_usage_error(args->command, is_export ? "skill export FILE ID -o SKILL.cmf"
                                                        : "skill apply BASE SKILL.cmf -o OUT.cmf");
    }
    int rc = cli_check_target(args, target);
    if (rc == CLI_OK && is_export) { /* the skill alone would be left */
        rc = cli_check_other(args, target);
    }
    if (rc == CLI_OK && is_export && base != NULL && cli_is_same_file(base, target)) {
        rc = cli_fail_text(args, "%s: is the base, it is not replaced", target);
    }
    if (rc != CLI_OK) {
        return rc;
    }
    cli_progress_init(&progress, "tensors", cli_has(args, "json"));
    caisson_status s = is_export ? caisson_skill_export(first, base, second, target, &o, &err)
                                 : caisson_skill_apply(first, second, target, &o, &err);
    cli_progress_end(&progress);
    return s == CAISSON_OK ? cli_tell_done(args, "wrote", "output", target, "")
                           : cli_fail(args, &err);
}

int cli_skill_export(const cli_args *args, const char *path, const char *id) {
    return write_file(args, path, id, true);
}

int cli_skill_apply(const cli_args *args, const char *path, const char *skill) {
    return write_file(args, path, skill, false);
}
