/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer.json from its bytes to a tokenizer, and the way of a text through its parts. */
#include "text/tokenizer/tokenizer.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

caisson_status csn_ids_push(csn_ids *ids, int32_t id, caisson_error *err) {
    if (ids->n == ids->cap) {
        size_t cap = ids->cap == 0 ? 64 : ids->cap * 2;
        CSN_TRY(CSN_GROW(&ids->id, cap, err));
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return CAISSON_OK;
}

void csn_ids_free(csn_ids *ids) {
    csn_free(ids->id);
    *ids = (csn_ids){0};
}

/* ---- load ---- */

/* Who reads a member given twice would read the first; the package the last: refused. */
static caisson_status check_members(const csn_jval *root, caisson_error *err) {
    static const char *const known[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder",    "model"};
    enum { N_KNOWN = sizeof(known) / sizeof(known[0]) };
    unsigned seen = 0;
    if (csn_jval_kind(root) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "", "tokenizer.json is not an object",
                            (csn_str){0});
    }
    for (csn_jiter it = csn_jval_iter(root); csn_jiter_next(&it);) {
        for (unsigned i = 0; i < N_KNOWN; i++) {
            if (!csn_str_is(it.key, known[i])) {
                continue;
            }
            if ((seen >> i & 1) != 0) {
                return csn_tok_fail(err, CAISSON_E_PARSE, known[i], "member is given twice",
                                    (csn_str){0});
            }
            seen |= 1u << i;
        }
    }
    csn_str version;
    bool has_version;
    CSN_TRY(csn_tok_opt_str(root, "", "version", &version, &has_version, err));
    if (has_version && !csn_str_is(version, "1.0")) {
        return csn_tok_fail(err, CAISSON_E_VERSION, "version", "tokenizer.json is not version 1.0",
                            version);
    }
    return CAISSON_OK;
}

static caisson_status index_ids(csn_tokenizer *t, caisson_error *err) {
    t->n_vocab = t->model.vocab.n_ids;
    for (size_t i = 0; i < t->added.n_tokens; i++) {
        uint32_t next = (uint32_t)t->added.tokens[i].id + 1;
        t->n_vocab = next > t->n_vocab ? next : t->n_vocab;
    }
    CSN_TRY(CSN_ARENA_NEW(&t->arena, (size_t)t->n_vocab + 1, &t->added_of, err));
    CSN_TRY(CSN_ARENA_NEW(&t->arena, (size_t)t->n_vocab + 1, &t->skip, err));
    for (size_t i = 0; i < t->added.n_tokens; i++) {
        t->added_of[t->added.tokens[i].id] = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < t->added.n_tokens; i++) {
        const csn_added_token *a = &t->added.tokens[i];
        uint32_t cp;
        bool is_char = csn_utf8_decode(a->content, 0, &cp) == a->content.len; /* plain text, too */
        if (a->special && !is_char) {
            if (t->control == NULL) {
                CSN_TRY(CSN_ARENA_NEW(&t->arena, (size_t)t->n_vocab + 1, &t->control, err));
            }
            t->control[a->id] = 1;
        }
    }
    /* Left out when decoding: a token whose decoded text is that of a special token. */
    for (size_t i = 0; i < t->added.n_tokens; i++) {
        const csn_added_token *a = &t->added.tokens[i];
        const csn_added_token *same = csn_added_by_text(&t->added, a->matched);
        t->skip[a->id] = same != NULL && same->special;
    }
    return CAISSON_OK;
}

static caisson_status check_around(const csn_tokenizer *t, const int32_t *id, size_t n,
                                   caisson_error *err) {
    for (size_t i = 0; i < n; i++) {
        csn_str s;
        if (!csn_tokenizer_token(t, id[i], &s)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer",
                            .tensor = CSN_STR("post_processor"),
                            .what = "special token's id is not in the vocabulary",
                            CSN_VALUES(t->n_vocab - 1, id[i]));
        }
    }
    return CAISSON_OK;
}

