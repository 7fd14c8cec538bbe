/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the engine's timeline plus the list of its tokens and the flag that stops it. */
#include "api_internal.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "engine/saved.h"

_Static_assert(CAISSON_CTX_TRAINED == CSN_CTX_TRAINED, "one value for both");

caisson_status caisson_session_new(caisson_model *model, const caisson_session_options *options,
                                   caisson_session **ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(model != NULL && ret != NULL, err, "model and ret must not be NULL");
    caisson_session_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_API_NEED((unsigned)o.compute <= CAISSON_COMPUTE_INT8, err, "unknown compute mode");
    CSN_API_NEED((unsigned)o.type_k <= CAISSON_KV_Q8_0 && (unsigned)o.type_v <= CAISSON_KV_Q8_0,
                 err, "unknown type of the KV cache");
    if (model->model == NULL) {
        return csn_api_cannot_run(model, err);
    }
    csn_session_options so = {
        .n_ctx = o.n_ctx,
        .n_ubatch = o.n_ubatch,
        .n_threads = o.n_threads,
        .compute = o.compute == CAISSON_COMPUTE_F32 ? CSN_COMPUTE_F32 : CSN_COMPUTE_INT8,
        .type_k = csn_api_kv_type(o.type_k),
        .type_v = csn_api_kv_type(o.type_v),
        .task = o.task,
        .skill = o.skill,
    };
    caisson_session *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->model = model;
    s->n_threads = o.n_threads != 0 ? o.n_threads : csn_n_cpus();
    caisson_status status = csn_session_new(model->model, &so, &s->session, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, model->path);
        caisson_session_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

void caisson_session_free(caisson_session *s) {
    if (s != NULL) {
        csn_dynamic_free(s->dynamic);
        csn_session_free(s->session);
        csn_ids_free(&s->seen);
        csn_free(s);
    }
}

bool caisson_session_task(const caisson_session *s, caisson_task_info *ret) {
    const csn_cmf_mask *m = csn_session_active_mask(s->session);
    if (m == NULL) {
        return false;
    }
    *ret = (caisson_task_info){m->name.ptr, m->name.len, m->quality != NULL};
    return true;
}

uint32_t caisson_session_n_ctx(const caisson_session *s) {
    return csn_session_n_ctx(s->session);
}

uint32_t caisson_session_n_threads(const caisson_session *s) {
    return s->n_threads;
}

uint32_t caisson_session_n_past(const caisson_session *s) {
    return csn_session_n_past(s->session);
}

const int32_t *caisson_session_tokens(const caisson_session *s) {
    return s->seen.id;
}

caisson_status caisson_session_truncate(caisson_session *s, uint32_t n, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL, err, "session must not be NULL");
    if (n > s->seen.n) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "cannot truncate to more tokens than there are",
                        CSN_VALUES(s->seen.n, n));
    }
    csn_session_truncate(s->session, n);
    s->seen.n = n;
    return CAISSON_OK;
}

void caisson_session_cancel(caisson_session *s) {
    atomic_store_explicit(&s->cancelled, 1, memory_order_relaxed);
}

static bool keep_going(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    caisson_session *s = ctx;
    return atomic_load_explicit(&s->cancelled, memory_order_relaxed) == 0;
}

typedef struct row_bridge {
    caisson_row_fn fn;
    void *ctx;
} row_bridge;

static caisson_status on_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    row_bridge *b = ctx;
    caisson_status status = b->fn(b->ctx, i, logits);
    if (status != CAISSON_OK) {
        return CSN_FAIL(err, status, .what = "stopped by the caller's row callback");
    }
    return CAISSON_OK;
}

caisson_status caisson_session_eval(caisson_session *s, const int32_t *ids, size_t n,
                                    caisson_row_fn fn, void *ctx, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && ids != NULL && n > 0, err,
                 "session and at least one token are needed");
    uint32_t n_ctx = csn_session_n_ctx(s->session);
    if (n > n_ctx || s->seen.n + n > n_ctx) {
        return CSN_FAIL(err, CAISSON_E_CONTEXT, .what = "the tokens do not fit into the context",
                        CSN_VALUES(n_ctx, s->seen.n + n));
    }
    for (size_t i = 0; i < n;
         i++) { /* room first: nothing may fail once the session has moved on */
        caisson_status status = csn_ids_push(&s->seen, ids[i], err);
        if (status != CAISSON_OK) {
            s->seen.n -= i;
            return status;
        }
    }
    atomic_store_explicit(&s->cancelled, 0, memory_order_relaxed);
    csn_progress progress = {keep_going, s};
    row_bridge bridge = {fn, ctx};
    uint32_t before = csn_session_n_past(s->session);
    caisson_status status = csn_session_eval(s->session, ids, (uint32_t)n, fn != NULL,
                                             fn != NULL ? on_row : NULL, &bridge, &progress, err);
    if (status != CAISSON_OK) {
        s->seen.n = before;
        csn_session_truncate(s->session, before);
        csn_error_file(err, s->model->path);
    }
    return status;
}

const float *caisson_session_logits(const caisson_session *s) {
    return s->seen.n == 0 ? NULL : csn_session_logits(s->session, 0);
}

caisson_status caisson_session_save(caisson_session *s, const char *path, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && path != NULL, err, "session and path must not be NULL");
    return csn_session_save(s->session, csn_fs_os(), path, err);
}

caisson_status caisson_session_load(caisson_session *s, const char *path, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && path != NULL, err, "session and path must not be NULL");
    caisson_status status = csn_session_load(s->session, csn_fs_os(), path, err);
    uint32_t n_past = csn_session_n_past(s->session);
    if (status != CAISSON_OK) {
        s->seen.n = n_past == 0 ? 0 : s->seen.n;
        return status;
    }
    s->seen.n = 0;
    for (uint32_t i = 0; i < n_past && status == CAISSON_OK; i++) {
        status = csn_ids_push(&s->seen, -1, err);
    }
    if (status != CAISSON_OK) {
        csn_session_truncate(s->session, 0);
        s->seen.n = 0;
    }
    return status;
}
