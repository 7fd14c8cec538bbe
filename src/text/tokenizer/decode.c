/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders, as a chain of filters that tokens flow through one by one. A whole decode is the stream
 * with all ids fed and flushed, so the two cannot differ.
 *
 * Behind Fuse and ByteLevel the text is one token to the package; here its parts flow on, and a
 * step there works on the whole text through its own state. Steps that could not are refused at
 * load. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

/* ---- load ---- */

static bool is_one_char(csn_str s) {
    uint32_t cp;
    return s.len > 0 && csn_utf8_decode(s, 0, &cp) == s.len;
}

static caisson_status load_strip(csn_dec_step *step, const csn_jval *v, caisson_error *err) {
    step->kind = CSN_DEC_STRIP;
    CSN_TRY(csn_tok_char(v, "decoder", "content", &step->cp, err));
    if (!csn_jval_u64(csn_jval_get(v, "start"), &step->strip_start) ||
        !csn_jval_u64(csn_jval_get(v, "stop"), &step->strip_stop)) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "decoder.start", "start or stop is not a number",
                            (csn_str){0});
    }
    return CAISSON_OK;
}

static caisson_status load_metaspace(csn_dec_step *step, const csn_jval *v, caisson_error *err) {
    csn_str scheme;
    bool is_present;
    bool add_prefix;
    step->kind = CSN_DEC_METASPACE;
    CSN_TRY(csn_tok_char(v, "decoder", "replacement", &step->cp, err));
    CSN_TRY(csn_tok_opt_str(v, "decoder", "prepend_scheme", &scheme, &is_present, err));
    CSN_TRY(csn_tok_bool(v, "decoder", "add_prefix_space", true, &add_prefix, err));
    step->drop_first = add_prefix && !csn_str_is(scheme, "never");
    return CAISSON_OK;
}

static caisson_status load_replace(csn_dec_step *step, csn_arena *arena, const csn_jval *v,
                                   caisson_error *err) {
    csn_str s;
    step->kind = CSN_DEC_REPLACE;
    CSN_TRY(csn_pattern_load(&step->pattern, arena, csn_jval_get(v, "pattern"), "decoder.pattern",
                             err));
    CSN_TRY(csn_tok_str(v, "decoder", "content", &s, err));
    CSN_TRY(csn_arena_str(arena, s, &step->content, err));
    if (step->in_text && !is_one_char(step->pattern.literal)) {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "decoder.pattern",
                            "Replace of more than one character behind Fuse", (csn_str){0});
    }
    return CAISSON_OK;
}

static caisson_status load_step(csn_dec_step *step, csn_arena *arena, const csn_jval *v,
                                csn_str type, caisson_error *err) {
    csn_str s;
    bool is_per_token = false; /* means something else behind Fuse, which nobody writes */
    if (csn_str_is(type, "ByteLevel")) {
        step->kind = CSN_DEC_BYTE_LEVEL;
        is_per_token = true;
    } else if (csn_str_is(type, "ByteFallback")) {
        step->kind = CSN_DEC_BYTE_FALLBACK;
        is_per_token = true;
    } else if (csn_str_is(type, "Fuse")) {
        step->kind = CSN_DEC_FUSE;
    } else if (csn_str_is(type, "Metaspace")) {
        CSN_TRY(load_metaspace(step, v, err));
    } else if (csn_str_is(type, "Strip")) {
        CSN_TRY(load_strip(step, v, err));
    } else if (csn_str_is(type, "Replace")) {
        CSN_TRY(load_replace(step, arena, v, err));
    } else if (csn_str_is(type, "BPEDecoder")) {
        step->kind = CSN_DEC_BPE;
        is_per_token = true;
        CSN_TRY(csn_tok_str(v, "decoder", "suffix", &s, err));
        CSN_TRY(csn_arena_str(arena, s, &step->content, err));
        if (s.len == 0) {
            return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "decoder.suffix", "suffix is empty", s);
        }
    } else {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "decoder.type", "decoder is not supported",
                            type);
    }
    return is_per_token && step->in_text
               ? csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "decoder",
                              "decoder is not supported behind Fuse or ByteLevel", type)
               : CAISSON_OK;
}

static caisson_status load_steps(csn_decoder *d, csn_arena *arena, const csn_jval *v, bool *in_text,
                                 caisson_error *err) {
    csn_str type;
    CSN_TRY(csn_tok_type(v, "decoder", &type, err));
    if (csn_str_is(type, "Sequence")) {
        const csn_jval *list = csn_jval_get(v, "decoders");
        if (csn_jval_kind(list) != CSN_JSON_ARRAY) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "decoder.decoders", "not an array",
                                (csn_str){0});
        }
        for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
            CSN_TRY(load_steps(d, arena, it.value, in_text, err));
        }
        return CAISSON_OK;
    }
    if (d->n_steps >= CSN_TOK_MAX_STEPS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer", .tensor = CSN_STR("decoder"),
                        .what = "too many steps", CSN_VALUES(CSN_TOK_MAX_STEPS, d->n_steps + 1));
    }
    csn_dec_step *step = &d->steps[d->n_steps++];
    step->in_text = *in_text;
    CSN_TRY(load_step(step, arena, v, type, err));
    *in_text = *in_text || step->kind == CSN_DEC_FUSE || step->kind == CSN_DEC_BYTE_LEVEL;
    return CAISSON_OK;
}

