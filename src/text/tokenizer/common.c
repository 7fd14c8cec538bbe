/* SPDX-License-Identifier: Apache-2.0 */
/* Reading members of tokenizer.json with errors that name the path, and the byte-level alphabet. */
#include "text/tokenizer/tok_internal.h"

#include "base/utf8.h"

caisson_status csn_tok_fail(caisson_error *err, caisson_status code, const char *path,
                            const char *what, csn_str got) {
    return CSN_FAIL(err, code, .section = "tokenizer", .tensor = csn_str_from(path), .what = what,
                    .got = got);
}

static caisson_status fail_member(caisson_error *err, const char *path, const char *key,
                                  const char *what) {
    char full[128];
    csn_buf b = CSN_BUF_INIT(sizeof(full));
    caisson_error ignored;
    const char *shown = key;
    if (csn_buf_printf(&b, &ignored, "%s.%s", path, key) == CAISSON_OK) {
        shown = b.ptr;
    }
    caisson_status status = csn_tok_fail(err, CAISSON_E_PARSE, shown, what, (csn_str){0});
    csn_buf_free(&b);
    return status;
}

caisson_status csn_tok_bool(const csn_jval *o, const char *path, const char *key, bool dflt,
                            bool *ret, caisson_error *err) {
    const csn_jval *v = csn_jval_get(o, key);
    csn_jkind kind = csn_jval_kind(v);
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        *ret = dflt;
        return CAISSON_OK;
    }
    return csn_jval_bool(v, ret) ? CAISSON_OK : fail_member(err, path, key, "not true or false");
}

caisson_status csn_tok_opt_str(const csn_jval *o, const char *path, const char *key, csn_str *ret,
                               bool *is_present, caisson_error *err) {
    const csn_jval *v = csn_jval_get(o, key);
    csn_jkind kind = csn_jval_kind(v);
    *is_present = kind != CSN_JSON_ABSENT && kind != CSN_JSON_NULL;
    *ret = CSN_STR("");
    if (!*is_present) {
        return CAISSON_OK;
    }
    if (!csn_jval_str(v, ret)) {
        return fail_member(err, path, key, "not a string");
    }
    return ret->len <= CSN_TOK_MAX_TOKEN_BYTES
               ? CAISSON_OK
               : CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer",
                          .tensor = csn_str_from(path), .what = "string is too long",
                          CSN_VALUES(CSN_TOK_MAX_TOKEN_BYTES, ret->len));
}

caisson_status csn_tok_str(const csn_jval *o, const char *path, const char *key, csn_str *ret,
                           caisson_error *err) {
    bool is_present;
    CSN_TRY(csn_tok_opt_str(o, path, key, ret, &is_present, err));
    return is_present ? CAISSON_OK : fail_member(err, path, key, "member is missing");
}

caisson_status csn_tok_char(const csn_jval *o, const char *path, const char *key, uint32_t *ret,
                            caisson_error *err) {
    csn_str s;
    CSN_TRY(csn_tok_str(o, path, key, &s, err));
    size_t n = csn_utf8_decode(s, 0, ret);
    return n > 0 && n == s.len ? CAISSON_OK : fail_member(err, path, key, "not one character");
}

caisson_status csn_tok_type(const csn_jval *o, const char *path, csn_str *ret, caisson_error *err) {
    if (csn_jval_kind(o) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, path, "not an object", (csn_str){0});
    }
    return csn_tok_str(o, path, "type", ret, err);
}

/* Bytes of the longest start of a sequence at p that could still become one; at least 1. */
static size_t bad_part(const unsigned char *p, size_t n) {
    unsigned c = p[0];
    size_t want = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c <= 0xef ? 3 : 1;
    unsigned lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    size_t k = 1;
    while (k < want && k < n && p[k] >= lo && p[k] <= hi) {
        lo = 0x80;
        hi = 0xbf;
        k++;
    }
    return k;
}

caisson_status csn_utf8_append_lossy(csn_buf *out, csn_str bytes, caisson_error *err) {
    size_t i = 0;
    while (i < bytes.len) {
        size_t bad = 0;
        csn_str rest = csn_str_make(bytes.ptr + i, bytes.len - i);
        if (csn_utf8_valid(rest, &bad)) {
            return csn_buf_str(out, rest, err);
        }
        CSN_TRY(csn_buf_append(out, rest.ptr, bad, err));
        CSN_TRY(csn_buf_str(out, CSN_STR("\xef\xbf\xbd"), err));
        i += bad + bad_part((const unsigned char *)rest.ptr + bad, rest.len - bad);
    }
    return CAISSON_OK;
}
