/* SPDX-License-Identifier: Apache-2.0 */
#include "score.h"

#include <math.h>

#include "open.h"
#include "term.h"

enum { USUAL_CTX = 512 };

int cli_score_text(const cli_args *args, caisson_session *session, caisson_session *base,
                   const char *text, size_t n, caisson_score *ret) {
    caisson_error err;
    cli_progress progress;
    caisson_score_options o = {
        .struct_size = sizeof(o), .on_progress = cli_on_progress, .ctx = &progress};
    cli_progress_init(&progress, "tokens", false);
    caisson_status status = caisson_score_text(session, base, text, n, &o, ret, &err);
    cli_progress_end(&progress);
    if (status != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    return isfinite(ret->nll) && isfinite(ret->kl)
               ? CLI_OK
               : cli_fail_text(args, "the score is not a number: the model's weights are broken "
                                     "(caisson verify tells where)");
}

uint32_t cli_score_ctx(const caisson_model *model) {
    uint32_t trained = caisson_model_n_ctx_train(model);
    return trained != 0 && trained < USUAL_CTX ? trained : USUAL_CTX;
}

int cli_score_variant(const cli_args *args, caisson_model *model, const char *task,
                      const char *skill, const char *text, size_t n, caisson_score *ret,
                      bool *ret_masked) {
    caisson_session_options o =
        cli_session_options(args, CAISSON_COMPUTE_F32, cli_score_ctx(model));
    o.task = task;
    o.skill = skill;
    caisson_error err;
    caisson_session *session;
    caisson_task_info info;
    if (caisson_session_new(model, &o, &session, &err) != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    *ret_masked = caisson_session_task(session, &info);
    int rc = cli_score_text(args, session, NULL, text, n, ret);
    caisson_session_free(session);
    return rc;
}

/* A model and a session over it. */
static int open_scored(const cli_args *args, const char *path, caisson_model **ret,
                       caisson_session **ret_session) {
    int rc = cli_open_model(args, path, CLI_PART_RAW, ret);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_session_options o = cli_session_options(args, CAISSON_COMPUTE_F32, cli_score_ctx(*ret));
    o.type_k = o.type_v = CAISSON_KV_F32;
    caisson_error err;
    return caisson_session_new(*ret, &o, ret_session, &err) == CAISSON_OK ? CLI_OK
                                                                          : cli_fail(args, &err);
}

int cli_score_files(const cli_args *args, const char *path, const char *base, const char *text,
                    size_t n, caisson_score *ret, caisson_score *ret_base) {
    const char *const paths[2] = {path, base};
    caisson_model *models[2] = {NULL, NULL};
    caisson_session *sessions[2] = {NULL, NULL};
    int rc = CLI_OK;
    for (int i = 0; i < 2 && rc == CLI_OK; i++) {
        rc = open_scored(args, paths[i], &models[i], &sessions[i]);
    }
    if (rc == CLI_OK) {
        rc = cli_score_text(args, sessions[1], NULL, text, n, ret_base);
    }
    if (rc == CLI_OK) {
        rc = cli_score_text(args, sessions[0], sessions[1], text, n, ret);
    }
    for (int i = 0; i < 2; i++) {
        caisson_session_free(sessions[i]);
        caisson_model_close(models[i]);
    }
    return rc;
}
