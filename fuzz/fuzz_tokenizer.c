/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a tokenizer.json and, behind the first NUL, a text: load, encode, decode whole and
 * as a stream, and compare the two. Untrusted text must form no special token. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_both(const csn_tokenizer *t, const csn_ids *ids) {
    caisson_error err;
    csn_buf whole = CSN_BUF_INIT(1 << 24);
    csn_buf stream = CSN_BUF_INIT(1 << 24);
    csn_detok *d;
    if (csn_tokenizer_decode(t, ids->id, ids->n, true, &whole, &err) == CAISSON_OK &&
        csn_detok_new(t, true, &d, &err) == CAISSON_OK) {
        caisson_status status = CAISSON_OK;
        for (size_t i = 0; i < ids->n && status == CAISSON_OK; i++) {
            status = csn_detok_feed(d, ids->id[i], &stream, &err);
        }
        if (status == CAISSON_OK && csn_detok_flush(d, &stream, &err) == CAISSON_OK &&
            (!csn_str_eq(csn_buf_view(&whole), csn_buf_view(&stream)) ||
             !csn_utf8_valid(csn_buf_view(&whole), NULL))) {
            abort();
        }
        csn_detok_free(d);
    }
    csn_buf_free(&whole);
    csn_buf_free(&stream);
}

static void encode_marked(const csn_tokenizer *t, csn_str text) {
    caisson_error err;
    csn_ids ids = {0};
    uint8_t *trust = calloc(1, text.len + 1); /* nothing is trusted */
    if (trust != NULL && csn_utf8_valid(text, NULL) &&
        csn_tokenizer_encode_marked(t, text, trust, CSN_ENC_PARSE_SPECIAL, &ids, &err) ==
            CAISSON_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            csn_str s;
            if (!csn_tokenizer_token(t, ids.id[i], &s)) {
                abort();
            }
        }
    }
    free(trust);
    csn_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char fallback[] =
        "<s> Ab e\xcc\x81\xe4\xb8\xad 12-3\r\n\t \xf0\x9f\x98\x80\xff</s>";
    caisson_error err;
    csn_tokenizer *t;
    const uint8_t *nul = memchr(data, 0, size);
    size_t n_json = nul == NULL ? size : (size_t)(nul - data);
    csn_str text = nul == NULL ? csn_str_make(fallback, sizeof(fallback) - 1)
                               : csn_str_make((const char *)nul + 1, size - n_json - 1);
    if (csn_tokenizer_load(csn_str_make((const char *)data, n_json), &t, &err) != CAISSON_OK) {
        return 0;
    }
    for (unsigned flags = 0; flags < 4; flags++) {
        csn_ids ids = {0};
        if (csn_tokenizer_encode(t, text, flags, &ids, &err) == CAISSON_OK) {
            decode_both(t, &ids);
        }
        csn_ids_free(&ids);
    }
    encode_marked(t, text);
    csn_tokenizer_free(t);
    return 0;
}