static caisson_status load_parts(csn_tokenizer *t, const csn_jval *root, caisson_error *err) {
    csn_arena *arena = &t->arena;
    CSN_TRY(check_members(root, err));
    CSN_TRY(csn_tok_model_load(&t->model, arena, csn_jval_get(root, "model"), err));
    CSN_TRY(csn_normalizer_load(&t->normalizer, arena, csn_jval_get(root, "normalizer"), err));
    CSN_TRY(
        csn_pretokenizer_load(&t->pretokenizer, arena, csn_jval_get(root, "pre_tokenizer"), err));
    CSN_TRY(csn_added_load(&t->added, arena, &t->model, &t->normalizer,
                           csn_jval_get(root, "added_tokens"), err));
    CSN_TRY(csn_postprocessor_load(&t->post, arena, csn_jval_get(root, "post_processor"), err));
    CSN_TRY(csn_decoder_load(&t->decoder, arena, csn_jval_get(root, "decoder"), err));
    CSN_TRY(index_ids(t, err));
    CSN_TRY(check_around(t, t->post.before, t->post.n_before, err));
    return check_around(t, t->post.after, t->post.n_after, err);
}

caisson_status csn_tokenizer_load(csn_str json, csn_tokenizer **ret, caisson_error *err) {
    if (json.len > CAISSON_MAX_TOKENIZER_BYTES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer", .what = "file is too long",
                        CSN_VALUES(CAISSON_MAX_TOKENIZER_BYTES, json.len));
    }
    csn_json *doc;
    caisson_status status = csn_json_parse(json, 0, &doc, err);
    if (status != CAISSON_OK) {
        csn_error_section(err, "tokenizer");
        return status;
    }
    csn_tokenizer *t = NULL;
    status = CSN_NEW(1, &t, err);
    if (status == CAISSON_OK) {
        status = load_parts(t, csn_json_root(doc), err);
    }
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_tokenizer_free(t);
        return status;
    }
    *ret = t;
    return CAISSON_OK;
}

void csn_tokenizer_free(csn_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    csn_tok_model_done(&t->model);
    csn_normalizer_done(&t->normalizer);
    csn_pretokenizer_done(&t->pretokenizer);
    csn_added_done(&t->added);
    csn_decoder_done(&t->decoder);
    csn_arena_done(&t->arena);
    csn_free(t);
}

/* ---- encode ---- */

typedef struct encoder {
    const csn_tokenizer *t;
    bool special_ok;
    csn_norm_scratch norm;
    csn_pre_scratch pre;
    csn_model_scratch model;
    csn_ids *out;
    caisson_error *err;
} encoder;

/* A stretch of normalised text without added tokens. origin: where its bytes came from, or NULL. */
static caisson_status encode_rest(encoder *e, csn_str text, const uint32_t *origin, bool is_first) {
    if (text.len == 0) {
        return CAISSON_OK;
    }
    csn_str cut;
    CSN_TRY(
        csn_pretokenizer_run(&e->t->pretokenizer, &e->pre, text, origin, is_first, &cut, e->err));
    for (size_t i = 0; i < e->pre.pieces.n; i++) {
        const csn_piece *p = &e->pre.pieces.at[i];
        csn_str piece = csn_str_make(cut.ptr + p->start, p->end - p->start);
        CSN_TRY(csn_tok_model_encode(&e->t->model, &e->model, piece, e->out, e->err));
    }
    return CAISSON_OK;
}

