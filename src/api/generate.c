/* SPDX-License-Identifier: Apache-2.0 */
/* Sampler and generation: the engine's, with defaults put in for zeros. */
#include "engine/generate.h"

#include <math.h>
#include <stdatomic.h>

#include "api_internal.h"
#include "base/alloc.h"
#include "base/utf8.h"

struct caisson_sampler {
    csn_sampler *sampler;
};

static float or_default(float given, float otherwise) {
    return given == 0.0f ? otherwise : given;
}

static bool in_range(float x, float lo, float hi) {
    return isfinite(x) && x >= lo && x <= hi;
}

static caisson_status sampler_options(const caisson_sampling *given, csn_sampler_options *ret,
                                      caisson_error *err) {
    caisson_sampling o;
    CSN_TRY(csn_api_options(given, sizeof(o), &o, err));
    csn_sampler_options d = csn_sampler_defaults();
    d.temperature = o.greedy ? 0.0f : or_default(o.temperature, d.temperature);
    d.top_k = o.top_k == 0 ? d.top_k : o.top_k < 0 ? 0 : o.top_k;
    d.top_p = or_default(o.top_p, d.top_p);
    d.min_p = o.min_p < 0.0f ? 0.0f : or_default(o.min_p, d.min_p);
    d.typical_p = or_default(o.typical_p, d.typical_p);
    d.repeat_penalty = or_default(o.repeat_penalty, d.repeat_penalty);
    d.presence_penalty = o.presence_penalty;
    d.frequency_penalty = o.frequency_penalty;
    d.repeat_last_n = o.repeat_last_n == 0 ? d.repeat_last_n : o.repeat_last_n;
    d.seed = o.seed;
    CSN_API_NEED(in_range(d.temperature, 0.0f, 1e6f), err, "temperature must be 0 to 1e6");
    CSN_API_NEED(in_range(d.top_p, 0.0f, 1.0f), err, "top_p must be 0 to 1");
    CSN_API_NEED(in_range(d.min_p, 0.0f, 1.0f), err, "min_p must be 0 to 1");
    CSN_API_NEED(in_range(d.typical_p, 0.0f, 1.0f), err, "typical_p must be 0 to 1");
    CSN_API_NEED(in_range(d.repeat_penalty, 1e-6f, 1e6f), err, "repeat_penalty must be above 0");
    CSN_API_NEED(in_range(d.presence_penalty, -1e6f, 1e6f), err, "presence_penalty must be finite");
    CSN_API_NEED(in_range(d.frequency_penalty, -1e6f, 1e6f), err,
                 "frequency_penalty must be finite");
    CSN_API_NEED(d.repeat_last_n >= -1, err, "repeat_last_n must be -1 or more");
    *ret = d;
    return CAISSON_OK;
}

caisson_status caisson_sampler_new(const caisson_sampling *sampling, uint32_t n_vocab,
                                   caisson_sampler **ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(ret != NULL && n_vocab > 0, err, "ret and a vocabulary are needed");
    csn_sampler_options o;
    CSN_TRY(sampler_options(sampling, &o, err));
    caisson_sampler *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    caisson_status status = csn_sampler_new(&o, n_vocab, &s->sampler, err);
    if (status != CAISSON_OK) {
        csn_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

void caisson_sampler_free(caisson_sampler *s) {
    if (s != NULL) {
        csn_sampler_free(s->sampler);
        csn_free(s);
    }
}

caisson_status caisson_sampler_pick(caisson_sampler *s, const float *logits, int32_t *ret,
                                    caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && logits != NULL && ret != NULL, err,
                 "sampler, logits and ret must not be NULL");
    return csn_sampler_pick(s->sampler, logits, ret, err);
}

void caisson_sampler_accept(caisson_sampler *s, int32_t id) {
    csn_sampler_accept(s->sampler, id);
}

/* What the engine's callbacks see. */
typedef struct watch {
    caisson_session *session;
    const caisson_generate_options *options;
    bool in_decode;
    caisson_error *err;
    caisson_status status; /* of keeping the list of tokens */
    const csn_progress *progress;
} watch;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    const watch *w = ctx;
    if (atomic_load_explicit(&w->session->cancelled, memory_order_relaxed) != 0) {
        return false;
    }
    return w->in_decode || w->options->on_prompt == NULL ||
           w->options->on_prompt(w->options->ctx, (uint32_t)done, (uint32_t)total);
}

