/* SPDX-License-Identifier: Apache-2.0 */
#include "caisson/score.h"

#include "api_internal.h"
#include "engine/score.h"

/* Whatever happened: also where the engine refused before it touched its sessions. */
static void forget(caisson_session *s) {
    if (s != NULL) {
        csn_session_truncate(s->session, 0);
        s->seen.n = 0;
    }
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
    csn_progress progress = {o.on_progress, o.ctx};
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
