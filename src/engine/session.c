/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline: cuts what it is given into batches, runs them behind the store's guard, and keeps the
 * last logits. */
#include "engine/session_internal.h"

#include "base/size.h"
#include "engine/variant.h"
#include "model/forward.h"

enum {
    DEFAULT_CTX = 4096,
    DEFAULT_UBATCH = 512,
    MAX_CTX = 1 << 20 /* positions whose angles csn_sincos serves */
};
#define STATE_LOST UINT32_MAX

struct csn_session {
    csn_model *model;
    csn_variants variants;
    const csn_variant *now; /* one of them: who made what kv holds */
    csn_pool *pool;
    csn_kv kv;
    csn_forward forward;
    uint32_t n_ctx, n_ubatch, n_past;
    /* longrope: the first n_same tokens were evaluated with one table, the long one or not. */
    uint32_t n_same;
    uint32_t n_expected; /* tokens that a text in several calls will have */
    bool is_long;
    /* Of a recurrent plan only: the tokens seen, and how many of them its states have seen;
     * STATE_LOST after an eval that failed. */
    int32_t *ids; /* [n_ctx] */
    uint32_t n_state;
    float *logits; /* [n_rows_cap][vocab] */
    uint64_t n_rows_cap, n_rows;
};

/* One call of eval, as the guarded function sees it. */
struct request {
    csn_session *s;
    const int32_t *ids;
    uint32_t n;
    uint32_t n_done;  /* tokens of finished batches */
    uint32_t n_batch; /* of the one under way */
    uint32_t n_share; /* of these, as many as layers are done */
    bool want_all;
    csn_row_fn on_row;
    void *ctx;
    const csn_progress *progress;
    const csn_progress *layers; /* asked between layers; NULL: nobody watches */
};

static uint64_t threads_or_all(unsigned n) {
    return n != 0 ? n : csn_n_cpus();
}

/* Buffers and cache fit every variant: all plans of a file have the same shapes. */
static void use(csn_session *s, const csn_variant *v) {
    s->now = v;
    s->forward.plan = v->plan;
    s->forward.active = v->active;
    s->n_past = 0;
    s->n_state = STATE_LOST;
    s->n_rows = 0;
}

uint32_t csn_session_choose_ctx(const csn_arch *arch, uint32_t n_ctx) {
    uint32_t trained = arch->max_position_embeddings;
    if (n_ctx == CSN_CTX_TRAINED && trained != 0) {
        return trained;
    }
    bool is_given = n_ctx != 0 && n_ctx != CSN_CTX_TRAINED;
    return is_given ? n_ctx : trained != 0 && trained < DEFAULT_CTX ? trained : DEFAULT_CTX;
}

uint32_t csn_session_max_ubatch(const csn_plan *plan, csn_compute compute, uint32_t n_ctx,
                                uint32_t n_ubatch) {
    uint32_t n = n_ubatch < n_ctx ? n_ubatch : n_ctx;
    uint32_t fits = plan->vq.width != 0 ? csn_vq_max_chunk(&plan->vq, compute) : n;
    return n < fits ? n : fits;
}

