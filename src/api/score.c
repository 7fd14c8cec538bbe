/* SPDX-License-Identifier: Apache-2.0 */
#include "caisson/score.h"

#include <stdatomic.h>

#include "api_internal.h"
#include "engine/score.h"

/* Whatever happened: also where the engine refused before it touched its sessions. */
static void forget(caisson_session *s) {
    if (s != NULL) {
        csn_session_truncate(s->session, 0);
        s->seen.n = 0;
    }
}

/* Both sessions are at work, and each may be told to stop. */
typedef struct watch {
    caisson_session *sessions[2]; /* the second: or NULL */
    const caisson_score_options *options;
} watch;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const watch *w = ctx;
    for (int i = 0; i < 2; i++) {
        if (w->sessions[i] != NULL &&
            atomic_load_explicit(&w->sessions[i]->cancelled, memory_order_relaxed) != 0) {
            return false;
        }
    }
    return w->options->on_progress == NULL ||
           w->options->on_progress(w->options->ctx, stage, done, total);
}

caisson_status caisson_score_text(caisson_session *session, caisson_session *base, const char *text,
                                  size_t n, const caisson_score_options *options,
                                  caisson_score *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(session != NULL && ret != NULL && (text != NULL || n == 0), err,
                 "session, text and ret must not be NULL");
    CSN_API_NEED(base != session, err, "base is the session itself: a session holds one text");
    caisson_score_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    caisson_ids ids;
    CSN_TRY(caisson_model_tokenize(session->model, text, n, 0, &ids, err));
    watch w = {{session, base}, &o};
    csn_progress progress = {on_progress, &w};
    for (int i = 0; i < 2 && w.sessions[i] != NULL; i++) {
        atomic_store_explicit(&w.sessions[i]->cancelled, 0, memory_order_relaxed);
    }
    csn_score score = {0};
    caisson_status status =
        csn_score_text(session->session, base != NULL ? base->session : NULL, ids.id, ids.n,
                       caisson_model_bos(session->model), &progress, &score, err);
    if (status == CAISSON_OK && score.n == 0) {
        status = CSN_FAIL(err, CAISSON_E_ARG,
                          .what = "the text is too short: no token has one before it");
    }
    forget(session);
    forget(base);
    caisson_ids_free(&ids);
    if (status != CAISSON_OK) {
        csn_error_file(err, session->model->path);
        return status;
    }
    *ret = (caisson_score){.nll = score.nll,
                           .kl = score.kl,
                           .kl_max = score.kl_max,
                           .n = score.n,
                           .n_same = score.n_same};
    return CAISSON_OK;
}