caisson_status csn_decoder_load(csn_decoder *d, csn_arena *arena, const csn_jval *v,
                                caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    CSN_TRY(CSN_ARENA_NEW(arena, CSN_TOK_MAX_STEPS, &d->steps, err));
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        d->steps[d->n_steps++].kind = CSN_DEC_SPACES;
        return CAISSON_OK;
    }
    bool in_text = false;
    return load_steps(d, arena, v, &in_text, err);
}

void csn_decoder_done(csn_decoder *d) {
    for (size_t i = 0; i < d->n_steps; i++) {
        csn_pattern_done(&d->steps[i].pattern);
    }
}

/* ---- the stream ---- */

typedef struct stage {
    csn_buf held;    /* BYTE_LEVEL, BYTE_FALLBACK: bytes; BPE: the last token */
    csn_buf work;    /* what the step makes of one token */
    uint64_t n_seen; /* tokens so far; STRIP in text: characters cut at the start */
    uint64_t n_held; /* STRIP in text: characters at the end that may yet be cut */
    bool is_past;    /* STRIP in text: past the start */
} stage;

struct csn_detok {
    const csn_tokenizer *t;
    bool skip_special;
    csn_regex_scratch *regex;
    stage *stages; /* [n_steps] */
};

caisson_status csn_detok_new(const csn_tokenizer *t, bool skip_special, csn_detok **ret,
                             caisson_error *err) {
    csn_detok *d;
    CSN_TRY(CSN_NEW(1, &d, err));
    d->t = t;
    d->skip_special = skip_special;
    caisson_status status = CSN_NEW(t->decoder.n_steps, &d->stages, err);
    if (status != CAISSON_OK) {
        csn_detok_free(d);
        return status;
    }
    for (size_t i = 0; i < t->decoder.n_steps; i++) {
        d->stages[i].held.max = d->stages[i].work.max = CSN_TOK_MAX_TEXT;
    }
    *ret = d;
    return CAISSON_OK;
}

void csn_detok_free(csn_detok *d) {
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; d->stages != NULL && i < d->t->decoder.n_steps; i++) {
        csn_buf_free(&d->stages[i].held);
        csn_buf_free(&d->stages[i].work);
    }
    csn_regex_scratch_free(d->regex);
    csn_free(d->stages);
    csn_free(d);
}

/* Hands a token (in text: a part) to step i and what follows it. Recursion is as deep as there are
 * steps: CSN_TOK_MAX_STEPS at most. */
static caisson_status push(csn_detok *d, size_t i, csn_str token, csn_buf *out, caisson_error *err);

static caisson_status push_byte_level(csn_detok *d, size_t i, csn_str token, csn_buf *out,
                                      caisson_error *err) {
    stage *s = &d->stages[i];
    size_t start = s->held.len;
    for (size_t p = 0; p < token.len;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(token, p, &cp);
        int byte = k == 0 ? -1 : csn_bytelevel_byte(cp);
        if (byte < 0) { /* not of the alphabet: the token stands for itself */
            s->held.len = start;
            CSN_TRY(csn_buf_str(&s->held, token, err));
            break;
        }
        CSN_TRY(csn_buf_char(&s->held, (char)byte, err));
        p += k;
    }
    size_t n = csn_utf8_complete(csn_buf_view(&s->held));
    s->work.len = 0;
    CSN_TRY(csn_utf8_append_lossy(&s->work, csn_str_make(s->held.ptr, n), err));
    if (n > 0) {
        memmove(s->held.ptr, s->held.ptr + n, s->held.len - n);
        s->held.len -= n;
    }
    return push(d, i + 1, csn_buf_view(&s->work), out, err);
}

