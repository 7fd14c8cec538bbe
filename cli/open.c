/* SPDX-License-Identifier: Apache-2.0 */
/* What every command that takes a model does first. */
#include "open.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "advice.h"
#include "conversion.h"
#include "memory.h"
#include "term.h"

enum { MAX_JSON = 256 << 20, MAX_IDS = 256 << 20 };

static void put_line(const cli_args *args, cli_style style, const char *kind, const char *text) {
    bool colour = cli_has_colour(stderr);
    fprintf(stderr, "caisson %s: ", args->command->name);
    cli_set_style(stderr, colour, style);
    fputs(kind, stderr);
    cli_set_style(stderr, colour, CLI_PLAIN);
    cli_put_printable(stderr, text, strlen(text));
    fputc('\n', stderr);
}

int cli_fail(const cli_args *args, const caisson_error *err) {
    if (err->code == CAISSON_E_CANCELLED && cli_interrupted()) {
        put_line(args, CLI_YELLOW, "", "interrupted");
        return CLI_INTERRUPTED;
    }
    char text[1200];
    put_line(args, CLI_RED, "error: ", caisson_error_format(err, text, sizeof(text)));
    cli_advise(args, err);
    return CLI_FAILED;
}

int cli_fail_text(const cli_args *args, const char *format, ...) {
    char text[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    put_line(args, CLI_RED, "error: ", text);
    return CLI_FAILED;
}

void cli_warn(const cli_args *args, const char *format, ...) {
    char text[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    put_line(args, CLI_YELLOW, "warning: ", text);
}

/* The word as a shell would need it, quoted if it has to be: malloc'd, NULL = out of memory. */
static char *shell_quote(const char *word) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./:=+,@%";
    size_t n = strlen(word);
    if (n > 0 && word[0] != '-' && strspn(word, safe) == n) {
        return strdup(word);
    }
    size_t n_quotes = 0;
    for (size_t i = 0; i < n; i++) {
        n_quotes += word[i] == '\'';
    }
    char *quoted = malloc(n + 3 * n_quotes + 5);
    if (quoted == NULL) {
        return NULL;
    }
    char *p = quoted;
    if (word[0] == '-') { /* not an option */
        *p++ = '.';
        *p++ = '/';
    }
    *p++ = '\'';
    for (size_t i = 0; i < n; i++) {
        if (word[i] == '\'') {
            for (const char *q = "'\\''"; *q != '\0'; q++) {
                *p++ = *q;
            }
        } else {
            *p++ = word[i];
        }
    }
    *p++ = '\'';
    *p = '\0';
    return quoted;
}

/* Where --convert puts the .cmf: beside the source, malloc'd. */
static char *sibling(const char *source, caisson_kind kind) {
    size_t n = strlen(source);
    while (n > 1 && source[n - 1] == '/') {
        n--;
    }
    if (kind == CAISSON_KIND_GGUF && n > 5 && strcasecmp(source + n - 5, ".gguf") == 0) {
        n -= 5;
    }
    char *target = malloc(n + sizeof(".cmf"));
    if (target != NULL) {
        snprintf(target, n + sizeof(".cmf"), "%.*s.cmf", (int)n, source);
    }
    return target;
}

static int out_of_memory(const cli_args *args) {
    return cli_fail_text(args, "out of memory");
}

/* Prints the exact line that makes a .cmf of `source`. */
static int tell_convert(const cli_args *args, const char *source, const char *target,
                        caisson_kind kind) {
    char *quoted_source = shell_quote(source);
    char *quoted_target = shell_quote(target);
    if (quoted_source == NULL || quoted_target == NULL) {
        free(quoted_source);
        free(quoted_target);
        return out_of_memory(args);
    }
    cli_fail_text(args, "%s is a %s, not a .cmf file", source,
                  kind == CAISSON_KIND_GGUF ? "GGUF file" : "Hugging Face directory");
    fprintf(stderr, "Convert it first:\n  caisson convert %s -o %s --quant q8_row\n", quoted_source,
            quoted_target);
    if (cli_knows(args, "convert")) {
        fputs("or let this command do it with --convert.\n", stderr);
    }
    free(quoted_source);
    free(quoted_target);
    return CLI_FAILED;
}

/* The .cmf to open for `path`: itself, or with --convert the one made of it. malloc'd. */
static int resolve(const cli_args *args, const char *path, char **ret) {
    caisson_error err;
    caisson_kind kind;
    if (caisson_detect(path, &kind, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    if (kind != CAISSON_KIND_GGUF && kind != CAISSON_KIND_HF_DIRECTORY) {
        *ret = strdup(path); /* a file of no known kind: its open says what is wrong */
        return *ret != NULL ? CLI_OK : out_of_memory(args);
    }
    char *target = sibling(path, kind);
    if (target == NULL) {
        return out_of_memory(args);
    }
    int rc = CLI_OK;
    if (!cli_has(args, "convert")) {
        rc = tell_convert(args, path, target, kind);
    } else if (access(target, F_OK) == 0) {
        cli_warn(args, "using %s, which is already there (remove it to convert again)", target);
    } else {
        rc = cli_convert(args, path, target, &(cli_convert_job){.summary = stderr});
    }
    if (rc != CLI_OK) {
        free(target);
        return rc;
    }
    *ret = target;
    return CLI_OK;
}

static void on_log(void *ctx, caisson_log_level level, const char *line) {
    if (level == CAISSON_LOG_WARN) {
        cli_warn(ctx, "%s", line);
    }
}

int cli_required_key(const cli_args *args, caisson_public_key *ret, bool *ret_given) {
    const char *text = cli_text(args, "require-signature", NULL);
    caisson_error err;
    *ret_given = text != NULL;
    if (text == NULL) {
        return CLI_OK;
    }
    if (strlen(text) == sizeof(ret->hex) - 1 &&
        strspn(text, "0123456789abcdefABCDEF") == sizeof(ret->hex) - 1) {
        memcpy(ret->hex, text, sizeof(ret->hex));
        return CLI_OK;
    }
    return caisson_public_key_read(text, ret, &err) == CAISSON_OK ? CLI_OK : cli_fail(args, &err);
}

static bool on_open_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    cli_progress_show_late(ctx, stage, done, total);
    return !cli_interrupted();
}

int cli_open_model(const cli_args *args, const char *path, cli_part part, caisson_model **ret) {
    char *resolved = NULL;
    caisson_public_key key;
    bool has_key;
    cli_progress progress;
    int rc = cli_required_key(args, &key, &has_key);
    if (rc == CLI_OK) {
        rc = resolve(args, path, &resolved);
    }
    if (rc != CLI_OK) {
        return rc;
    }
    cli_progress_init(&progress, "B", false);
    caisson_open_options o = {
        .struct_size = sizeof(o),
        .no_mmap = cli_has(args, "no-mmap"),
        .guard_mappings = true,
        .text_only = part == CLI_PART_TEXT || part == CLI_PART_TOKENS,
        .no_chat = part == CLI_PART_RAW || part == CLI_PART_TOKENS,
        .no_text = part == CLI_PART_WEIGHTS,
        .on_log = on_log,
        .log_ctx = (void *)(uintptr_t)args,
        .require_signature = has_key ? key.hex : NULL,
        .verify = cli_has(args, "verify"),
        .on_progress = on_open_progress,
        .progress_ctx = &progress,
    };
    rc = cli_memory(args, &o);
    if (rc != CLI_OK) {
        free(resolved);
        return rc;
    }
    caisson_error err;
    caisson_status status = caisson_model_open(resolved, &o, ret, &err);
    cli_progress_end(&progress);
    free(resolved);
    return status == CAISSON_OK ? CLI_OK : cli_fail(args, &err);
}

int cli_open_file(const cli_args *args, const char *path, caisson_file **ret) {
    char *resolved = NULL;
    int rc = resolve(args, path, &resolved);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_open_options o = {
        .struct_size = sizeof(o), .no_mmap = cli_has(args, "no-mmap"), .guard_mappings = true};
    caisson_error err;
    caisson_status status = caisson_file_open(resolved, &o, ret, &err);
    free(resolved);
    return status == CAISSON_OK ? CLI_OK : cli_fail(args, &err);
}

caisson_kv_type cli_kv_type(const char *word) {
    return strcmp(word, "f32") == 0    ? CAISSON_KV_F32
           : strcmp(word, "q8_0") == 0 ? CAISSON_KV_Q8_0
                                       : CAISSON_KV_F16;
}

caisson_session_options cli_session_options(const cli_args *args, caisson_compute compute,
                                            uint32_t n_ctx) {
    const char *mode = cli_text(args, "compute", NULL);
    const char *task = cli_text(args, "task", NULL);
    const char *skill = cli_text(args, "skill", NULL);
    /* auto is decided with the prompt (skills.c), by the commands that have --blend */
    bool is_base = skill == NULL || strcmp(skill, "none") == 0 ||
                   (strcmp(skill, "auto") == 0 && cli_knows(args, "blend"));
    if (mode != NULL) {
        compute = strcmp(mode, "f32") == 0 ? CAISSON_COMPUTE_F32 : CAISSON_COMPUTE_INT8;
    }
    return (caisson_session_options){
        .struct_size = sizeof(caisson_session_options),
        .n_ctx = cli_ctx(args, n_ctx),
        .n_ubatch = (uint32_t)cli_int(args, "ubatch-size", 0),
        .n_threads = (uint32_t)cli_int(args, "threads", 0),
        .compute = compute,
        .type_k = cli_kv_type(cli_text(args, "cache-type-k", "f16")),
        .type_v = cli_kv_type(cli_text(args, "cache-type-v", "f16")),
        .task = task != NULL && strcmp(task, "none") == 0 ? "" : task,
        .skill = is_base ? NULL : skill,
    };
}

int cli_new_session(const cli_args *args, caisson_model *model, caisson_compute compute,
                    uint32_t n_ctx, caisson_session **ret) {
    caisson_session_options o = cli_session_options(args, compute, n_ctx);
    uint32_t trained = caisson_model_n_ctx_train(model);
    if (trained != 0 && o.n_ctx > trained && o.n_ctx != CAISSON_CTX_TRAINED) {
        cli_warn(args, "the context of %u tokens is longer than the %u that the model was made for",
                 o.n_ctx, trained);
    }
    caisson_error err;
    if (caisson_session_new(model, &o, ret, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    caisson_task_info task;
    if (caisson_session_task(*ret, &task) && !task.is_measured) {
        cli_warn(args, "nobody measured what the task mask \"%.*s\" costs in quality",
                 (int)task.name_n, task.name);
    }
    return CLI_OK;
}

caisson_sampling cli_sampling(const cli_args *args) {
    /* The library's zeros mean "default", the command line's mean what they say. */
    static const float tiny = 1e-9f;
    caisson_sampling s = {.struct_size = sizeof(s)};
    s.temperature = (float)cli_real(args, "temp", 0); /* what is too small for f32 is 0 */
    s.greedy = cli_has(args, "temp") && s.temperature == 0.0f;
    if (cli_has(args, "top-k")) {
        int64_t k = cli_int(args, "top-k", 0);
        s.top_k = k == 0 ? -1 : (int32_t)k;
    }
    if (cli_has(args, "top-p")) {
        double p = cli_real(args, "top-p", 0);
        s.top_p = p < (double)tiny ? tiny : (float)p;
    }
    if (cli_has(args, "min-p")) {
        float p = (float)cli_real(args, "min-p", 0);
        s.min_p = p == 0.0f ? -1.0f : p;
    }
    if (cli_has(args, "typical")) {
        double p = cli_real(args, "typical", 0);
        s.typical_p = p < (double)tiny ? tiny : (float)p;
    }
    if (cli_int(args, "repeat-last-n", 64) != 0) {
        s.repeat_last_n = (int32_t)cli_int(args, "repeat-last-n", 0);
        s.repeat_penalty = (float)cli_real(args, "repeat-penalty", 0);
        s.presence_penalty = (float)cli_real(args, "presence-penalty", 0);
        s.frequency_penalty = (float)cli_real(args, "frequency-penalty", 0);
    }
    int64_t seed = cli_int(args, "seed", -1);
    s.seed = seed >= 0 ? (uint64_t)seed : csn_now_ns() / 1000 % 4294967296u;
    return s;
}

bool cli_is_waste(const char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') {
        n--;
    }
    return n > 6 && strncmp(path + n - 6, ".waste", 6) == 0;
}

int cli_check_target(const cli_args *args, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
        !(S_ISDIR(st.st_mode) && cli_is_waste(path))) {
        return cli_fail_text(args, "%s: is not a regular file, it is not replaced", path);
    }
    return CLI_OK;
}

int cli_read_text(const cli_args *args, const char *path, size_t max, char **ret, size_t *ret_n) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (f == NULL) {
        return cli_fail_text(args, "%s: cannot open: %s", path, strerror(errno));
    }
    char *buf = NULL;
    size_t n = 0;
    size_t cap = 0;
    int rc = CLI_OK;
    for (;;) {
        if (cap - n < 4096) {
            cap = cap == 0 ? 65536 : cap * 2;
            char *more = realloc(buf, cap);
            if (more == NULL) {
                rc = out_of_memory(args);
                break;
            }
            buf = more;
        }
        size_t k = fread(buf + n, 1, cap - n - 1, f);
        n += k;
        if (n > max) {
            rc = cli_fail_text(args, "%s: more than %zu bytes", path, max);
            break;
        }
        if (k == 0) {
            break;
        }
    }
    if (rc == CLI_OK && ferror(f)) {
        rc = cli_interrupted() ? CLI_INTERRUPTED
                               : cli_fail_text(args, "%s: cannot read: %s", path, strerror(errno));
    }
    if (!is_stdin) {
        fclose(f);
    }
    if (rc != CLI_OK || buf == NULL) {
        free(buf);
        return rc;
    }
    buf[n] = '\0';
    *ret = buf;
    *ret_n = n;
    return CLI_OK;
}

static int parse_ids(const cli_args *args, const char *text, int32_t **ret, size_t *ret_n) {
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof(*ids));
    if (ids == NULL) {
        return out_of_memory(args);
    }
    size_t n = 0;
    const char *p = text + strspn(text, " \n");
    const char *item = p;
    bool is_list = *p == '\0';
    while (!is_list) {
        char *end;
        errno = 0;
        item = p;
        long v = strtol(p, &end, 10);
        if (end == p || errno != 0 || v < 0 || v > INT32_MAX) {
            break;
        }
        ids[n++] = (int32_t)v;
        p = end + strspn(end, " \n");
        is_list = *p == '\0';
        if (!is_list && *p++ != ',') {
            break;
        }
    }
    if (!is_list) {
        free(ids);
        return cli_usage_error(args->command,
                               "token ids must be numbers with commas between, as in 1,2,3; not "
                               "\"%.60s\"",
                               *item != '\0' ? item : text);
    }
    *ret = ids;
    *ret_n = n;
    return CLI_OK;
}

