/* SPDX-License-Identifier: Apache-2.0 */
/* Skills of a file: added, measured, removed. */
#include <math.h>

#include "api_internal.h"
#include "base/alloc.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "caisson/skill.h"
#include "convert/skill_add.h"
#include "engine/fit.h"
#include "engine/score.h"

enum { MAX_PROMPTS = 1 << 20, DEFAULT_RANK = 2, MEASURE_CTX = 512, MAX_JSON = 1 << 26 };

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

/* phi [n_prompts][hidden] behind one layer. */
static caisson_status run_prompts(const caisson_model *m, const caisson_skill_add_options *o,
                                  const caisson_ids *ids, size_t longest, uint32_t layer,
                                  float *phi, const csn_progress *progress, caisson_error *err) {
    uint32_t hidden = m->cmf->arch.hidden_size;
    csn_phi *p;
    CSN_TRY(csn_phi_new(m->model, (uint32_t)longest, o->n_threads, &p, err));
    caisson_status s = CAISSON_OK;
    for (size_t i = 0; i < o->n_prompts && s == CAISSON_OK; i++) {
        s = csn_phi_run(p, ids[i].id, (uint32_t)ids[i].n, NULL, err);
        if (s == CAISSON_OK) {
            memcpy(phi + i * hidden, csn_phi_get(p, layer), hidden * sizeof(*phi));
            s = csn_progress_tell(progress, "prompts", i + 1, o->n_prompts, err);
        }
    }
    csn_phi_free(p);
    return s;
}

