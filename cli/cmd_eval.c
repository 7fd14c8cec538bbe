/* SPDX-License-Identifier: Apache-2.0 */
/* eval: logits of given tokens, and greedy continuation, for comparing with other programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "npy.h"
#include "memory.h"
#include "open.h"
#include "term.h"

enum { MAX_JSON = 1 << 30, MAX_TOP = 1 << 20, MAX_INSERTED = 64 };

typedef struct entry {
    int32_t id;
    float logit;
} entry;

typedef struct job {
    const cli_args *args;
    caisson_session *session;
    uint32_t n_vocab, k;
    entry *top; /* [n_vocab], the first k of them in order */
    csn_jw *w;
    cli_out *npy; /* NULL: none */
    uint32_t n_prompt;
    float *last; /* [n_vocab] logits behind the prompt */
} job;

/* Larger logit first, then the lower id; NaN behind everything. */
static bool before(entry a, entry b) {
    if (a.logit != b.logit) {
        bool a_nan = a.logit != a.logit;
        bool b_nan = b.logit != b.logit;
        return a_nan || b_nan ? !a_nan : a.logit > b.logit;
    }
    return a.id < b.id;
}

static int by_rank(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    return before(*x, *y) ? -1 : before(*y, *x);
}

/* The k first entries, sorted, into top [n]; a few by insertion: most logits fail the first
 * comparison. */
static void find_top(const float *logits, uint32_t n, uint32_t k, entry *top) {
    if (k > MAX_INSERTED) {
        for (uint32_t i = 0; i < n; i++) {
            top[i] = (entry){(int32_t)i, logits[i]};
        }
        qsort(top, n, sizeof(*top), by_rank);
        return;
    }
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        entry e = {(int32_t)i, logits[i]};
        if (have == k && !before(e, top[k - 1])) {
            continue;
        }
        uint32_t at = have < k ? have++ : k - 1;
        while (at > 0 && before(e, top[at - 1])) {
            top[at] = top[at - 1];
            at--;
        }
        top[at] = e;
    }
}

