/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/score.h"

#include <math.h>

#include "base/alloc.h"
#include "engine/window.h"

enum { CHUNK = 32 /* tokens evaluated at once with a base: that many rows of logits are kept */ };

typedef struct job {
    csn_session *session, *base; /* base: or NULL */
    uint32_t n_vocab;
    float *rows;        /* [CHUNK][n_vocab] logits of the base */
    const int32_t *ids; /* [n] the running chunk */
    uint32_t n;
    int32_t next; /* token behind the chunk; -1: none */
    csn_score score;
} job;

static double log_sum_exp(const float *x, uint32_t n) {
    float max = x[0];
    double sum = 0;
    for (uint32_t i = 1; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
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

/* KL(base || session) of one position; own_sum: log_sum_exp(own). */
static void add_kl(job *j, const float *own, double own_sum, const float *base) {
    double base_sum = log_sum_exp(base, j->n_vocab);
    double kl = 0;
    for (uint32_t i = 0; i < j->n_vocab; i++) {
        double lp = (double)base[i] - base_sum;
        kl += exp(lp) * (lp - ((double)own[i] - own_sum));
    }
    j->score.kl += kl;
    j->score.kl_max = kl > j->score.kl_max ? kl : j->score.kl_max;
    j->score.n_same += argmax(own, j->n_vocab) == argmax(base, j->n_vocab);
}

static caisson_status keep_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    const job *j = ctx;
    (void)err;
    memcpy(j->rows + (size_t)i * j->n_vocab, logits, j->n_vocab * sizeof(*logits));
    return CAISSON_OK;
}

static caisson_status score_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    job *j = ctx;
    (void)err;
    int32_t target = i + 1 < j->n ? j->ids[i + 1] : j->next;
    if (target < 0) {
        return CAISSON_OK; /* nothing follows: not scored */
    }
    double sum = log_sum_exp(logits, j->n_vocab);
    j->score.nll += sum - (double)logits[target];
    j->score.n++;
    if (j->base != NULL) {
        add_kl(j, logits, sum, j->rows + (size_t)i * j->n_vocab);
    }
    return CAISSON_OK;
}

static caisson_status score_chunk(job *j, const csn_progress *progress, caisson_error *err) {
    if (j->base != NULL) {
        CSN_TRY(csn_session_eval(j->base, j->ids, j->n, true, keep_row, j, progress, err));
    }
    return csn_session_eval(j->session, j->ids, j->n, true, score_row, j, progress, err);
}

/* A chunk among several would tell its own tokens again and again from 0: it asks whether to go on,
 * and tells where it begins. */
struct chunk_watch {
    const csn_progress *outer;
    uint64_t at, n;
};

static bool in_chunk(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const struct chunk_watch *c = ctx;
    (void)done;
    (void)total;
    return c->outer->fn(c->outer->ctx, stage, c->at, c->n);
}

static caisson_status score_window(void *ctx, const int32_t *ids, uint32_t n,
                                   const csn_progress *progress, caisson_error *err) {
    job *j = ctx;
    uint32_t step = j->base != NULL ? CHUNK : n;
    csn_session_truncate(j->session, 0);
    csn_session_expect(j->session, n);
    if (j->base != NULL) {
        csn_session_truncate(j->base, 0);
        csn_session_expect(j->base, n);
    }
    for (uint32_t at = 0; at < n; at += step) {
        j->ids = ids + at;
        j->n = n - at < step ? n - at : step;
        j->next = at + j->n < n ? ids[at + j->n] : -1;
        struct chunk_watch watch = {progress, at, n};
        const csn_progress inner = {in_chunk, &watch};
        CSN_TRY(score_chunk(j, step == n || progress == NULL ? progress : &inner, err));
        CSN_TRY(csn_progress_tell(progress, "score", at + j->n, n, err));
    }
    return CAISSON_OK;
}

static caisson_status check_base(const csn_session *s, const csn_session *base,
                                 caisson_error *err) {
    uint32_t n_vocab = csn_session_n_vocab(s);
    if (base != NULL && csn_session_n_vocab(base) != n_vocab) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "the two models have other vocabularies",
                        CSN_VALUES(n_vocab, csn_session_n_vocab(base)));
    }
    if (base != NULL && csn_session_n_ctx(base) < csn_session_n_ctx(s)) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "the base's context is shorter",
                        CSN_VALUES(csn_session_n_ctx(s), csn_session_n_ctx(base)));
    }
    return CAISSON_OK;
}

caisson_status csn_score_text(csn_session *s, csn_session *base, const int32_t *ids, size_t n,
                              int32_t bos, const csn_progress *progress, csn_score *ret,
                              caisson_error *err) {
    job j = {.session = s, .base = base, .n_vocab = csn_session_n_vocab(s)};
    CSN_TRY(check_base(s, base, err));
    if (base != NULL) {
        CSN_TRY(CSN_NEW((size_t)CHUNK * j.n_vocab, &j.rows, err));
    }
    caisson_status status = csn_windows_run(ids, n, bos, csn_session_n_ctx(s), "score", progress,
                                            score_window, &j, err);
    csn_session_truncate(s, 0);
    csn_session_expect(s, 0);
    if (base != NULL) {
        csn_session_truncate(base, 0);
        csn_session_expect(base, 0);
    }
    csn_free(j.rows);
    if (status == CAISSON_OK) {
        *ret = j.score;
    }
    return status;
}