/* A stretch of raw text between added tokens; it starts at byte `at` of the whole. */
static caisson_status encode_stretch(encoder *e, csn_str raw, size_t at, const uint8_t *trust) {
    const csn_tokenizer *t = e->t;
    csn_str text = raw;
    const uint32_t *origin = NULL;
    if (t->normalizer.n_steps > 0) {
        csn_ntext *n = &e->norm.a;
        csn_ntext_clear(n);
        n->is_mapped = (at == 0 && t->pretokenizer.needs_origin) ||
                       (trust != NULL && t->added.has_normalized_special);
        if (n->is_mapped) {
            for (size_t i = 0; i < raw.len;) { /* a byte stems from its character's start */
                uint32_t cp;
                size_t k = csn_utf8_decode(raw, i, &cp);
                k = k == 0 ? 1 : k;
                for (size_t j = i; j < i + k; j++) {
                    CSN_TRY(csn_ntext_put(n, csn_str_make(raw.ptr + j, 1), (uint32_t)i,
                                          trust != NULL ? trust[j] : 0, e->err));
                }
                i += k;
            }
        } else {
            CSN_TRY(csn_ntext_put(n, raw, 0, 0, e->err));
        }
        CSN_TRY(csn_normalizer_run(&t->normalizer, &e->norm, e->err));
        text = csn_buf_view(&e->norm.a.text);
        if (e->norm.a.is_mapped) {
            origin = e->norm.a.origin;
            trust = trust != NULL ? e->norm.a.trust : NULL;
        }
    }
    size_t search = 0;
    size_t done = 0;
    for (;;) {
        size_t start = 0;
        size_t end = 0;
        const csn_added_token *a = csn_added_find(&t->added, &t->added.normalized, text, trust,
                                                  e->special_ok, &search, done, &start, &end);
        size_t stop = a == NULL ? text.len : start;
        if (stop > done) {
            bool is_first = at == 0 && (origin != NULL ? origin[done] == 0 : done == 0);
            CSN_TRY(encode_rest(e, csn_str_make(text.ptr + done, stop - done),
                                origin != NULL ? origin + done : NULL, is_first));
        }
        if (a == NULL) {
            return CAISSON_OK;
        }
        CSN_TRY(csn_ids_push(e->out, a->id, e->err));
        done = end;
    }
}

static caisson_status encode_text(encoder *e, csn_str text, const uint8_t *trust) {
    const csn_added *added = &e->t->added;
    size_t search = 0;
    size_t done = 0;
    for (;;) {
        size_t start = 0;
        size_t end = 0;
        const csn_added_token *a = csn_added_find(added, &added->raw, text, trust, e->special_ok,
                                                  &search, done, &start, &end);
        size_t stop = a == NULL ? text.len : start;
        if (stop > done) {
            CSN_TRY(encode_stretch(e, csn_str_make(text.ptr + done, stop - done), done,
                                   trust != NULL ? trust + done : NULL));
        }
        if (a == NULL) {
            return CAISSON_OK;
        }
        CSN_TRY(csn_ids_push(e->out, a->id, e->err));
        done = end;
    }
}

static caisson_status put_around(csn_ids *out, const int32_t *id, size_t n, caisson_error *err) {
    for (size_t i = 0; i < n; i++) {
        CSN_TRY(csn_ids_push(out, id[i], err));
    }
    return CAISSON_OK;
}

static bool begins_with(const csn_ids *ids, size_t from, const int32_t *id, size_t n) {
    return ids->n - from >= n && memcmp(ids->id + from, id, n * sizeof(*id)) == 0;
}

/* is_prompt: what goes before the text is left out when it begins with that, and what goes behind
 * it (an end of text) is left out always: the model is to write on. */