static void put_position(job *j, uint32_t i, const float *logits) {
    find_top(logits, j->n_vocab, j->k, j->top);
    csn_jw *w = j->w;
    csn_jw_object(w);
    csn_jw_put_u64(w, "i", i);
    csn_jw_key(w, CSN_STR("argmax"));
    csn_jw_i64(w, j->top[0].id);
    csn_jw_key(w, CSN_STR("top"));
    csn_jw_array(w);
    for (uint32_t t = 0; t < j->k; t++) {
        csn_jw_object(w);
        csn_jw_key(w, CSN_STR("id"));
        csn_jw_i64(w, j->top[t].id);
        csn_jw_put_f32(w, "logit", j->top[t].logit);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
    if (!cli_has(j->args, "json")) {
        printf("position %u:", i);
        for (uint32_t t = 0; t < j->k; t++) {
            printf(" %d (%.6g)", j->top[t].id, (double)j->top[t].logit);
        }
        fputc('\n', stdout);
    }
    if (j->npy != NULL) {
        cli_npy_write(j->npy, logits, j->n_vocab);
    }
}

static caisson_status on_row(void *ctx, uint32_t i, const float *logits) {
    job *j = ctx;
    put_position(j, i, logits);
    if (i + 1 == j->n_prompt) {
        memcpy(j->last, logits, j->n_vocab * sizeof(*logits));
    }
    return cli_interrupted() ? CAISSON_E_CANCELLED : CAISSON_OK;
}

static int32_t argmax(const float *logits, uint32_t n) {
    entry best = {0};
    find_top(logits, n, 1, &best);
    return best.id;
}

/* N times: the likeliest token is appended and evaluated. */
static int decode(job *j, uint32_t n_prompt, uint32_t n, bool all, int32_t *generated) {
    caisson_error err;
    for (uint32_t g = 0; g < n; g++) {
        const float *logits = g == 0 ? j->last : caisson_session_logits(j->session);
        generated[g] = argmax(logits, j->n_vocab);
        if (isnan(logits[generated[g]])) {
            return cli_fail_text(j->args, "no logit is a number: the model's weights are broken "
                                          "(caisson verify tells where)");
        }
        if (caisson_session_eval(j->session, &generated[g], 1, NULL, NULL, &err) != CAISSON_OK) {
            return cli_fail(j->args, &err);
        }
        if (all) {
            put_position(j, n_prompt + g, caisson_session_logits(j->session));
        }
        if (cli_interrupted()) {
            return CLI_INTERRUPTED;
        }
    }
    return CLI_OK;
}

/* The prompt in one call, so that its length is known to the model (longrope). The last row is kept
 * for decoding. */
static int eval_prompt(job *j, const int32_t *ids, size_t n, bool all) {
    caisson_error err;
    j->n_prompt = (uint32_t)n;
    if (caisson_session_eval(j->session, ids, n, all ? on_row : NULL, j, &err) != CAISSON_OK) {
        return cli_fail(j->args, &err);
    }
    if (!all) {
        const float *logits = caisson_session_logits(j->session);
        memcpy(j->last, logits, j->n_vocab * sizeof(*logits));
        put_position(j, (uint32_t)n - 1, logits);
    }
    return CLI_OK;
}

static int eval(job *j, const int32_t *ids, size_t n, uint32_t n_decode, int32_t *generated) {
    bool all = cli_has(j->args, "all");
    const char *path = cli_text(j->args, "npy", NULL);
    cli_out npy = {0};
    int rc = CLI_OK;
    if (path != NULL) {
        uint64_t shape[2] = {all ? n + n_decode : 1, j->n_vocab};
        rc = cli_npy_open(j->args, path, 2, shape, &npy);
        if (rc != CLI_OK) {
            return rc;
        }
        j->npy = &npy;
    }
    csn_jw_key(j->w, CSN_STR("positions"));
    csn_jw_array(j->w);
    rc = eval_prompt(j, ids, n, all);
    if (rc == CLI_OK) {
        rc = decode(j, (uint32_t)n, n_decode, all, generated);
    }
    csn_jw_array_end(j->w);
    if (path != NULL) {
        rc = cli_out_close(j->args, &npy, rc);
    }
    return rc;
}

static void put_generated(const job *j, const int32_t *generated, uint32_t n) {
    csn_jw_key(j->w, CSN_STR("generated"));
    csn_jw_array(j->w);
    for (uint32_t i = 0; i < n; i++) {
        csn_jw_i64(j->w, generated[i]);
    }
    csn_jw_array_end(j->w);
    if (!cli_has(j->args, "json") && n > 0) {
        fputs("generated: ", stdout);
        for (uint32_t i = 0; i < n; i++) {
            printf("%s%d", i > 0 ? "," : "", generated[i]);
        }
        fputc('\n', stdout);
    }
}

static int load_session(const job *j) {
    const char *path = cli_text(j->args, "load-session", NULL);
    caisson_error err;
    return path == NULL || caisson_session_load(j->session, path, &err) == CAISSON_OK
               ? CLI_OK
               : cli_fail(j->args, &err);
}

static int save_session(const job *j) {
    const char *path = cli_text(j->args, "save-session", NULL);
    caisson_error err;
    return path == NULL || caisson_session_save(j->session, path, &err) == CAISSON_OK
               ? CLI_OK
               : cli_fail(j->args, &err);
}

static int eval_model(const cli_args *args, caisson_model *model, const int32_t *ids, size_t n) {
    uint32_t n_decode = (uint32_t)cli_int(args, "decode", 0);
    uint32_t n_vocab = caisson_model_n_vocab(model);
    uint32_t k = (uint32_t)cli_int(args, "top", 5);
    job j = {.args = args, .n_vocab = n_vocab, .k = k < n_vocab ? k : n_vocab};
    uint32_t n_ctx = cli_has(args, "load-session") ? 0 : (uint32_t)n + n_decode;
    int rc = cli_new_session(args, model, CAISSON_COMPUTE_F32, n_ctx, &j.session);
    if (rc != CLI_OK) {
        return rc;
    }
    rc = load_session(&j);
    if (rc != CLI_OK) {
        caisson_session_free(j.session);
        return rc;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    j.w = &w;
    j.top = malloc(j.n_vocab * sizeof(*j.top));
    j.last = malloc(n_vocab * sizeof(*j.last));
    int32_t *generated = calloc(n_decode + 1u, sizeof(*generated));
    if (j.top == NULL || j.last == NULL || generated == NULL) {
        rc = cli_fail_text(args, "out of memory");
    } else {
        csn_jw_object(&w);
        csn_jw_put_u64(&w, "n_vocab", n_vocab);
        rc = eval(&j, ids, n, n_decode, generated);
        if (rc == CLI_OK) {
            rc = save_session(&j);
        }
        if (rc == CLI_OK) {
            put_generated(&j, generated, n_decode);
            if (cli_has(args, "stats")) { /* else the same document whatever was read */
                cli_put_stats(&w, model);
            }
            csn_jw_object_end(&w);
            if (csn_jw_end(&w) != CAISSON_OK) {
                rc = cli_fail(args, &err);
            } else if (cli_has(args, "json")) {
                printf("%s\n", out.ptr);
            }
        }
    }
    free(generated);
    free(j.last);
    free(j.top);
    csn_buf_free(&out);
    caisson_session_free(j.session);
    return rc;
}

static int run(const cli_args *args) {
    if (!cli_has(args, "tokens")) {
        return cli_usage_error(args->command, "--tokens 1,2,3 is needed (caisson tokenize makes "
                                              "ids)");
    }
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = cli_read_ids(args, cli_text(args, "tokens", ""), &ids, &n);
    if (rc == CLI_OK && n == 0) {
        rc = cli_usage_error(args->command, "--tokens holds no id");
    }
    if (rc != CLI_OK) {
        free(ids);
        return rc;
    }
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0], CLI_PART_WEIGHTS, &model);
    if (rc == CLI_OK) {
        rc = eval_model(args, model, ids, n);
        cli_end_experts(args, model);
        caisson_model_close(model);
    }
    free(ids);
    return rc;
}