caisson_status csn_session_new(csn_model *model, const csn_session_options *options,
                               csn_session **ret, caisson_error *err) {
    const csn_arch *a = csn_model_arch(model);
    csn_session *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->model = model;
    s->n_ctx = csn_session_choose_ctx(a, options->n_ctx);
    caisson_status status = CAISSON_OK;
    if (s->n_ctx > MAX_CTX) {
        status = CSN_FAIL(err, CAISSON_E_LIMIT, .what = "the context is too long",
                          CSN_VALUES(MAX_CTX, s->n_ctx));
    }
    const csn_variant *first = NULL;
    if (status == CAISSON_OK) {
        status = csn_variants_init(model, options->task, &s->variants, err);
    }
    if (status == CAISSON_OK) {
        status = csn_variants_get(&s->variants, csn_str_from(options->skill), &first, err);
    }
    if (status == CAISSON_OK && first->plan->vq.width != 0 &&
        csn_store_stream(csn_model_store(model)) == NULL) {
        status = CSN_FAIL(err, CAISSON_E_ARG, .what = "nobody fetches the model's experts");
    }
    if (status == CAISSON_OK) {
        uint32_t n = options->n_ubatch != 0 ? options->n_ubatch : DEFAULT_UBATCH;
        uint32_t planned = csn_model_max_ubatch(model);
        s->n_ubatch = csn_session_max_ubatch(first->plan, options->compute, s->n_ctx,
                                             n < planned ? n : planned);
    }
    if (status == CAISSON_OK) {
        status = csn_pool_new((unsigned)threads_or_all(options->n_threads), &s->pool, err);
    }
    if (status == CAISSON_OK) {
        status = csn_kv_new(first->plan, s->n_ctx, options->type_k, options->type_v, &s->kv, err);
    }
    if (status == CAISSON_OK) {
        status =
            csn_forward_init(first->plan, s->pool, options->compute, s->n_ubatch, &s->forward, err);
    }
    if (status == CAISSON_OK && first->plan->is_recurrent) {
        status = CSN_NEW(s->n_ctx, &s->ids, err);
    }
    if (status != CAISSON_OK) {
        csn_session_free(s);
        return status;
    }
    use(s, first);
    *ret = s;
    return CAISSON_OK;
}

void csn_session_free(csn_session *s) {
    if (s == NULL) {
        return;
    }
    csn_forward_done(&s->forward);
    csn_kv_free(&s->kv);
    csn_pool_free(s->pool);
    csn_free_aligned(s->logits);
    csn_free(s->ids);
    csn_variants_done(&s->variants);
    csn_free(s);
}

const csn_cmf_mask *csn_session_active_mask(const csn_session *s) {
    return s->now->mask;
}

csn_str csn_session_skill(const csn_session *s) {
    return s->now->skill;
}

caisson_status csn_session_find_skill(csn_session *s, csn_str id, caisson_error *err) {
    const csn_variant *v;
    return csn_variants_get(&s->variants, id, &v, err);
}

caisson_status csn_session_set_skill(csn_session *s, csn_str id, caisson_error *err) {
    const csn_variant *v;
    CSN_TRY(csn_variants_get(&s->variants, id, &v, err));
    if (v != s->now) {
        use(s, v);
    }
    return CAISSON_OK;
}

caisson_status csn_session_set_blend(csn_session *s, const csn_plan_part *parts, uint32_t n,
                                     caisson_error *err) {
    const csn_variant *v;
    if (s->now == &s->variants.blend) { /* it is made anew: on failure the backbone runs */
        CSN_TRY(csn_session_set_skill(s, CSN_STR(""), err));
    }
    CSN_TRY(csn_variants_blend(&s->variants, parts, n, &v, err));
    use(s, v);
    return CAISSON_OK;
}

uint32_t csn_session_n_past(const csn_session *s) {
    return s->n_past;
}

uint32_t csn_session_n_ctx(const csn_session *s) {
    return s->n_ctx;
}

uint32_t csn_session_n_vocab(const csn_session *s) {
    return s->now->plan->vocab;
}

uint64_t csn_session_kv_bytes(const csn_session *s) {
    return s->kv.nbytes;
}

const csn_plan *csn_session_plan(const csn_session *s) {
    return s->now->plan;
}

const csn_kv *csn_session_kv(const csn_session *s) {
    return &s->kv;
}

/* longrope: all tokens of one call use the table of its last position, `end` tokens in all. */
static bool uses_long(const csn_session *s, uint64_t end) {
    uint32_t original = s->now->plan->rope_original;
    return original != 0 && (end > original || s->n_expected > original);
}

void csn_session_restored(csn_session *s, uint32_t n) {
    s->n_past = n;
    s->n_state = n;
    s->n_same = n;
    s->is_long = uses_long(s, n);
    s->n_rows = 0;
    for (uint32_t i = 0; s->ids != NULL && i < n; i++) {
        s->ids[i] = -1;
    }
}

void csn_session_expect(csn_session *s, uint32_t n) {
    s->n_expected = n;
}

uint32_t csn_session_reusable(const csn_session *s, uint32_t n) {
    return s->n_past != 0 && uses_long(s, n) == s->is_long ? s->n_same : 0;
}

