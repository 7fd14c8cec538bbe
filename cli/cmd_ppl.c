/* SPDX-License-Identifier: Apache-2.0 */
/* ppl: how well a model predicts a text, and with --kl how far its distributions are from those of
 * another model or another arithmetic. Sums are kept in double, in order, so the figures do not
 * depend on threads or on how a window is cut. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "term.h"

enum {
    MAX_INPUT = 1 << 28,
    DEFAULT_CTX = 512,
    CHUNK = 32 /* tokens evaluated at once with --kl: that many rows of logits are kept */
};

typedef struct totals {
    double nll; /* nats, sum over the scored tokens */
    double kl;  /* nats, sum over the same positions */
    double kl_max;
    uint64_t n;      /* scored tokens */
    uint64_t n_same; /* positions where both models like the same token best */
} totals;

typedef struct job {
    const cli_args *args;
    caisson_session *session, *base; /* base: NULL without --kl */
    uint32_t n_vocab;
    float *rows;          /* [CHUNK][n_vocab] logits of the base */
    const int32_t *chunk; /* tokens of the running call */
    size_t n_chunk;
    int32_t next; /* token behind the chunk; -1: none */
    totals t;
    cli_progress progress;
    uint64_t n_total;
} job;

/* log(sum(exp(x))) */
static double log_sum(const float *x, uint32_t n) {
    float max = x[0];
    for (uint32_t i = 1; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - (double)max);
    }
    return log(sum) + (double)max;
}

