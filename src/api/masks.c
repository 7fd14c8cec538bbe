/* SPDX-License-Identifier: Apache-2.0 */
/* Making, measuring and removing task masks: the section is written anew and the file grows. */
#include "caisson/masks.h"

#include "api_internal.h"
#include "base/alloc.h"
#include "caisson/limits.h"
#include "engine/prune.h"

/* The masks of a file with room for one more, and the file claimed for writing. */
typedef struct edit {
    csn_cmf_append *append;
    const csn_cmf *cmf;
    csn_cmf_masks masks;
    csn_arena arena;
} edit;

static caisson_status edit_begin(const char *path, edit *ret, caisson_error *err) {
    edit e = {0};
    csn_cmf *model;
    CSN_TRY(csn_cmf_append_begin_model(csn_fs_os(), path, &e.append, &model, err));
    csn_cmf_close(model);
    e.cmf = csn_cmf_append_cmf(e.append);
    e.masks = e.cmf->masks;
    caisson_status status = CSN_ARENA_NEW(&e.arena, (size_t)e.masks.n + 1, &e.masks.masks, err);
    if (status != CAISSON_OK) {
        csn_cmf_append_close(e.append);
        return status;
    }
    for (uint32_t i = 0; i < e.masks.n; i++) {
        e.masks.masks[i] = e.cmf->masks.masks[i];
    }
    *ret = e;
    return CAISSON_OK;
}

static void edit_close(edit *e) {
    csn_cmf_append_close(e->append);
    csn_arena_done(&e->arena);
}

static caisson_status edit_commit(edit *e, caisson_error *err) {
    csn_buf section = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = csn_cmf_masks_write(&e->masks, &e->cmf->arch, &section, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_append_masks(e->append, csn_buf_view(&section), err);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_append_commit(e->append, err);
    }
    csn_buf_free(&section);
    return status;
}

/* Where a mask is among the file's; CAISSON_E_MISSING lists names. */
static caisson_status edit_find(const edit *e, const char *name, uint32_t *ret,
                                caisson_error *err) {
    const csn_cmf_mask *m;
    CSN_TRY(csn_cmf_find_mask(&e->cmf->masks, csn_str_from(name), &m, err));
    *ret = (uint32_t)(m - e->cmf->masks.masks);
    return CAISSON_OK;
}

/* ---- make ---- */

typedef struct maker {
    const char *path, *name;
    caisson_mask_options o;
    caisson_model *model;
    csn_calibration calibration;
} maker;

static bool has_mask(const csn_cmf_masks *masks, csn_str name) {
    for (uint32_t i = 0; i < masks->n; i++) {
        if (csn_str_eq(masks->masks[i].name, name)) {
            return true;
        }
    }
    return false;
}

static caisson_status refuse_taken(const maker *m, const csn_cmf_masks *masks, caisson_error *err) {
    csn_str name = csn_str_from(m->name);
    if (!m->o.replace && has_mask(masks, name)) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .section = "masks", .tensor = name,
                        .what = "the file has a mask of this name");
    }
    return CAISSON_OK;
}

static uint32_t free_id(const csn_cmf_masks *masks) {
    uint32_t id = 0;
    for (uint32_t i = 0; i < masks->n; i++) {
        uint32_t used = masks->masks[i].task_id;
        id = used >= id && used < UINT32_MAX ? used + 1 : id;
    }
    return id;
}