static int hex_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "<0xNN>" -> NN. The package's number reader takes a plus sign for the first digit. */
static int byte_of(csn_str s) {
    if (s.len != 6 || !csn_str_starts(s, CSN_STR("<0x")) || s.ptr[5] != '>') {
        return -1;
    }
    int hi = s.ptr[3] == '+' ? 0 : hex_value(s.ptr[3]);
    int lo = hex_value(s.ptr[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static caisson_status flush_bytes(csn_detok *d, size_t i, csn_buf *out, caisson_error *err) {
    stage *s = &d->stages[i];
    csn_str bytes = csn_buf_view(&s->held);
    if (bytes.len == 0) {
        return CAISSON_OK;
    }
    if (csn_utf8_valid(bytes, NULL)) {
        CSN_TRY(push(d, i + 1, bytes, out, err));
    } else {
        for (size_t k = 0; k < bytes.len; k++) { /* all of them, also those that were fine */
            CSN_TRY(push(d, i + 1, CSN_STR("\xef\xbf\xbd"), out, err));
        }
    }
    s->held.len = 0;
    return CAISSON_OK;
}

static caisson_status push_metaspace(csn_detok *d, size_t i, csn_str token, csn_buf *out,
                                     caisson_error *err) {
    const csn_dec_step *step = &d->t->decoder.steps[i];
    stage *s = &d->stages[i];
    bool is_first = step->in_text || s->n_seen++ == 0;
    s->work.len = 0;
    for (size_t p = 0; p < token.len;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(token, p, &cp);
        k = k == 0 ? 1 : k;
        if (cp != step->cp) {
            CSN_TRY(csn_buf_append(&s->work, token.ptr + p, k, err));
        } else if (!is_first || !step->drop_first) {
            CSN_TRY(csn_buf_char(&s->work, ' ', err));
        }
        p += k;
    }
    return push(d, i + 1, csn_buf_view(&s->work), out, err);
}

static caisson_status push_replace(csn_detok *d, size_t i, csn_str token, csn_buf *out,
                                   caisson_error *err) {
    const csn_dec_step *step = &d->t->decoder.steps[i];
    stage *s = &d->stages[i];
    s->work.len = 0;
    size_t done = 0;
    csn_pattern_iter it = CSN_PATTERN_ITER;
    while (token.len > 0) {
        bool found;
        size_t start = 0;
        size_t end = 0;
        CSN_TRY(csn_pattern_next(&step->pattern, &d->regex, token, &it, &found, &start, &end, err));
        if (!found) {
            break;
        }
        CSN_TRY(csn_buf_append(&s->work, token.ptr + done, start - done, err));
        CSN_TRY(csn_buf_str(&s->work, step->content, err));
        done = end;
    }
    CSN_TRY(csn_buf_append(&s->work, token.ptr + done, token.len - done, err));
    return push(d, i + 1, csn_buf_view(&s->work), out, err);
}

/* Strip of one token: at most start characters in front, stop at the end. */
static csn_str strip_token(const csn_dec_step *step, csn_str token) {
    size_t lo = 0;
    size_t hi = token.len;
    uint32_t cp;
    for (uint64_t n = 0; n < step->strip_start && lo < hi; n++) {
        size_t k = csn_utf8_decode(token, lo, &cp);
        if (k == 0 || cp != step->cp) {
            break;
        }
        lo += k;
    }
    for (uint64_t n = 0; n < step->strip_stop && hi > lo; n++) {
        size_t p = hi - 1;
        while (p > lo && ((unsigned char)token.ptr[p] & 0xc0) == 0x80) {
            p--;
        }
        if (csn_utf8_decode(token, p, &cp) == 0 || cp != step->cp) {
            break;
        }
        hi = p;
    }
    return csn_str_make(token.ptr + lo, hi - lo);
}

static caisson_status put_held(const csn_dec_step *step, stage *s, caisson_error *err) {
    char utf8[4];
    size_t k = csn_utf8_encode(step->cp, utf8);
    for (; s->n_held > 0; s->n_held--) {
        CSN_TRY(csn_buf_append(&s->work, utf8, k, err));
    }
    return CAISSON_OK;
}

/* Strip of the whole text, part by part: what may be the end is held back. */
static caisson_status push_strip_text(csn_detok *d, size_t i, csn_str part, csn_buf *out,
                                      caisson_error *err) {
    const csn_dec_step *step = &d->t->decoder.steps[i];
    stage *s = &d->stages[i];
    s->work.len = 0;
    for (size_t p = 0; p < part.len;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(part, p, &cp);
        k = k == 0 ? 1 : k;
        csn_str c = csn_str_make(part.ptr + p, k);
        p += k;
        bool is_content = cp == step->cp;
        if (!s->is_past && is_content && s->n_seen < step->strip_start) {
            s->n_seen++;
            continue;
        }
        s->is_past = true;
        if (is_content && s->n_held < step->strip_stop) {
            s->n_held++;
            continue;
        }
        if (!is_content) {
            CSN_TRY(put_held(step, s, err));
        }
        CSN_TRY(csn_buf_str(&s->work, c, err));
    }
    return push(d, i + 1, csn_buf_view(&s->work), out, err);
}

/* BPEDecoder: the suffix of a word becomes a blank, in the last token nothing. */
static caisson_status give_bpe(csn_detok *d, size_t i, bool is_last, csn_buf *out,
                               caisson_error *err) {
    const csn_dec_step *step = &d->t->decoder.steps[i];
    stage *s = &d->stages[i];
    csn_str token = csn_buf_view(&s->held);
    s->work.len = 0;
    size_t from = 0;
    for (;;) {
        size_t at = csn_str_find(token, step->content, from);
        size_t end = at == SIZE_MAX ? token.len : at;
        CSN_TRY(csn_buf_append(&s->work, token.ptr + from, end - from, err));
        if (at == SIZE_MAX) {
            break;
        }
        CSN_TRY(csn_buf_str(&s->work, is_last ? CSN_STR("") : CSN_STR(" "), err));
        from = at + step->content.len;
    }
    return push(d, i + 1, csn_buf_view(&s->work), out, err);
}

static caisson_status push(csn_detok *d, size_t i, csn_str token, csn_buf *out,
                           caisson_error *err) {
    if (i == d->t->decoder.n_steps) {
        return csn_buf_str(out, token, err);
    }
    const csn_dec_step *step = &d->t->decoder.steps[i];
    stage *s = &d->stages[i];
    switch (step->kind) {
    case CSN_DEC_BYTE_LEVEL: return push_byte_level(d, i, token, out, err);
    case CSN_DEC_BYTE_FALLBACK: {
        int byte = byte_of(token);
        if (byte >= 0) {
            return csn_buf_char(&s->held, (char)byte, err);
        }
        CSN_TRY(flush_bytes(d, i, out, err));
        return push(d, i + 1, token, out, err);
    }
    case CSN_DEC_METASPACE: return push_metaspace(d, i, token, out, err);
    case CSN_DEC_FUSE: return push(d, i + 1, token, out, err);
    case CSN_DEC_STRIP:
        return step->in_text ? push_strip_text(d, i, token, out, err)
                             : push(d, i + 1, strip_token(step, token), out, err);
    case CSN_DEC_REPLACE: return push_replace(d, i, token, out, err);
    case CSN_DEC_BPE:
        if (s->n_seen++ > 0) {
            CSN_TRY(give_bpe(d, i, false, out, err));
        }
        s->held.len = 0;
        return csn_buf_str(&s->held, token, err);
    case CSN_DEC_SPACES: break;
    }
    if (s->n_seen++ > 0) {
        CSN_TRY(push(d, i + 1, CSN_STR(" "), out, err));
    }
    return push(d, i + 1, token, out, err);
}

caisson_status csn_detok_feed(csn_detok *d, int32_t id, csn_buf *out, caisson_error *err) {
    if (id < 0) {
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "tokenizer", .what = "token id is negative");
    }
    csn_str text;
    if (!csn_tok_decode_text(d->t, id, &text) || (d->skip_special && d->t->skip[id] != 0)) {
        return CAISSON_OK;
    }
    return push(d, 0, text, out, err);
}

caisson_status csn_detok_flush(csn_detok *d, csn_buf *out, caisson_error *err) {
    for (size_t i = 0; i < d->t->decoder.n_steps; i++) {
        const csn_dec_step *step = &d->t->decoder.steps[i];
        stage *s = &d->stages[i];
        if (step->kind == CSN_DEC_BYTE_FALLBACK) {
            CSN_TRY(flush_bytes(d, i, out, err));
        } else if (step->kind == CSN_DEC_BYTE_LEVEL && s->held.len > 0) {
            s->work.len = 0;
            CSN_TRY(csn_utf8_append_lossy(&s->work, csn_buf_view(&s->held), err));
            s->held.len = 0;
            CSN_TRY(push(d, i + 1, csn_buf_view(&s->work), out, err));
        } else if (step->kind == CSN_DEC_BPE && s->n_seen > 0) {
            CSN_TRY(give_bpe(d, i, true, out, err));
        }
        s->n_seen = 0;
        s->n_held = 0;
        s->is_past = false;
    }
    return CAISSON_OK;
}

caisson_status csn_tokenizer_decode(const csn_tokenizer *t, const int32_t *ids, size_t n,
                                    bool skip_special, csn_buf *out, caisson_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_vocab) {
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "tokenizer",
                            .what = "token id is outside the vocabulary",
                            CSN_VALUES(t->n_vocab - 1, ids[i] < 0 ? 0 : ids[i]));
        }
    }
    csn_detok *d;
    size_t len = out->len;
    CSN_TRY(csn_detok_new(t, skip_special, &d, err));
    caisson_status status = CAISSON_OK;
    for (size_t i = 0; i < n && status == CAISSON_OK; i++) {
        status = csn_detok_feed(d, ids[i], out, err);
    }
    status = status == CAISSON_OK ? csn_detok_flush(d, out, err) : status;
    csn_detok_free(d);
    if (status != CAISSON_OK) {
        out->len = len; /* failure touches no output */
    }
    return status;
}
