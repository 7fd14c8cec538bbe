/* SPDX-License-Identifier: Apache-2.0 */
/* Making, measuring and removing task masks. */
#include "caisson/masks.h"

#include "api_internal.h"
#include "base/utf8.h"
#include "convert/mask_edit.h"
#include "engine/prune.h"

/* ---- make ---- */

typedef struct maker {
    const char *path, *name;
    caisson_mask_options o;
    caisson_model *model;
    csn_calibration calibration;
} maker;

static caisson_status make(maker *m, csn_arena *arena, float *ret_sparsity, caisson_error *err) {
    caisson_open_options oo = {.struct_size = sizeof(oo), .guard_mappings = true, .no_chat = true};
    CSN_TRY(caisson_model_open(m->path, &oo, &m->model, err));
    const csn_cmf *cmf;
    CSN_TRY(csn_api_need_cmf(m->model, &cmf, err));
    if (!m->o.replace) { /* told before the work, too */
        CSN_TRY(csn_mask_check_new(&cmf->masks, csn_str_from(m->name), err));
    }
    csn_progress progress = {m->o.on_progress, m->o.ctx};
    CSN_TRY(csn_api_calibrate(m->model, m->o.text, m->o.text_n, m->o.n_threads, &progress,
                              &m->calibration, err));
    csn_prune_options po = {m->o.sparsity, m->o.head_sparsity, m->o.scattered};
    csn_mask_put_options put = {m->o.replace, m->o.make_default};
    csn_cmf_mask mask;
    CSN_TRY(csn_prune(m->model->model, &m->calibration, &po, arena, &mask, err));
    mask.name = csn_str_from(m->name);
    mask.description = csn_str_from(m->o.description);
    CSN_TRY(csn_mask_put(csn_fs_os(), m->path, cmf, &mask, &put, err));
    *ret_sparsity = mask.sparsity;
    return CAISSON_OK;
}

caisson_status caisson_mask_make(const char *path, const char *name,
                                 const caisson_mask_options *options, float *ret_sparsity,
                                 caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && name != NULL && ret_sparsity != NULL, err,
                 "path, name and ret_sparsity must not be NULL");
    CSN_API_NEED(name[0] != '\0' && csn_utf8_valid(csn_str_from(name), NULL), err,
                 "the name of a mask must be UTF-8 and not empty");
    maker m = {.path = path, .name = name};
    CSN_TRY(csn_api_options(options, sizeof(m.o), &m.o, err));
    CSN_API_NEED(m.o.text != NULL && m.o.text_n > 0, err, "a mask needs a text to be made from");
    csn_arena arena = {0};
    caisson_status status = make(&m, &arena, ret_sparsity, err);
    csn_arena_done(&arena);
    csn_calibration_done(&m.calibration);
    caisson_model_close(m.model);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

/* ---- quality, remove ---- */

static caisson_status put_quality(const caisson_mask_quality *q, csn_buf *out, caisson_error *err) {
    char sha256[2 * CSN_SHA256_BYTES + 1];
    CSN_TRY(csn_api_sha256_hex(q->dataset, q->dataset_n, sha256, err));
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "metric", csn_str_from(q->metric));
    csn_jw_put_f64(&w, "value", q->value);
    csn_jw_put_f64(&w, "baseline_dense", q->baseline_dense);
    csn_jw_put_u64(&w, "n_samples", q->n_samples);
    csn_jw_put_str(&w, "dataset_sha256", csn_str_from(sha256));
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

caisson_status caisson_mask_set_quality(const char *path, const char *name,
                                        const caisson_mask_quality *quality, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && name != NULL && quality != NULL, err,
                 "path, name and quality must not be NULL");
    caisson_mask_quality q;
    CSN_TRY(csn_api_options(quality, sizeof(q), &q, err));
    CSN_API_NEED(q.metric != NULL && q.dataset != NULL && q.value - q.value == 0 &&
                     q.baseline_dense - q.baseline_dense == 0,
                 err, "a quality needs its metric, its data and finite values");
    csn_buf text = CSN_BUF_INIT(4096);
    caisson_status status = put_quality(&q, &text, err);
    if (status == CAISSON_OK) {
        status =
            csn_mask_set_quality(csn_fs_os(), path, csn_str_from(name), csn_buf_view(&text), err);
    }
    csn_buf_free(&text);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

caisson_status caisson_mask_remove(const char *path, const char *name, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && name != NULL, err, "path and name must not be NULL");
    caisson_status status = csn_mask_remove(csn_fs_os(), path, csn_str_from(name), err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}