static caisson_status fit(const caisson_model *m, const caisson_skill_add_options *o,
                          const float *phi, uint32_t layer, csn_buf *out, caisson_error *err) {
    uint32_t hidden = m->cmf->arch.hidden_size;
    uint32_t rank = o->rank != 0 ? o->rank : DEFAULT_RANK;
    float *mean;
    CSN_TRY(CSN_NEW((size_t)hidden * (1 + CSN_FIT_MAX_RANK), &mean, err));
    caisson_status s = csn_selection_fit(phi, (uint32_t)o->n_prompts, hidden, rank, mean,
                                         mean + hidden, &rank, err);
    if (s == CAISSON_OK) {
        csn_jw w = csn_jw_begin(out, err);
        csn_selection_write(&w, layer, mean, mean + hidden, rank, hidden);
        s = csn_jw_end(&w);
    }
    csn_free(mean);
    return s;
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
    uint32_t layer = m->cmf->arch.n_layers * 2 / 3; /* facts 10.3 */
    caisson_status s = CSN_NEW(o->n_prompts, &ids, err);
    if (s == CAISSON_OK) {
        s = tokenize_all(m, o, ids, &longest, err);
    }
    if (s == CAISSON_OK) {
        s = CSN_NEW(o->n_prompts * m->cmf->arch.hidden_size, &phi, err);
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

/* ---- measure ---- */

static caisson_status sha256(const char *text, size_t n, char hex[2 * CSN_SHA256_BYTES + 1],
                             caisson_error *err) {
    uint8_t digest[CSN_SHA256_BYTES];
    csn_sha256 *h;
    CSN_TRY(csn_sha256_new(&h, err));
    caisson_status s = csn_sha256_add(h, text, n, err);
    if (s == CAISSON_OK) {
        s = csn_sha256_end(h, digest, err);
    }
    csn_sha256_free(h);
    if (s == CAISSON_OK) {
        csn_hex_encode(digest, sizeof(digest), hex);
    }
    return s;
}

static caisson_status score(caisson_model *m, const char *skill, const caisson_ids *ids,
                            const caisson_skill_measure_options *o, const csn_progress *progress,
                            csn_score *ret, bool *ret_masked, caisson_error *err) {
    uint32_t trained = m->cmf->arch.max_position_embeddings;
    csn_session *s;
    csn_session_options so = {.n_ctx = trained < MEASURE_CTX ? trained : MEASURE_CTX,
                              .n_threads = o->n_threads,
                              .compute = CSN_COMPUTE_F32,
                              .skill = skill,
                              .task = skill == NULL ? "" : NULL};
    CSN_TRY(csn_session_new(m->model, &so, &s, err));
    *ret_masked = csn_session_active_mask(s) != NULL;
    caisson_status status =
        csn_score_text(s, ids->id, ids->n, caisson_model_bos(m), progress, ret, err);
    csn_session_free(s);
    if (status == CAISSON_OK && ret->n == 0) {
        return csn_api_bad_arg(err, "the text is too short: no token has one before it");
    }
    return status;
}

static caisson_status write_quality(const caisson_skill_quality *q, const char *sha,
                                    const caisson_skill_measure_options *o, csn_buf *out,
                                    caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("metric"));
    csn_jw_str(&w, CSN_STR("ppl"));
    csn_jw_key(&w, CSN_STR("backbone"));
    csn_jw_f64(&w, q->base);
    csn_jw_key(&w, CSN_STR("overlaid"));
    csn_jw_f64(&w, q->skill);
    csn_jw_key(&w, CSN_STR("dataset_sha256"));
    csn_jw_str(&w, csn_str_from(sha));
    if (o->text_name != NULL) {
        csn_jw_key(&w, CSN_STR("file"));
        csn_jw_str(&w, csn_str_from(o->text_name));
    }
    csn_jw_key(&w, CSN_STR("tokens"));
    csn_jw_u64(&w, q->n_tokens);
    csn_jw_key(&w, CSN_STR("masked"));
    csn_jw_bool(&w, q->is_masked);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

static caisson_status measure(caisson_model *m, const char *id, const char *text, size_t n,
                              const caisson_skill_measure_options *o, caisson_skill_quality *ret,
                              caisson_error *err) {
    bridge b = {.on_progress = o->on_progress, .ctx = o->ctx};
    csn_progress progress = {on_progress, &b};
    const csn_cmf_skill *skill;
    csn_score base;
    csn_score own;
    bool unused;
    caisson_ids ids = {0};
    CSN_TRY(csn_cmf_find_skill(m->cmf, csn_str_from(id), &skill, err));
    CSN_TRY(caisson_model_tokenize(m, text, n, 0, &ids, err));
    caisson_skill_quality q = {0};
    caisson_status s = score(m, NULL, &ids, o, &progress, &base, &unused, err);
    if (s == CAISSON_OK) {
        s = score(m, id, &ids, o, &progress, &own, &q.is_masked, err);
    }
    caisson_ids_free(&ids);
    if (s == CAISSON_OK) {
        q.base = exp(base.nll / (double)base.n);
        q.skill = exp(own.nll / (double)own.n);
        q.n_tokens = own.n;
        *ret = q;
    }
    return s;
}

caisson_status caisson_skill_measure(const char *path, const char *id, const char *text, size_t n,
                                     const caisson_skill_measure_options *options,
                                     caisson_skill_quality *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && id != NULL && text != NULL && ret != NULL, err,
                 "path, id, text and ret must not be NULL");
    caisson_skill_measure_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    caisson_model *m;
    caisson_skill_quality q = {0};
    char sha[2 * CSN_SHA256_BYTES + 1];
    csn_buf json = CSN_BUF_INIT(MAX_JSON);
    caisson_open_options open = {.struct_size = sizeof(open), .no_chat = true};
    CSN_TRY(sha256(text, n, sha, err));
    CSN_TRY(caisson_model_open(path, &open, &m, err));
    caisson_status s = measure(m, id, text, n, &o, &q, err);
    caisson_model_close(m);
    if (s == CAISSON_OK) {
        s = write_quality(&q, sha, &o, &json, err);
    }
    if (s == CAISSON_OK) {
        s = csn_skill_set_quality(csn_fs_os(), path, csn_str_from(id), csn_buf_view(&json), err);
    }
    csn_buf_free(&json);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
        return s;
    }
    *ret = q;
    return CAISSON_OK;
}