static caisson_status encode_whole(const csn_tokenizer *t, csn_str text, const uint8_t *trust,
                                   unsigned flags, bool is_prompt, csn_ids *out,
                                   caisson_error *err) {
    if (text.len > CSN_TOK_MAX_TEXT) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer", .what = "text is too long",
                        CSN_VALUES(CSN_TOK_MAX_TEXT, text.len));
    }
    encoder e = {
        .t = t, .special_ok = (flags & CSN_ENC_PARSE_SPECIAL) != 0, .out = out, .err = err};
    e.model.text.max = CSN_TOK_MAX_TEXT;
    /* Where text may not spell control tokens, the model may not make them either: vocabularies of
     * Unigram, and of BPE with ignore_merges, can hold them as ordinary entries. */
    e.model.banned = trust != NULL || !e.special_ok ? t->control : NULL;
    size_t from = out->n;
    bool around = (flags & CSN_ENC_SPECIAL_TOKENS) != 0;
    caisson_status status = CAISSON_OK;
    if (around) {
        status = put_around(out, t->post.before, t->post.n_before, err);
    }
    size_t body = out->n;
    if (status == CAISSON_OK) {
        status = encode_text(&e, text, trust);
    }
    if (status == CAISSON_OK && around && is_prompt && t->post.n_before > 0 &&
        begins_with(out, body, t->post.before, t->post.n_before)) {
        size_t n = t->post.n_before;
        memmove(out->id + from, out->id + body, (out->n - body) * sizeof(*out->id));
        out->n -= n;
    }
    if (status == CAISSON_OK && around && !is_prompt) {
        status = put_around(out, t->post.after, t->post.n_after, err);
    }
    csn_norm_scratch_done(&e.norm);
    csn_pre_scratch_done(&e.pre);
    csn_model_scratch_done(&e.model);
    if (status != CAISSON_OK) {
        out->n = from; /* failure touches no output */
    }
    return status;
}

caisson_status csn_tokenizer_encode(const csn_tokenizer *t, csn_str text, unsigned flags,
                                    csn_ids *out, caisson_error *err) {
    if (csn_utf8_valid(text, NULL)) {
        return encode_whole(t, text, NULL, flags, false, out, err);
    }
    csn_buf clean = CSN_BUF_INIT(CSN_TOK_MAX_TEXT);
    caisson_status status = csn_utf8_append_lossy(&clean, text, err);
    if (status == CAISSON_OK) {
        status = encode_whole(t, csn_buf_view(&clean), NULL, flags, false, out, err);
    }
    csn_buf_free(&clean);
    return status;
}

caisson_status csn_tokenizer_encode_marked(const csn_tokenizer *t, csn_str text,
                                           const uint8_t *trusted, unsigned flags, csn_ids *out,
                                           caisson_error *err) {
    size_t bad = 0;
    if (!csn_utf8_valid(text, &bad)) { /* a rendering is UTF-8: its marks would no longer fit */
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "tokenizer", .what = "text is not UTF-8",
                        CSN_AT(bad));
    }
    return encode_whole(t, text, trusted, flags, true, out, err);
}

/* ---- look-ups ---- */

static const csn_added_token *added_of(const csn_tokenizer *t, int32_t id) {
    return id < 0 || (uint32_t)id >= t->n_vocab || t->added_of[id] == 0
               ? NULL
               : &t->added.tokens[t->added_of[id] - 1];
}

bool csn_tokenizer_token(const csn_tokenizer *t, int32_t id, csn_str *ret) {
    const csn_added_token *a = added_of(t, id);
    if (a != NULL) {
        *ret = a->content;
        return true;
    }
    if (!csn_vocab_has(&t->model.vocab, id)) {
        return false;
    }
    *ret = csn_vocab_text(&t->model.vocab, (uint32_t)id);
    return true;
}

bool csn_tok_decode_text(const csn_tokenizer *t, int32_t id, csn_str *ret) {
    const csn_added_token *a = added_of(t, id);
    if (a != NULL) {
        *ret = a->matched;
        return true;
    }
    return csn_tokenizer_token(t, id, ret);
}

bool csn_tokenizer_id(const csn_tokenizer *t, csn_str token, int32_t *ret) {
    const csn_added_token *a = csn_added_by_text(&t->added, token);
    int32_t id = a != NULL ? a->id : csn_vocab_find(&t->model.vocab, token.ptr, token.len);
    if (id < 0) {
        return false;
    }
    *ret = id;
    return true;
}

bool csn_tokenizer_is_special(const csn_tokenizer *t, int32_t id) {
    const csn_added_token *a = added_of(t, id);
    return a != NULL && a->special;
}

int32_t csn_tokenizer_bos(const csn_tokenizer *t) {
    return t->post.n_before > 0 ? t->post.before[0] : -1;
}