/* n tokens were evaluated behind those that there are. */
static void advance(csn_session *s, uint32_t n) {
    bool is_long = uses_long(s, (uint64_t)s->n_past + n);
    if (s->n_past == 0) {
        s->is_long = is_long;
        s->n_same = 0;
    }
    if (s->n_same == s->n_past && s->is_long == is_long) {
        s->n_same += n;
    }
    s->n_past += n;
}

void csn_session_truncate(csn_session *s, uint32_t n) {
    if (n < s->n_past) {
        s->n_past = n;
        s->n_same = s->n_same < n ? s->n_same : n;
        s->n_rows = 0; /* the logits were those of a token that is gone */
    }
}

void csn_session_set_tap(csn_session *s, const csn_tap *tap) {
    s->forward.ops.tap = tap;
}

static caisson_status reserve_rows(csn_session *s, uint64_t rows, caisson_error *err) {
    if (rows <= s->n_rows_cap) {
        return CAISSON_OK;
    }
    uint64_t floats;
    uint64_t bytes;
    size_t size;
    if (!csn_mul(rows, s->now->plan->vocab, &floats) || !csn_mul(floats, sizeof(float), &bytes) ||
        !csn_to_size(bytes, &size)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    float *p;
    CSN_TRY(csn_alloc_aligned(size, (void **)&p, err));
    csn_free_aligned(s->logits);
    s->logits = p;
    s->n_rows_cap = rows;
    return CAISSON_OK;
}

static caisson_status check(csn_session *s, const int32_t *ids, uint32_t n, caisson_error *err) {
    if (n == 0) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "no tokens to evaluate");
    }
    if (n > s->n_ctx - s->n_past) {
        return CSN_FAIL(err, CAISSON_E_CONTEXT, .what = "the tokens do not fit into the context",
                        CSN_VALUES(s->n_ctx, (uint64_t)s->n_past + n));
    }
    uint64_t n_ids = s->now->plan->vocab;
    uint64_t n_rows = s->now->plan->embed.m.rows;
    n_ids = n_rows < n_ids ? n_rows : n_ids;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint64_t)ids[i] >= n_ids) {
            return CSN_FAIL(err, CAISSON_E_ARG, .what = "token id outside the vocabulary",
                            CSN_AT(i), CSN_VALUES(n_ids - 1, (uint64_t)(uint32_t)ids[i]));
        }
    }
    return CAISSON_OK;
}

/* Called between layers, and in them without an amount: tells tokens, of a batch under way its
 * share of the layers, so that progress counts one thing. */
static bool between_layers(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    struct request *r = ctx;
    (void)stage;
    if (total != 0) {
        r->n_share = (uint32_t)(r->n_batch * done / total);
    }
    return r->progress->fn(r->progress->ctx, "tokens", r->n_done + r->n_share, r->n);
}

/* Logits of rows [0, n) of a batch whose first token is number i0 of the request. */
static caisson_status all_rows(struct request *r, uint32_t i0, uint32_t n, caisson_error *err) {
    csn_session *s = r->s;
    for (uint32_t t = 0; t < n; t += CSN_LOGIT_ROWS) {
        uint32_t rows = n - t < CSN_LOGIT_ROWS ? n - t : CSN_LOGIT_ROWS;
        float *out =
            r->on_row != NULL ? s->logits : s->logits + (uint64_t)(i0 + t) * s->now->plan->vocab;
        CSN_TRY(csn_forward_logits(&s->forward, t, rows, out, r->layers, err));
        for (uint32_t i = 0; r->on_row != NULL && i < rows; i++) {
            CSN_TRY(r->on_row(r->ctx, i0 + t + i, out + (uint64_t)i * s->now->plan->vocab, err));
        }
    }
    return CAISSON_OK;
}

/* One batch at position pos. */
static caisson_status forward(csn_session *s, const int32_t *ids, uint32_t pos, uint32_t n,
                              uint64_t row0, bool use_long, const csn_progress *progress,
                              caisson_error *err) {
    s->n_state = STATE_LOST;
    CSN_TRY(csn_forward_run(&s->forward, &s->kv, ids, pos, n, row0, use_long, progress, err));
    s->n_state = pos + n;
    return CAISSON_OK;
}