static const cli_option options[] = {
    {.name = "tokens",
     .kind = CLI_TEXT,
     .value = "IDS",
     .help = "The prompt: token ids with commas between, or - to read them from standard "
             "input (needed); no BOS is added"},
    {.name = "decode",
     .short_name = "n",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = 16777216,
     .help = "Then append the likeliest token (lowest id on ties) N times; end tokens do not stop "
             "it",
     .by_default = "0"},
    {.name = "top",
     .kind = CLI_INT,
     .value = "K",
     .min = 1,
     .max = MAX_TOP,
     .help = "Show the K largest logits",
     .by_default = "5"},
    {.name = "all",
     .kind = CLI_FLAG,
     .help = "Show each position of the prompt, then each decoded one; else only the last of the "
             "prompt"},
    {.name = "npy",
     .kind = CLI_PATH,
     .value = "OUT.npy",
     .help = "Write the logits of the shown positions as a float32 array [positions][vocabulary]"},
    {.name = "load-session",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "Go on where the session of FILE was (KDA and latent attention alone)"},
    {.name = "save-session",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "Write the session at the end; other engines of .waste read it"},
    {0},
};

const cli_command cli_cmd_eval = {
    .name = "eval",
    .summary = "Show the logits that follow given tokens",
    .positionals = "MODEL --tokens IDS",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, CLI_MODEL_GROUPS, cli_memory_options, cli_signature_options,
               cli_verify_options, cli_json_options, cli_common_options},
    .details = "JSON: {\"n_vocab\":V, \"positions\":[{\"i\":2, \"argmax\":A, \"top\":[{\"id\":A,"
               "\"logit\":1.5}]}], \"generated\":[...]}, with --stats also \"experts\" and "
               "\"trunk\", as run",
    .examples = "caisson eval model.cmf --tokens 1,2,3 --decode 16 --json",
    .run = run,
};