int cli_read_ids(const cli_args *args, const char *text, int32_t **ret, size_t *ret_n) {
    if (strcmp(text, "-") != 0) {
        return parse_ids(args, text, ret, ret_n);
    }
    char *read = NULL;
    size_t n = 0;
    int rc = cli_read_text(args, text, MAX_IDS, &read, &n);
    if (read != NULL) {
        rc = strlen(read) == n ? parse_ids(args, read, ret, ret_n)
                               : cli_usage_error(args->command, "token ids hold a zero byte");
        free(read);
    }
    return rc;
}

int cli_put_json(const cli_args *args, csn_jw *w, csn_buf *out, caisson_error *err) {
    int rc = CLI_OK;
    if (csn_jw_end(w) == CAISSON_OK) {
        printf("%s\n", out->ptr);
    } else {
        rc = cli_fail(args, err);
    }
    csn_buf_free(out);
    return rc;
}

int cli_put_jval(const cli_args *args, const csn_jval *value) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_value(&w, value);
    return cli_put_json(args, &w, &out, &err);
}

int cli_describe(const cli_args *args, const char *path,
                 int (*fn)(const cli_args *args, const csn_jval *root, const char *name),
                 const char *name) {
    caisson_file *file;
    int rc = cli_open_file(args, path, &file);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_error err;
    caisson_text text = {0};
    csn_json *doc = NULL;
    if (caisson_file_describe(file, &text, &err) != CAISSON_OK ||
        csn_json_parse(csn_str_make(text.ptr, text.n), 0, &doc, &err) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else {
        rc = fn(args, csn_json_root(doc), name);
    }
    csn_json_free(doc);
    caisson_text_free(&text);
    caisson_file_close(file);
    return rc;
}

int cli_tell_done(const cli_args *args, const char *done, const char *key, const char *name,
                  const char *behind) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 20);
    if (!cli_has(args, "json")) {
        printf("%s ", done);
        cli_put_printable(stdout, name, strlen(name));
        printf("%s\n", behind);
        return CLI_OK;
    }
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, key, csn_str_from(name));
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

int cli_put_text(const cli_args *args, const caisson_text *text) {
    if (!cli_has(args, "json")) {
        cli_put_model_text(stdout, text->ptr, text->n);
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(SIZE_MAX);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "text", csn_str_make(text->ptr, text->n));
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}