/* The id is recorded whether or not the session will hold it: what it does not is cut off at the
 * end. */
static bool on_text(void *ctx, int32_t id, csn_str text) {
    watch *w = ctx;
    w->in_decode = true;
    if (id >= 0) {
        w->status = csn_ids_push(&w->session->seen, id, w->err);
        if (w->status != CAISSON_OK) {
            return false;
        }
    }
    if (text.len > 0 && w->options->on_text != NULL &&
        !w->options->on_text(w->options->ctx, text.ptr, text.len)) {
        return false;
    }
    return atomic_load_explicit(&w->session->cancelled, memory_order_relaxed) == 0;
}

static caisson_status on_eval(void *ctx, caisson_error *err) {
    watch *w = ctx;
    return csn_api_dynamic_token(w->session, w->progress, err);
}

/* How many leading ids of a timeline of n tokens the session can keep: equal tokens, evaluated as a
 * prompt of n tokens would be, and all but the last (its logits are needed). The same bits come out
 * as without reuse. */
static uint32_t reusable_prefix(const caisson_session *s, const int32_t *ids, uint32_t n) {
    uint32_t most = csn_session_reusable(s->session, n);
    most = most < n ? most : n - 1;
    uint32_t k = 0;
    while (k < most && k < s->seen.n && s->seen.id[k] == ids[k]) {
        k++;
    }
    return k;
}

static caisson_status make_stops(const caisson_generate_options *o, csn_arena *arena, csn_str **ret,
                                 caisson_error *err) {
    CSN_TRY(CSN_ARENA_NEW(arena, o->n_stop + 1, ret, err));
    for (size_t i = 0; i < o->n_stop; i++) {
        CSN_API_NEED(o->stop[i] != NULL && o->stop[i][0] != '\0', err,
                     "a stop string must not be empty");
        (*ret)[i] = csn_str_from(o->stop[i]);
        CSN_API_NEED(csn_utf8_valid((*ret)[i], NULL), err, "a stop string must be UTF-8");
    }
    return CAISSON_OK;
}

static caisson_finish finish_of(csn_finish f) {
    static const caisson_finish map[] = {
        [CSN_FINISH_EOS] = CAISSON_FINISH_EOS,
        [CSN_FINISH_STOP] = CAISSON_FINISH_STOP,
        [CSN_FINISH_LENGTH] = CAISSON_FINISH_LENGTH,
        [CSN_FINISH_CONTEXT] = CAISSON_FINISH_CONTEXT,
        [CSN_FINISH_CALLER] = CAISSON_FINISH_CANCELLED,
    };
    return map[f];
}

/* Cuts the session back to its first `keep` tokens and lists the whole new timeline, of which the
 * sampler is told what the engine will not tell it. */
static caisson_status set_timeline(caisson_session *s, const int32_t *ids, uint32_t n,
                                   uint32_t keep, csn_sampler *sampler, caisson_error *err) {
    csn_session_truncate(s->session, keep);
    s->seen.n = keep;
    for (uint32_t i = 0; i < n; i++) {
        if (i < keep) {
            csn_sampler_accept(sampler, ids[i]);
        } else if (csn_ids_push(&s->seen, ids[i], err) != CAISSON_OK) {
            s->seen.n = keep; /* the list is never longer than what the session holds */
            return err->code;
        }
    }
    return CAISSON_OK;
}