static uint32_t argmax(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* KL(base || model) of one position. */
static void add_kl(job *j, const float *model, double model_sum, const float *base) {
    double base_sum = log_sum(base, j->n_vocab);
    double kl = 0;
    for (uint32_t i = 0; i < j->n_vocab; i++) {
        double lp = (double)base[i] - base_sum;
        kl += exp(lp) * (lp - ((double)model[i] - model_sum));
    }
    j->t.kl += kl;
    j->t.kl_max = kl > j->t.kl_max ? kl : j->t.kl_max;
    j->t.n_same += argmax(model, j->n_vocab) == argmax(base, j->n_vocab);
}

static caisson_status keep_row(void *ctx, uint32_t i, const float *logits) {
    job *j = ctx;
    memcpy(j->rows + (size_t)i * j->n_vocab, logits, j->n_vocab * sizeof(*logits));
    return cli_interrupted() ? CAISSON_E_CANCELLED : CAISSON_OK;
}

static caisson_status score_row(void *ctx, uint32_t i, const float *logits) {
    job *j = ctx;
    int32_t target = i + 1 < j->n_chunk ? j->chunk[i + 1] : j->next;
    if (target < 0) {
        return CAISSON_OK; /* nothing follows: not scored */
    }
    double sum = log_sum(logits, j->n_vocab);
    j->t.nll += sum - (double)logits[target];
    j->t.n++;
    if (j->base != NULL) {
        add_kl(j, logits, sum, j->rows + (size_t)i * j->n_vocab);
    }
    if (i % 16 == 0) {
        cli_progress_show(&j->progress, "evaluating", j->t.n, j->n_total);
    }
    return cli_interrupted() ? CAISSON_E_CANCELLED : CAISSON_OK;
}

/* One window: every token but the first is scored, given those before it in the window. */
static int score_window(job *j, const int32_t *ids, size_t n) {
    caisson_error err;
    size_t step = j->base != NULL ? CHUNK : n;
    caisson_status status = caisson_session_truncate(j->session, 0, &err);
    if (status == CAISSON_OK && j->base != NULL) {
        status = caisson_session_truncate(j->base, 0, &err);
    }
    for (size_t at = 0; at < n && status == CAISSON_OK; at += step) {
        j->chunk = ids + at;
        j->n_chunk = n - at < step ? n - at : step;
        j->next = at + j->n_chunk < n ? ids[at + j->n_chunk] : -1;
        if (j->base != NULL) {
            status = caisson_session_eval(j->base, j->chunk, j->n_chunk, keep_row, j, &err);
        }
        if (status == CAISSON_OK) {
            status = caisson_session_eval(j->session, j->chunk, j->n_chunk, score_row, j, &err);
        }
    }
    return status == CAISSON_OK ? CLI_OK : cli_fail(j->args, &err);
}

/* Cuts the text into windows; each begins with BOS where the tokenizer has one. */
static int score_text(job *j, const caisson_model *model, const caisson_ids *text) {
    size_t n_ctx = caisson_session_n_ctx(j->session);
    int32_t bos = caisson_model_bos(model);
    size_t n_bos = bos >= 0 ? 1 : 0;
    if (n_ctx < 2) {
        return cli_usage_error(j->args->command, "a window needs at least two tokens (-c 2)");
    }
    int32_t *window = malloc(n_ctx * sizeof(*window));
    if (window == NULL) {
        return cli_fail_text(j->args, "out of memory");
    }
    size_t per_window = n_ctx - n_bos;
    size_t n_windows = (text->n + per_window - 1) / per_window;
    j->n_total = text->n - (n_bos ? 0 : n_windows);
    int rc = CLI_OK;
    for (size_t at = 0; at < text->n && rc == CLI_OK; at += per_window) {
        size_t n = text->n - at < per_window ? text->n - at : per_window;
        window[0] = bos;
        memcpy(window + n_bos, text->id + at, n * sizeof(*window));
        rc = score_window(j, window, n + n_bos);
    }
    free(window);
    return rc;
}

static int print_result(const job *j) {
    const totals *t = &j->t;
    if (t->n == 0) {
        return cli_fail_text(j->args, "the text is too short: no token has one before it");
    }
    double nll = t->nll / (double)t->n;
    double kl = t->kl / (double)t->n;
    double same = (double)t->n_same / (double)t->n;
    if (!cli_has(j->args, "json")) {
        printf("perplexity %.4f, %.6f nats a token, %" PRIu64 " tokens\n", exp(nll), nll, t->n);
        if (j->base != NULL) {
            printf("mean KL %.6f nats, largest %.6f, same best token %.2f%%\n", kl, t->kl_max,
                   same * 100.0);
        }
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(4096);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("ppl"));
    csn_jw_f64(&w, exp(nll));
    csn_jw_key(&w, CSN_STR("nll"));
    csn_jw_f64(&w, nll);
    csn_jw_key(&w, CSN_STR("n_tokens"));
    csn_jw_u64(&w, t->n);
    if (j->base != NULL) {
        csn_jw_key(&w, CSN_STR("kl"));
        csn_jw_f64(&w, kl);
        csn_jw_key(&w, CSN_STR("kl_max"));
        csn_jw_f64(&w, t->kl_max);
        csn_jw_key(&w, CSN_STR("same_argmax"));
        csn_jw_f64(&w, same);
    }
    csn_jw_object_end(&w);
    int rc = CLI_OK;
    if (csn_jw_end(&w) == CAISSON_OK) {
        printf("%s\n", out.ptr);
    } else {
        rc = cli_fail(j->args, &err);
    }
    csn_buf_free(&out);
    return rc;
}

/* The model of --kl and its session: --kl-compute, KV cache in f32. */
static int open_base(job *j, uint32_t n_ctx, caisson_model **ret) {
    const cli_args *args = j->args;
    int rc = cli_open_model(args, cli_text(args, "kl", ""), CLI_PART_WEIGHTS, ret);
    if (rc != CLI_OK) {
        return rc;
    }
    if (caisson_model_n_vocab(*ret) != j->n_vocab) {
        return cli_fail_text(args, "the two models have vocabularies of %u and %u tokens",
                             j->n_vocab, caisson_model_n_vocab(*ret));
    }
    caisson_session_options o = cli_session_options(args, CAISSON_COMPUTE_F32, n_ctx);
    bool int8 = strcmp(cli_text(args, "kl-compute", "f32"), "int8") == 0;
    o.compute = int8 ? CAISSON_COMPUTE_INT8 : CAISSON_COMPUTE_F32;
    o.type_k = o.type_v = CAISSON_KV_F32;
    caisson_error err;
    if (caisson_session_new(*ret, &o, &j->base, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    j->rows = malloc((size_t)CHUNK * j->n_vocab * sizeof(*j->rows));
    return j->rows != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
}

static int score(job *j, caisson_model *model, const char *text, size_t n_text) {
    caisson_error err;
    caisson_ids ids = {0};
    if (caisson_model_tokenize(model, text, n_text, 0, &ids, &err) != CAISSON_OK) {
        return cli_fail(j->args, &err);
    }
    uint32_t n_ctx = caisson_model_n_ctx_train(model);
    n_ctx = n_ctx < DEFAULT_CTX ? n_ctx : DEFAULT_CTX;
    int rc = cli_new_session(j->args, model, CAISSON_COMPUTE_F32, n_ctx, &j->session);
    caisson_model *base = NULL;
    if (rc == CLI_OK && cli_has(j->args, "kl")) {
        rc = open_base(j, n_ctx, &base);
    }
    if (rc == CLI_OK) {
        cli_progress_init(&j->progress, "tokens", false);
        rc = score_text(j, model, &ids);
        cli_progress_end(&j->progress);
    }
    if (rc == CLI_OK) {
        rc = print_result(j);
    }
    caisson_session_free(j->base);
    caisson_session_free(j->session);
    caisson_model_close(base);
    caisson_ids_free(&ids);
    free(j->rows);
    return rc;
}

static int run(const cli_args *args) {
    char *text;
    size_t n;
    int rc = cli_read_text(args, args->positional[1], MAX_INPUT, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0], CLI_PART_RAW, &model);
    if (rc == CLI_OK) {
        job j = {.args = args, .n_vocab = caisson_model_n_vocab(model)};
        rc = score(&j, model, text, n);
        caisson_model_close(model);
    }
    free(text);
    return rc;
}

static const char *compute_choice(unsigned i) {
    static const char *const words[] = {"f32", "int8", NULL};
    return words[i];
}

static const cli_option options[] = {
    {.name = "kl",
     .kind = CLI_PATH,
     .value = "BASE",
     .help = "Also the mean KL divergence of MODEL's distributions from those of BASE (a .cmf with "
             "the same vocabulary; may be MODEL itself) over the scored positions"},
    {.name = "kl-compute",
     .kind = CLI_CHOICE,
     .value = "MODE",
     .choices = compute_choice,
     .help = "Arithmetic of BASE; its keys and values are kept in f32",
     .by_default = "f32"},
    {0},
};

const cli_command cli_cmd_ppl = {
    .name = "ppl",
    .summary = "Perplexity of a model on a text, and its KL divergence from another",
    .positionals = "MODEL FILE",
    .min_args = 2,
    .max_args = 2,
    .groups = {options, cli_model_options, cli_signature_options, cli_verify_options,
               cli_json_options, cli_common_options},
    .details =
        "The text (- is standard input) is tokenised as plain text and cut into windows of "
        "the context (-c, here 512 by default) that do not overlap. If the tokenizer has a "
        "BOS token each window begins with it. Every token of a window but its first is "
        "scored, given the tokens before it in the window; nll is the mean in nats, ppl is "
        "exp(nll), n_tokens counts the scored tokens.\n"
        "JSON: {\"ppl\":P, \"nll\":N, \"n_tokens\":T}, with --kl also \"kl\" (the mean, nats), "
        "\"kl_max\", \"same_argmax\".",
    .examples = "caisson ppl model.cmf text.txt --json\n"
                "caisson ppl model.cmf text.txt --compute int8 --kl model.cmf",
    .run = run,
};
