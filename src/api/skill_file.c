/* SPDX-License-Identifier: Apache-2.0 */
/* Skills of a file: added, judged, removed. */
#include <math.h>

#include "api_internal.h"
#include "base/alloc.h"
#include "caisson/skill.h"
#include "convert/skill_add.h"
#include "engine/fit.h"

enum { MAX_PROMPTS = 1 << 20, DEFAULT_RANK = 2, DEFAULT_HOLDOUT = 5, MAX_JSON = 1 << 26 };

typedef struct bridge {
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void (*on_tensor)(void *ctx, const caisson_skill_tensor *report);
    caisson_log_fn on_log;
    void *ctx;
} bridge;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const bridge *b = ctx;
    return b->on_progress == NULL || b->on_progress(b->ctx, stage, done, total);
}

static void on_log(void *ctx, csn_log_level level, const char *line) {
    const bridge *b = ctx;
    b->on_log(b->ctx, (caisson_log_level)level, line);
}

static void on_tensor(void *ctx, const csn_skill_report *r) {
    const bridge *b = ctx;
    caisson_skill_tensor out = {.name = r->name.ptr,
                                .name_n = r->name.len,
                                .delta = r->delta,
                                .to = r->to != NULL ? r->to->name : NULL,
                                .n_bytes = r->nbytes,
                                .relative_error = r->relative_error};
    b->on_tensor(b->ctx, &out);
}

/* ---- what describes a skill's prompts ---- */

static caisson_status tokenize_all(const caisson_model *m, const caisson_skill_add_options *o,
                                   caisson_ids *ids, size_t *ret_longest, caisson_error *err) {
    size_t longest = 0;
    for (size_t i = 0; i < o->n_prompts; i++) {
        CSN_API_NEED(o->prompts[i] != NULL, err, "a prompt must not be NULL");
        CSN_TRY(caisson_model_tokenize(m, o->prompts[i], strlen(o->prompts[i]), 0, &ids[i], err));
        CSN_API_NEED(ids[i].n > 0, err, "a prompt has no tokens");
        longest = ids[i].n > longest ? ids[i].n : longest;
    }
    *ret_longest = longest;
    return CAISSON_OK;
}

/* Whether prompt i is kept out of the fit. */
static bool is_held_out(const caisson_skill_add_options *o, size_t i) {
    uint32_t every = o->holdout != 0 ? o->holdout : DEFAULT_HOLDOUT;
    return every > 1 && (i + 1) % every == 0;
}

static size_t n_fitted(const caisson_skill_add_options *o) {
    size_t n = 0;
    for (size_t i = 0; i < o->n_prompts; i++) {
        n += !is_held_out(o, i);
    }
    return n;
}

/* phi [n_prompts][hidden] behind one layer: of the prompts that are fitted, then of the others. */
static caisson_status run_prompts(const caisson_model *m, const caisson_skill_add_options *o,
                                  const caisson_ids *ids, size_t longest, uint32_t layer,
                                  float *phi, const csn_progress *progress, caisson_error *err) {
    uint32_t hidden = m->arch->hidden_size;
    csn_phi *p;
    float *fitted = phi, *held = phi + n_fitted(o) * hidden;
    CSN_TRY(csn_phi_new(m->model, (uint32_t)longest, o->n_threads, &p, err));
    caisson_status s = CAISSON_OK;
    for (size_t i = 0; i < o->n_prompts && s == CAISSON_OK; i++) {
        s = csn_phi_run(p, ids[i].id, (uint32_t)ids[i].n, NULL, err);
        if (s == CAISSON_OK) {
            float **at = is_held_out(o, i) ? &held : &fitted;
            memcpy(*at, csn_phi_get(p, layer), hidden * sizeof(*phi));
            *at += hidden;
            s = csn_progress_tell(progress, "prompts", i + 1, o->n_prompts, err);
        }
    }
    csn_phi_free(p);
    return s;
}

static caisson_status fit(const caisson_model *m, const caisson_skill_add_options *o, float *phi,
                          uint32_t layer, csn_buf *out, caisson_error *err) {
    uint32_t hidden = m->arch->hidden_size;
    uint32_t n = (uint32_t)n_fitted(o);
    uint32_t rank = o->rank != 0 ? o->rank : DEFAULT_RANK;
    csn_cmf_selection selection = {.phi_layer = layer,
                                   .n_holdout = (uint32_t)o->n_prompts - n,
                                   .holdout = phi + (size_t)n * hidden};
    CSN_TRY(CSN_NEW((size_t)hidden * (1 + CSN_FIT_MAX_RANK), &selection.mean, err));
    selection.basis = selection.mean + hidden;
    caisson_status s = csn_selection_fit(phi, n, hidden, rank, selection.mean, selection.basis,
                                         &selection.rank, err);
    if (s == CAISSON_OK) {
        csn_selection_measure(&selection, phi, n, hidden);
        csn_jw w = csn_jw_begin(out, err);
        csn_selection_write(&w, &selection, hidden);
        s = csn_jw_end(&w);
    }
    csn_free(selection.mean);
    return s;
}

/* The visit of a layer behind which prompts are described: two thirds of the depth (facts 10.3). */
static caisson_status find_phi_layer(const caisson_model *m, const caisson_skill_add_options *o,
                                     uint32_t *ret, caisson_error *err) {
    uint32_t n_visits = csn_plan_n_visits(csn_model_plan(m->model));
    if (o->has_phi_layer && o->phi_layer >= n_visits) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "phi_layer is no layer of the model",
                        CSN_VALUES(n_visits - 1, o->phi_layer));
    }
    *ret = o->has_phi_layer ? o->phi_layer : m->arch->n_layers * 2 / 3;
    return CAISSON_OK;
}

