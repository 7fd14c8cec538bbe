/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/generate.h"

#include "base/clock.h"
#include "engine/stop.h"

enum {
    MAX_HELD = 1 << 20
}; /* bytes held back: stop strings and one token's text are far shorter */

struct loop {
    csn_session *session;
    const csn_generate_options *o;
    csn_detok *detok;
    csn_buf held; /* text not told yet */
    csn_generate_result result;
    bool ended;
};

static caisson_status check(const csn_generate_options *o, caisson_error *err) {
    if (o->n_stop > CSN_MAX_STOPS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too many stop strings",
                        CSN_VALUES(CSN_MAX_STOPS, o->n_stop));
    }
    for (uint32_t i = 0; i < o->n_stop; i++) {
        if (o->stop[i].len > CSN_MAX_STOP_BYTES) {
            return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "stop string too long",
                            CSN_VALUES(CSN_MAX_STOP_BYTES, o->stop[i].len));
        }
    }
    return CAISSON_OK;
}

static void end(struct loop *l, csn_finish finish, int32_t id) {
    l->ended = true;
    l->result.finish = finish;
    l->result.last = id;
}

/* Hands the first n bytes of what is held to the caller. */
static void tell(struct loop *l, int32_t id, size_t n) {
    if (l->o->on_text != NULL &&
        !l->o->on_text(l->o->ctx, id, csn_str_make(csn_buf_view(&l->held).ptr, n)) && !l->ended) {
        end(l, CSN_FINISH_CALLER, id);
    }
    if (n > 0) {
        memmove(l->held.ptr, l->held.ptr + n, l->held.len - n);
        l->held.len -= n;
    }
}

static bool is_eos(const csn_generate_options *o, int32_t id) {
    for (uint32_t i = 0; i < o->n_eos; i++) {
        if (o->eos[i] == id) {
            return true;
        }
    }
    return false;
}

/* One sampled token: to text, past the stop strings, to the caller. */
static caisson_status take(struct loop *l, int32_t id, caisson_error *err) {
    const csn_generate_options *o = l->o;
    bool is_end = is_eos(o, id);
    if (is_end && !o->ignore_eos) {
        end(l, CSN_FINISH_EOS, id);
        return CAISSON_OK;
    }
    csn_sampler_accept(o->sampler, id);
    l->result.n_generated++;
    if (!is_end || o->show_special) { /* not every tokenizer calls its end tokens special */
        CSN_TRY(csn_detok_feed(l->detok, id, &l->held, err));
    }
    size_t n;
    if (csn_stop_find(csn_buf_view(&l->held), o->stop, o->n_stop, &n, &l->result.i_stop)) {
        end(l, CSN_FINISH_STOP, id);
        tell(l, id, n);
        l->held.len = 0;
        return CAISSON_OK;
    }
    tell(l, id, n);
    return CAISSON_OK;
}

static caisson_status decode(struct loop *l, caisson_error *err) {
    const csn_generate_options *o = l->o;
    while (!l->ended) {
        if (o->n_predict >= 0 && l->result.n_generated >= (uint64_t)o->n_predict) {
            end(l, CSN_FINISH_LENGTH, -1);
            break;
        }
        int32_t id;
        CSN_TRY(csn_sampler_pick(o->sampler, csn_session_logits(l->session, 0), &id, err));
        if (l->result.first_token_ns == 0) {
            l->result.first_token_ns = csn_now_ns();
        }
        CSN_TRY(take(l, id, err));
        bool more = o->n_predict < 0 || l->result.n_generated < (uint64_t)o->n_predict;
        if (l->ended || !more) {
            continue;
        }
        if (csn_session_n_past(l->session) == csn_session_n_ctx(l->session)) {
            end(l, CSN_FINISH_CONTEXT, id);
            break;
        }
        CSN_TRY(csn_session_eval(l->session, &id, 1, false, NULL, NULL, o->progress, err));
        if (o->on_eval != NULL) {
            CSN_TRY(o->on_eval(o->ctx, err));
        }
    }
    return CAISSON_OK;
}

/* What was held back is text after all, unless its own end completes a stop string. */
static caisson_status flush(struct loop *l, caisson_error *err) {
    CSN_TRY(csn_detok_flush(l->detok, &l->held, err));
    size_t n;
    if (csn_stop_find(csn_buf_view(&l->held), l->o->stop, l->o->n_stop, &n, &l->result.i_stop)) {
        l->result.finish = CSN_FINISH_STOP;
    } else {
        n = l->held.len;
    }
    if (n > 0) {
        tell(l, -1, n);
    }
    return CAISSON_OK;
}

static caisson_status run(struct loop *l, caisson_error *err) {
    const csn_generate_options *o = l->o;
    CSN_TRY(csn_detok_new(o->tokenizer, !o->show_special, &l->detok, err));
    uint64_t t0 = csn_now_ns();
    CSN_TRY(
        csn_session_eval(l->session, o->prompt, o->n_prompt, false, NULL, NULL, o->progress, err));
    for (uint32_t i = 0; i < o->n_prompt; i++) {
        csn_sampler_accept(o->sampler, o->prompt[i]);
    }
    uint64_t t1 = csn_now_ns();
    l->result.n_prompt = o->n_prompt;
    l->result.prompt_ns = t1 - t0;
    caisson_status s = decode(l, err);
    l->result.decode_ns = csn_now_ns() - t1;
    CSN_TRY(s);
    return l->result.finish == CSN_FINISH_STOP || l->result.finish == CSN_FINISH_CALLER
               ? CAISSON_OK
               : flush(l, err);
}

caisson_status csn_generate(csn_session *session, const csn_generate_options *o,
                            csn_generate_result *ret, caisson_error *err) {
    CSN_TRY(check(o, err));
    struct loop l = {.session = session,
                     .o = o,
                     .held = CSN_BUF_INIT(MAX_HELD),
                     .result = {.finish = CSN_FINISH_CALLER, .last = -1}};
    caisson_status s = run(&l, err);
    csn_detok_free(l.detok);
    csn_buf_free(&l.held);
    if (s == CAISSON_OK || s == CAISSON_E_CANCELLED) {
        *ret = l.result;
    }
    return s;
}