static caisson_status run(caisson_session *s, const int32_t *ids, uint32_t n,
                          const caisson_generate_options *o, const csn_str *stops,
                          csn_sampler *sampler, caisson_generation *ret, caisson_error *err) {
    CSN_TRY(csn_api_dynamic_begin(s, err));
    uint32_t keep = reusable_prefix(s, ids, n);
    watch w = {.session = s, .options = o, .err = err};
    csn_progress progress = {on_progress, &w};
    w.progress = &progress;
    csn_generate_options go = {
        .prompt = ids + keep,
        .n_prompt = n - keep,
        .n_predict = o->max_tokens != 0 ? (int64_t)o->max_tokens : -1,
        .eos = s->model->eos.id,
        .n_eos = (uint32_t)s->model->eos.n,
        .ignore_eos = o->ignore_eos,
        .stop = stops,
        .n_stop = (uint32_t)o->n_stop,
        .sampler = sampler,
        .tokenizer = s->model->tokenizer,
        .on_text = on_text,
        .on_eval = s->dynamic != NULL ? on_eval : NULL,
        .ctx = &w,
        .progress = &progress,
    };
    CSN_TRY(set_timeline(s, ids, n, keep, sampler, err));
    atomic_store_explicit(&s->cancelled, 0, memory_order_relaxed);
    csn_generate_result r = {0};
    caisson_error failure;
    caisson_status status = csn_generate(s->session, &go, &r, &failure);
    if (status == CAISSON_E_CANCELLED) {
        status = CAISSON_OK;
        r.finish = CSN_FINISH_CALLER;
    } else if (status != CAISSON_OK) {
        *err = failure;
    }
    if (status == CAISSON_OK) {
        status = w.status;
    }
    uint32_t n_past = csn_session_n_past(s->session);
    s->seen.n = n_past < s->seen.n ? n_past : s->seen.n;
    if (status != CAISSON_OK) {
        csn_error_file(err, s->model->path);
        return status;
    }
    *ret = (caisson_generation){
        .finish = finish_of(r.finish),
        .n_prompt = n,
        .n_reused = keep,
        .n_generated = r.n_generated,
        .prompt_ns = r.prompt_ns,
        .decode_ns = r.decode_ns,
        .n_decode = n_past > n ? n_past - n : 0,
        .i_stop = r.i_stop,
        .eos_id = r.finish == CSN_FINISH_EOS ? r.last : -1,
    };
    return CAISSON_OK;
}

caisson_status caisson_generate(caisson_session *s, const int32_t *ids, size_t n,
                                const caisson_generate_options *options, caisson_generation *ret,
                                caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && ids != NULL && ret != NULL, err,
                 "session, ids and ret must not be NULL");
    CSN_API_NEED(n > 0 && n <= UINT32_MAX, err, "a prompt needs at least one token");
    caisson_generate_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_API_NEED(o.n_stop == 0 || o.stop != NULL, err, "stop must not be NULL");
    if (s->model->tokenizer == NULL) {
        return csn_api_no_tokenizer(s->model, err);
    }
    if (n > csn_session_n_ctx(s->session)) {
        return CSN_FAIL(err, CAISSON_E_CONTEXT, .file = s->model->path,
                        .what = "the prompt does not fit into the context",
                        CSN_VALUES(csn_session_n_ctx(s->session), n));
    }
    csn_sampler_options so;
    CSN_TRY(sampler_options(o.sampling, &so, err));
    csn_arena arena = {0};
    csn_str *stops;
    csn_sampler *sampler = NULL;
    caisson_status status = make_stops(&o, &arena, &stops, err);
    if (status == CAISSON_OK) {
        status = csn_sampler_new(&so, caisson_model_n_vocab(s->model), &sampler, err);
    }
    if (status == CAISSON_OK) {
        status = run(s, ids, (uint32_t)n, &o, stops, sampler, ret, err);
    }
    csn_sampler_free(sampler);
    csn_arena_done(&arena);
    return status;
}