/* Brings states that are elsewhere to n_past, past the taps, which saw these tokens. */
static caisson_status replay(csn_session *s, bool use_long, const csn_progress *progress,
                             caisson_error *err) {
    const csn_tap *tap = s->forward.ops.tap;
    caisson_status status = CAISSON_OK;
    if (s->n_past > 0 && s->ids[0] < 0) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED,
                        .what = "a session that was loaded cannot go back: its tokens are unknown");
    }
    s->forward.ops.tap = NULL;
    for (uint32_t pos = 0; pos < s->n_past && status == CAISSON_OK; pos += s->n_ubatch) {
        uint32_t n = s->n_past - pos < s->n_ubatch ? s->n_past - pos : s->n_ubatch;
        status = forward(s, s->ids + pos, pos, n, n, use_long, progress, err);
    }
    s->forward.ops.tap = tap;
    return status;
}

static caisson_status settle(void *ctx, caisson_error *err) {
    csn_session *s = ctx;
    return s->ids == NULL || s->n_state == s->n_past ? CAISSON_OK : replay(s, false, NULL, err);
}

caisson_status csn_session_settle(csn_session *s, caisson_error *err) {
    return csn_store_guarded(csn_model_store(s->model), settle, s, err);
}

static caisson_status run(void *ctx, caisson_error *err) {
    struct request *r = ctx;
    csn_session *s = r->s;
    csn_progress layers = {between_layers, r};
    r->layers = r->progress != NULL && r->progress->fn != NULL ? &layers : NULL;
    bool use_long = uses_long(s, (uint64_t)s->n_past + r->n);
    if (s->ids != NULL && s->n_state != s->n_past) {
        CSN_TRY(replay(s, use_long, r->layers, err));
    }
    while (r->n_done < r->n) {
        uint32_t n = r->n - r->n_done < s->n_ubatch ? r->n - r->n_done : s->n_ubatch;
        bool is_last = r->n_done + n == r->n;
        bool all = r->want_all || s->forward.ops.tap != NULL;
        uint64_t row0 = all ? 0 : is_last ? n - 1 : n;
        r->n_batch = n;
        CSN_TRY(forward(s, r->ids + r->n_done, s->n_past + r->n_done, n, row0, use_long, r->layers,
                        err));
        if (r->want_all) {
            CSN_TRY(all_rows(r, r->n_done, n, err));
        } else if (is_last) {
            CSN_TRY(csn_forward_logits(&s->forward, n - 1, 1, s->logits, r->layers, err));
        }
        r->n_done += n;
        r->n_share = 0;
    }
    return csn_progress_tell(r->progress, "tokens", r->n, r->n, err);
}

caisson_status csn_session_eval(csn_session *s, const int32_t *ids, uint32_t n, bool want_all,
                                csn_row_fn on_row, void *ctx, const csn_progress *progress,
                                caisson_error *err) {
    CSN_TRY(check(s, ids, n, err));
    uint64_t rows = !want_all ? 1 : on_row == NULL ? n : n < CSN_LOGIT_ROWS ? n : CSN_LOGIT_ROWS;
    CSN_TRY(reserve_rows(s, rows, err));
    struct request r = {.s = s,
                        .ids = ids,
                        .n = n,
                        .want_all = want_all,
                        .on_row = on_row,
                        .ctx = ctx,
                        .progress = progress};
    s->n_rows = 0;
    csn_store *store = csn_model_store(s->model);
    CSN_TRY(csn_store_guarded(store, run, &r, err));
    if (csn_store_stream(store) != NULL) {
        csn_stream_watch(csn_store_stream(store));
    }
    if (s->ids != NULL) {
        memcpy(s->ids + s->n_past, ids, n * sizeof(*ids));
    }
    advance(s, n);
    s->n_rows = want_all && on_row != NULL ? 0 : rows;
    return CAISSON_OK;
}

const float *csn_session_logits(const csn_session *s, uint32_t i) {
    return i < s->n_rows ? s->logits + (uint64_t)i * s->now->plan->vocab : NULL;
}
