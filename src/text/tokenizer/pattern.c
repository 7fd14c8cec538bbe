/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of Split and Replace: a literal text or a regular expression, and the walk over their
 * matches. */
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

caisson_status csn_pattern_from_regex(csn_pattern *p, csn_str onig, const char *path,
                                      caisson_error *err) {
    csn_buf pcre = CSN_BUF_INIT((size_t)16 * CSN_TOK_MAX_TOKEN_BYTES);
    caisson_status status = csn_onig_translate(onig, &pcre, err);
    if (status == CAISSON_OK) {
        status = csn_regex_compile(csn_buf_view(&pcre), &p->regex, err);
    }
    csn_buf_free(&pcre);
    if (status != CAISSON_OK) {
        csn_error_section(err, "tokenizer");
        csn_error_tensor(err, csn_str_from(path));
    }
    return status;
}

caisson_status csn_pattern_load(csn_pattern *p, csn_arena *arena, const csn_jval *v,
                                const char *path, caisson_error *err) {
    csn_str s;
    if (csn_jval_kind(v) != CSN_JSON_OBJECT || csn_jval_len(v) != 1) {
        return csn_tok_fail(err, CAISSON_E_PARSE, path, "pattern is neither String nor Regex",
                            (csn_str){0});
    }
    bool is_literal = csn_jval_get(v, "String") != NULL;
    CSN_TRY(csn_tok_str(v, path, is_literal ? "String" : "Regex", &s, err));
    if (is_literal && s.len > 0) {
        return csn_arena_str(arena, s, &p->literal, err);
    }
    return csn_pattern_from_regex(p, s, path, err); /* the empty literal matches like a regex */
}

void csn_pattern_done(csn_pattern *p) {
    csn_regex_free(p->regex);
    *p = (csn_pattern){0};
}

caisson_status csn_pattern_next(const csn_pattern *p, csn_regex_scratch **scratch, csn_str text,
                                csn_pattern_iter *it, bool *found, size_t *start, size_t *end,
                                caisson_error *err) {
    *found = false;
    if (p->literal.len > 0) {
        size_t at = csn_str_find(text, p->literal, it->from);
        if (at != SIZE_MAX) {
            *found = true;
            *start = at;
            *end = it->from = at + p->literal.len;
        }
        return CAISSON_OK;
    }
    if (*scratch == NULL) {
        CSN_TRY(csn_regex_scratch_new(scratch, err));
    }
    while (it->from <= text.len) {
        CSN_TRY(csn_regex_find(p->regex, *scratch, text, it->from, found, start, end, err));
        if (!*found) {
            it->from = text.len + 1;
            break;
        }
        if (*start == *end && *end == it->last_end) { /* empty, right behind the last: step over */
            uint32_t cp;
            size_t k = csn_utf8_decode(text, it->from, &cp);
            it->from += k == 0 ? 1 : k;
            *found = false;
            continue;
        }
        it->from = it->last_end = *end;
        break;
    }
    return CAISSON_OK;
}
