/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/score.h"

#include <math.h>

typedef struct window {
    const int32_t *ids; /* [n] */
    uint32_t n, n_vocab;
    csn_score score;
} window;

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

static caisson_status score_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    window *w = ctx;
    (void)err;
    if (i + 1 < w->n) {
        w->score.nll += log_sum_exp(logits, w->n_vocab) - (double)logits[w->ids[i + 1]];
        w->score.n++;
    }
    return CAISSON_OK;
}

caisson_status csn_score_text(csn_session *s, const int32_t *ids, size_t n, int32_t bos,
                              const csn_progress *progress, csn_score *ret, caisson_error *err) {
    uint32_t n_ctx = csn_session_n_ctx(s);
    uint32_t n_bos = bos >= 0;
    uint32_t step = n_ctx - n_bos;
    if (n_ctx < 2) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "a window needs at least two tokens",
                        CSN_VALUES(2, n_ctx));
    }
    int32_t *buf;
    CSN_TRY(CSN_NEW(n_ctx, &buf, err));
    window w = {.ids = buf, .n_vocab = csn_session_n_vocab(s)};
    caisson_status status = CAISSON_OK;
    buf[0] = bos;
    for (size_t at = 0; at < n && status == CAISSON_OK; at += step) {
        size_t k = n - at < step ? n - at : step;
        memcpy(buf + n_bos, ids + at, k * sizeof(*buf));
        w.n = (uint32_t)k + n_bos;
        csn_session_truncate(s, 0);
        status = csn_session_eval(s, buf, w.n, true, score_row, &w, NULL, err);
        if (status == CAISSON_OK) {
            status = csn_progress_tell(progress, "score", at + k, n, err);
        }
    }
    csn_session_truncate(s, 0);
    csn_free(buf);
    if (status == CAISSON_OK) {
        *ret = w.score;
    }
    return status;
}