/* Puts the new mask at its place in e->masks. */
static caisson_status place(const maker *m, edit *e, float *ret_sparsity, caisson_error *err) {
    csn_str name = csn_str_from(m->name);
    csn_prune_options po = {m->o.sparsity, m->o.head_sparsity, m->o.scattered};
    csn_cmf_mask mask;
    CSN_TRY(csn_prune(m->model->model, &m->calibration, &po, &e->arena, &mask, err));
    mask.name = name;
    mask.description = csn_str_from(m->o.description);
    uint32_t i = e->masks.n;
    if (has_mask(&e->masks, name)) {
        CSN_TRY(edit_find(e, m->name, &i, err));
        mask.task_id = e->masks.masks[i].task_id;
    } else {
        mask.task_id = free_id(&e->masks);
        e->masks.n++;
    }
    e->masks.masks[i] = mask;
    if (m->o.make_default) {
        e->masks.default_task = name;
    } else if (e->masks.default_task.ptr == NULL) {
        e->masks.default_task = CSN_STR("general"); /* the reference's; of no mask */
    }
    *ret_sparsity = mask.sparsity;
    return CAISSON_OK;
}

static caisson_status make(maker *m, float *ret_sparsity, caisson_error *err) {
    caisson_open_options oo = {.struct_size = sizeof(oo), .guard_mappings = true, .no_chat = true};
    CSN_TRY(caisson_model_open(m->path, &oo, &m->model, err));
    const csn_cmf *cmf;
    CSN_TRY(csn_api_need_cmf(m->model, &cmf, err));
    CSN_TRY(refuse_taken(m, &cmf->masks, err));
    csn_progress progress = {m->o.on_progress, m->o.ctx};
    CSN_TRY(csn_api_calibrate(m->model, m->o.text, m->o.text_n, m->o.n_threads, &progress,
                              &m->calibration, err));
    edit e;
    CSN_TRY(edit_begin(m->path, &e, err));
    /* between the calibration and the claim another writer may have been at work */
    caisson_status status = csn_cmf_append_check_same(e.append, cmf, err);
    if (status == CAISSON_OK) {
        status = place(m, &e, ret_sparsity, err);
    }
    if (status == CAISSON_OK) {
        status = edit_commit(&e, err);
    }
    edit_close(&e);
    return status;
}

caisson_status caisson_mask_make(const char *path, const char *name,
                                 const caisson_mask_options *options, float *ret_sparsity,
                                 caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && name != NULL && name[0] != '\0' && ret_sparsity != NULL, err,
                 "path, name and ret_sparsity must not be NULL, nor the name empty");
    maker m = {.path = path, .name = name};
    CSN_TRY(csn_api_options(options, sizeof(m.o), &m.o, err));
    CSN_API_NEED(m.o.text != NULL && m.o.text_n > 0, err, "a mask needs a text to be made from");
    caisson_status status = make(&m, ret_sparsity, err);
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

static caisson_status set_quality(edit *e, const char *name, const csn_jval *quality,
                                  caisson_error *err) {
    uint32_t i;
    CSN_TRY(edit_find(e, name, &i, err));
    e->masks.masks[i].quality = quality;
    return edit_commit(e, err);
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
    csn_json *doc = NULL;
    edit e;
    caisson_status status = put_quality(&q, &text, err);
    if (status == CAISSON_OK) {
        status = csn_json_parse(csn_buf_view(&text), 0, &doc, err);
    }
    csn_buf_free(&text);
    if (status == CAISSON_OK) {
        status = edit_begin(path, &e, err);
        if (status == CAISSON_OK) {
            status = set_quality(&e, name, csn_json_root(doc), err);
            edit_close(&e);
        }
    }
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

static caisson_status remove_mask(edit *e, const char *name, caisson_error *err) {
    uint32_t i;
    CSN_TRY(edit_find(e, name, &i, err));
    e->masks.n--;
    memmove(&e->masks.masks[i], &e->masks.masks[i + 1], (e->masks.n - i) * sizeof(*e->masks.masks));
    return edit_commit(e, err);
}

caisson_status caisson_mask_remove(const char *path, const char *name, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && name != NULL, err, "path and name must not be NULL");
    edit e;
    caisson_status status = edit_begin(path, &e, err);
    if (status == CAISSON_OK) {
        status = remove_mask(&e, name, err);
        edit_close(&e);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}
