/* SPDX-License-Identifier: Apache-2.0 */
/* How well a model predicts a text. Sums are kept in double, in order, so the figures do not depend
 * on threads or on how a window is cut. */
#include "score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "open.h"
#include "term.h"

enum { CHUNK = 32 /* tokens evaluated at once with a base: that many rows of logits are kept */ };

typedef struct job {
    const cli_args *args;
    caisson_session *session, *base; /* base: or NULL */
    uint32_t n_vocab;
    float *rows;          /* [CHUNK][n_vocab] logits of the base */
    const int32_t *chunk; /* tokens of the running call */
    size_t n_chunk;
    int32_t next; /* token behind the chunk; -1: none */
    cli_score t;
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
static int score_windows(job *j, const caisson_model *model, const caisson_ids *text) {
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

int cli_score_text(const cli_args *args, const caisson_model *model, caisson_session *session,
                   caisson_session *base, const char *text, size_t n, cli_score *ret) {
    caisson_error err;
    caisson_ids ids = {0};
    job j = {
        .args = args, .session = session, .base = base, .n_vocab = caisson_model_n_vocab(model)};
    if (caisson_model_tokenize(model, text, n, 0, &ids, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    int rc = CLI_OK;
    if (base != NULL) {
        j.rows = malloc((size_t)CHUNK * j.n_vocab * sizeof(*j.rows));
        rc = j.rows != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
    }
    if (rc == CLI_OK) {
        cli_progress_init(&j.progress, "tokens", false);
        rc = score_windows(&j, model, &ids);
        cli_progress_end(&j.progress);
    }
    if (rc == CLI_OK && j.t.n == 0) {
        rc = cli_fail_text(args, "the text is too short: no token has one before it");
    }
    caisson_ids_free(&ids);
    free(j.rows);
    *ret = j.t;
    return rc;
}

/* A model and a session over it. */
static int open_scored(const cli_args *args, const char *path, caisson_model **ret,
                       caisson_session **ret_session) {
    int rc = cli_open_model(args, path, CLI_PART_RAW, ret);
    if (rc != CLI_OK) {
        return rc;
    }
    uint32_t trained = caisson_model_n_ctx_train(*ret);
    caisson_session_options o = cli_session_options(
        args, CAISSON_COMPUTE_F32, trained < CLI_SCORE_CTX ? trained : CLI_SCORE_CTX);
    o.type_k = o.type_v = CAISSON_KV_F32;
    caisson_error err;
    return caisson_session_new(*ret, &o, ret_session, &err) == CAISSON_OK ? CLI_OK
                                                                          : cli_fail(args, &err);
}

int cli_score_files(const cli_args *args, const char *path, const char *base, const char *text,
                    size_t n, cli_score *ret, cli_score *ret_base) {
    const char *const paths[2] = {path, base};
    caisson_model *models[2] = {NULL, NULL};
    caisson_session *sessions[2] = {NULL, NULL};
    int rc = CLI_OK;
    for (int i = 0; i < 2 && rc == CLI_OK; i++) {
        rc = open_scored(args, paths[i], &models[i], &sessions[i]);
    }
    if (rc == CLI_OK) {
        rc = cli_score_text(args, models[1], sessions[1], NULL, text, n, ret_base);
    }
    if (rc == CLI_OK) {
        rc = cli_score_text(args, models[0], sessions[0], sessions[1], text, n, ret);
    }
    for (int i = 0; i < 2; i++) {
        caisson_session_free(sessions[i]);
        caisson_model_close(models[i]);
    }
    return rc;
}
