/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a text through a model to see what its weights meet. */
#include "api_internal.h"

enum { CALIBRATION_CTX = 512 };

caisson_status csn_api_calibrate(caisson_model *model, const char *text, size_t n,
                                 uint32_t n_threads, const csn_progress *progress,
                                 csn_calibration *ret, caisson_error *err) {
    caisson_session *session = NULL;
    caisson_ids ids = {0};
    uint32_t trained = caisson_model_n_ctx_train(model);
    caisson_session_options o = {
        .struct_size = sizeof(o),
        .n_ctx = trained != 0 && trained < CALIBRATION_CTX ? trained : CALIBRATION_CTX,
        .n_threads = n_threads,
        .compute = CAISSON_COMPUTE_F32,
        .task = ""};
    CSN_TRY(caisson_session_new(model, &o, &session, err));
    caisson_status status = caisson_model_tokenize(model, text, n, 0, &ids, err);
    if (status == CAISSON_OK) {
        status = csn_calibrate(session->session, ids.id, ids.n, caisson_model_bos(model), progress,
                               ret, err);
    }
    caisson_ids_free(&ids);
    caisson_session_free(session);
    return status;
}
