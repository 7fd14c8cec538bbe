/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: encode, decode, decode as a stream. */
#include "caisson/text.h"

#include "api_internal.h"
#include "base/alloc.h"

enum { MAX_TEXT = 1 << 30 };
static const unsigned all_flags =
    CAISSON_TOKENIZE_ADD_SPECIAL | CAISSON_TOKENIZE_PARSE_SPECIAL | CAISSON_TOKENIZE_PROMPT;

caisson_status caisson_model_tokenize(const caisson_model *m, const char *text, size_t n,
                                      unsigned flags, caisson_ids *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(m != NULL && ret != NULL && (text != NULL || n == 0), err,
                 "model, text and ret must not be NULL");
    CSN_API_NEED(n <= MAX_TEXT, err, "text is longer than 1 GiB");
    CSN_API_NEED((flags & ~all_flags) == 0, err, "flags has a bit that is no CAISSON_TOKENIZE_*");
    if (m->tokenizer == NULL) {
        return csn_api_no_tokenizer(m, err);
    }
    csn_ids ids = {0};
    csn_str s = csn_str_make(text != NULL ? text : "", n);
    caisson_status status = CAISSON_OK;
    if (flags & CAISSON_TOKENIZE_PROMPT) {
        unsigned char *trusted;
        status = CSN_NEW(n + 1, &trusted, err);
        if (status == CAISSON_OK) {
            memset(trusted, 1, n + 1);
            status = csn_tokenizer_encode_marked(m->tokenizer, s, trusted, CSN_ENC_SPECIAL_TOKENS,
                                                 &ids, err);
            csn_free(trusted);
        }
    } else {
        unsigned f = (flags & CAISSON_TOKENIZE_ADD_SPECIAL ? CSN_ENC_SPECIAL_TOKENS : 0u) |
                     (flags & CAISSON_TOKENIZE_PARSE_SPECIAL ? CSN_ENC_PARSE_SPECIAL : 0u);
        status = csn_tokenizer_encode(m->tokenizer, s, f, &ids, err);
    }
    if (status != CAISSON_OK) {
        csn_ids_free(&ids);
        return status;
    }
    *ret = (caisson_ids){ids.id, ids.n};
    return CAISSON_OK;
}

caisson_status caisson_model_detokenize(const caisson_model *m, const int32_t *ids, size_t n,
                                        bool skip_special, caisson_text *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(m != NULL && ret != NULL && (ids != NULL || n == 0), err,
                 "model, ids and ret must not be NULL");
    if (m->tokenizer == NULL) {
        return csn_api_no_tokenizer(m, err);
    }
    csn_buf buf = CSN_BUF_INIT(MAX_TEXT);
    caisson_status status = csn_tokenizer_decode(m->tokenizer, ids, n, skip_special, &buf, err);
    if (status == CAISSON_OK) {
        status = csn_buf_reserve(&buf, 1, err); /* an empty text is not NULL */
    }
    if (status != CAISSON_OK) {
        csn_buf_free(&buf);
        return status;
    }
    *ret = csn_api_take_text(&buf);
    return CAISSON_OK;
}

struct caisson_stream {
    csn_detok *detok;
    csn_buf piece;
};

caisson_status caisson_stream_new(const caisson_model *m, bool skip_special, caisson_stream **ret,
                                  caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(m != NULL && ret != NULL, err, "model and ret must not be NULL");
    if (m->tokenizer == NULL) {
        return csn_api_no_tokenizer(m, err);
    }
    caisson_stream *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->piece = CSN_BUF_INIT(MAX_TEXT);
    caisson_status status = csn_detok_new(m->tokenizer, skip_special, &s->detok, err);
    if (status != CAISSON_OK) {
        csn_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

static void hand_out(caisson_stream *s, const char **ret_ptr, size_t *ret_n) {
    csn_str view = csn_buf_view(&s->piece);
    *ret_ptr = view.ptr;
    *ret_n = view.len;
}

caisson_status caisson_stream_feed(caisson_stream *s, int32_t id, const char **ret_ptr,
                                   size_t *ret_n, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && ret_ptr != NULL && ret_n != NULL, err,
                 "stream, ret_ptr and ret_n must not be NULL");
    s->piece.len = 0;
    CSN_TRY(csn_detok_feed(s->detok, id, &s->piece, err));
    hand_out(s, ret_ptr, ret_n);
    return CAISSON_OK;
}

caisson_status caisson_stream_flush(caisson_stream *s, const char **ret_ptr, size_t *ret_n,
                                    caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(s != NULL && ret_ptr != NULL && ret_n != NULL, err,
                 "stream, ret_ptr and ret_n must not be NULL");
    s->piece.len = 0;
    CSN_TRY(csn_detok_flush(s->detok, &s->piece, err));
    hand_out(s, ret_ptr, ret_n);
    return CAISSON_OK;
}

void caisson_stream_free(caisson_stream *s) {
    if (s != NULL) {
        csn_detok_free(s->detok);
        csn_buf_free(&s->piece);
        csn_free(s);
    }
}

bool caisson_model_token(const caisson_model *m, int32_t id, const char **ret_ptr, size_t *ret_n) {
    csn_str text;
    if (m->tokenizer == NULL || !csn_tokenizer_token(m->tokenizer, id, &text)) {
        return false;
    }
    *ret_ptr = text.ptr;
    *ret_n = text.len;
    return true;
}

bool caisson_model_has_tokenizer(const caisson_model *m) {
    return m->tokenizer != NULL;
}

bool caisson_model_has_template(const caisson_model *m) {
    return m->has_template;
}

int32_t caisson_model_bos(const caisson_model *m) {
    return m->tokenizer != NULL ? csn_tokenizer_bos(m->tokenizer) : -1;
}

bool caisson_model_is_eos(const caisson_model *m, int32_t id) {
    for (size_t i = 0; i < m->eos.n; i++) {
        if (m->eos.id[i] == id) {
            return true;
        }
    }
    return false;
}