static caisson_status describe_prompts(const char *path, const caisson_skill_add_options *o,
                                       const csn_progress *progress, csn_buf *out,
                                       caisson_error *err) {
    caisson_model *m;
    caisson_ids *ids = NULL;
    float *phi = NULL;
    size_t longest = 0;
    caisson_open_options open = {.struct_size = sizeof(open), .no_chat = true};
    CSN_TRY(caisson_model_open(path, &open, &m, err));
    uint32_t layer = 0;
    caisson_status s = find_phi_layer(m, o, &layer, err);
    if (s == CAISSON_OK) {
        s = CSN_NEW(o->n_prompts, &ids, err);
    }
    if (s == CAISSON_OK) {
        s = tokenize_all(m, o, ids, &longest, err);
    }
    if (s == CAISSON_OK) {
        s = CSN_NEW(o->n_prompts * m->arch->hidden_size, &phi, err);
    }
    if (s == CAISSON_OK) {
        s = run_prompts(m, o, ids, longest, layer, phi, progress, err);
    }
    if (s == CAISSON_OK) {
        s = fit(m, o, phi, layer, out, err);
    }
    for (size_t i = 0; ids != NULL && i < o->n_prompts; i++) {
        caisson_ids_free(&ids[i]);
    }
    csn_free(ids);
    csn_free(phi);
    caisson_model_close(m);
    return s;
}

/* ---- add, remove ---- */

static caisson_status find_family(const char *word, csn_skill_family *ret, caisson_error *err) {
    static const char *const words[] = {"all", "ffn", "attn"};
    for (int i = 0; i < 3; i++) {
        if (word == NULL || strcmp(word, words[i]) == 0) {
            *ret = (csn_skill_family)i;
            return CAISSON_OK;
        }
    }
    return csn_api_bad_arg(err, "tensors must be all, ffn or attn");
}

caisson_status caisson_skill_add(const char *path, const char *id, const char *donor,
                                 const caisson_skill_add_options *options, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && id != NULL && donor != NULL, err,
                 "path, id and donor must not be NULL");
    caisson_skill_add_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_API_NEED(o.n_prompts == 0 || (o.prompts != NULL && o.n_prompts <= MAX_PROMPTS), err,
                 "prompts must not be NULL, nor more than 1048576");
    CSN_API_NEED(isfinite(o.min_delta) && o.min_delta >= 0, err, "min_delta must not be negative");
    CSN_TRY(csn_skill_check_id(csn_str_from(id), err));
    bridge b = {o.on_progress, o.on_tensor, o.on_log, o.ctx};
    csn_progress progress = {on_progress, &b};
    csn_log log = {o.on_log != NULL ? on_log : NULL, &b, CSN_LOG_INFO};
    csn_skill_add_options add = {
        .name = csn_str_from(o.name),
        .description = csn_str_from(o.description),
        .input_mask_task = csn_str_from(o.input_mask_task),
        .layers = csn_str_from(o.layers),
        .min_delta = o.min_delta,
        .n_threads = o.n_threads,
        .progress = &progress,
        .log = &log,
        .on_tensor = o.on_tensor != NULL ? on_tensor : NULL,
        .ctx = &b,
    };
    CSN_TRY(find_family(o.tensors, &add.family, err));
    if (o.quant != NULL) {
        CSN_TRY(csn_api_find_quant(o.quant, &add.quant, err));
    }
    csn_buf selection = CSN_BUF_INIT(MAX_JSON);
    caisson_status s = CAISSON_OK;
    if (o.n_prompts > 0) {
        s = describe_prompts(path, &o, &progress, &selection, err);
        add.selection = csn_buf_view(&selection);
    }
    if (s == CAISSON_OK) {
        s = csn_skill_add(csn_fs_os(), path, csn_str_from(id), donor, &add, err);
    }
    csn_buf_free(&selection);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return s;
}

caisson_status caisson_skill_remove(const char *path, const char *id, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && id != NULL, err, "path and id must not be NULL");
    return csn_skill_remove(csn_fs_os(), path, csn_str_from(id), err);
}

/* ---- quality ---- */

static caisson_status write_quality(const caisson_skill_quality *q, csn_buf *out,
                                    caisson_error *err) {
    char sha256[2 * CSN_SHA256_BYTES + 1];
    CSN_TRY(csn_api_sha256_hex(q->dataset, q->dataset_n, sha256, err));
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "metric", csn_str_from(q->metric));
    csn_jw_put_f64(&w, "backbone", q->backbone);
    csn_jw_put_f64(&w, "overlaid", q->overlaid);
    csn_jw_put_str(&w, "dataset_sha256", csn_str_from(sha256));
    if (q->file != NULL) {
        csn_jw_put_str(&w, "file", csn_str_from(q->file));
    }
    csn_jw_put_u64(&w, "tokens", q->tokens);
    csn_jw_put_bool(&w, "masked", q->masked);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

caisson_status caisson_skill_set_quality(const char *path, const char *id,
                                         const caisson_skill_quality *quality, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && id != NULL && quality != NULL, err,
                 "path, id and quality must not be NULL");
    caisson_skill_quality q;
    CSN_TRY(csn_api_options(quality, sizeof(q), &q, err));
    CSN_API_NEED(q.metric != NULL && (q.dataset != NULL || q.dataset_n == 0), err,
                 "a quality needs its metric and the data");
    CSN_API_NEED(isfinite(q.backbone) && isfinite(q.overlaid), err, "a quality is a finite number");
    csn_buf json = CSN_BUF_INIT(MAX_JSON);
    caisson_status s = write_quality(&q, &json, err);
    if (s == CAISSON_OK) {
        s = csn_skill_set_quality(csn_fs_os(), path, csn_str_from(id), csn_buf_view(&json), err);
    }
    csn_buf_free(&json);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return s;
}
