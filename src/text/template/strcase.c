/* SPDX-License-Identifier: Apache-2.0 */
/* Case and character classes of str. A mapped character keeps the mark of the one it came from. */
#include "text/template/value_internal.h"

#include "base/utf8.h"
#include "text/template/pychar_internal.h"

/* Is the sigma at byte i the last letter of a word? (Unicode 3.13, Final_Sigma) What is before byte
 * `first` does not count. */
static bool is_final_sigma(csn_str s, size_t first, size_t i, size_t k) {
    uint32_t cp;
    bool is_after_letter = false;
    size_t at = i;
    while (at > first) {
        do {
            at--;
        } while (at > first && ((unsigned char)s.ptr[at] & 0xc0) == 0x80);
        csn_utf8_decode(s, at, &cp);
        if (!csn_py_is_case_ignorable(cp)) {
            is_after_letter = csn_py_is_cased(cp);
            break;
        }
    }
    at = i + k;
    while (is_after_letter && at < s.len) {
        size_t n = csn_utf8_decode(s, at, &cp);
        if (!csn_py_is_case_ignorable(cp)) {
            return !csn_py_is_cased(cp);
        }
        at += n;
    }
    return is_after_letter;
}

caisson_status csn_sm_case(trun *r, const tstr *s, tcase_op op, tval *ret) {
    csn_str bytes = csn_ts_bytes(s);
    tbuf b = {0};
    bool is_start = true; /* of a word, or of the text */
    size_t first = 0;     /* the filter lowers what is behind a word's first letter by itself */
    CSN_TRY(csn_tr_charge(r, s->len / 16));
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0;
        uint32_t to[3];
        size_t k = csn_utf8_decode(bytes, i, &cp);
        tcase which;
        switch (op) {
        case OP_UPPER: which = CASE_UPPER; break;
        case OP_LOWER: which = CASE_LOWER; break;
        case OP_FOLD: which = CASE_FOLD; break;
        case OP_SWAP: which = csn_py_is_upper(cp) ? CASE_LOWER : CASE_UPPER; break;
        case OP_TITLE_FILTER: which = is_start ? CASE_UPPER : CASE_LOWER; break;
        default: which = is_start ? CASE_TITLE : CASE_LOWER; break;
        }
        size_t n = csn_py_map_case(cp, which, to);
        if (cp == 0x3a3 && which == CASE_LOWER) {
            CSN_TRY(csn_tr_charge(r, 1));
            to[0] = is_final_sigma(bytes, first, i, k) ? 0x3c2 : 0x3c3;
        }
        char out[12];
        size_t o = 0;
        for (size_t j = 0; j < n; j++) {
            o += csn_utf8_encode(to[j], out + o);
        }
        CSN_TRY(csn_tb_put(r, &b, out, o, s->marks != NULL ? s->marks[i] != 0 : s->is_trusted));
        if (op == OP_TITLE_FILTER) {
            first = is_start ? i + k : first;
            is_start =
                csn_py_is_space(cp) || (cp < 0x80 && cp > 0 && strchr("-({[<", (int)cp) != NULL);
        } else {
            is_start = op == OP_TITLE && !csn_py_is_cased(cp);
        }
        i += k;
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return CAISSON_OK;
}

bool csn_sm_is_case(const tstr *s, bool is_upper) {
    bool is_any = false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0;
        i += csn_utf8_decode(csn_ts_bytes(s), i, &cp);
        if (csn_py_is_title(cp) || (is_upper ? csn_py_is_lower(cp) : csn_py_is_upper(cp))) {
            return false;
        }
        is_any |= is_upper ? csn_py_is_upper(cp) : csn_py_is_lower(cp);
    }
    return is_any;
}

static bool is_title(const tstr *s) {
    bool is_any = false;
    bool was_cased = false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0;
        i += csn_utf8_decode(csn_ts_bytes(s), i, &cp);
        bool is_high = csn_py_is_upper(cp) || csn_py_is_title(cp);
        if (is_high ? was_cased : csn_py_is_lower(cp) && !was_cased) {
            return false;
        }
        was_cased = is_high || csn_py_is_lower(cp);
        is_any |= was_cased;
    }
    return is_any;
}

static bool all(const tstr *s, bool (*test)(uint32_t cp), bool of_empty) {
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0;
        i += csn_utf8_decode(csn_ts_bytes(s), i, &cp);
        if (!test(cp)) {
            return false;
        }
    }
    return s->len > 0 || of_empty;
}

static bool is_alnum(uint32_t cp) {
    return csn_py_is_alpha(cp) || csn_py_is_numeric(cp);
}
static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}

#define CASE_METHOD(name, op)                                                                      \
    static caisson_status name(trun *r, const tcall *c, tval *ret) {                               \
        return csn_sm_case(r, c->self.u.s, (op), ret);                                             \
    }
#define CLASS_METHOD(name, expr)                                                                   \
    static caisson_status name(trun *r, const tcall *c, tval *ret) {                               \
        const tstr *s = c->self.u.s;                                                               \
        CSN_TRY(csn_tr_charge_bytes(r, s->len));                                                   \
        *ret = csn_tv_bool(expr);                                                                  \
        ret->is_tainted = csn_ts_any_untrusted(s);                                                 \
        return CAISSON_OK;                                                                         \
    }
CASE_METHOD(m_upper, OP_UPPER)
CASE_METHOD(m_lower, OP_LOWER)
CASE_METHOD(m_casefold, OP_FOLD)
CASE_METHOD(m_swapcase, OP_SWAP)
CASE_METHOD(m_capitalize, OP_CAPITALIZE)
CASE_METHOD(m_title, OP_TITLE)
CLASS_METHOD(m_isalnum, all(s, is_alnum, false))
CLASS_METHOD(m_isalpha, all(s, csn_py_is_alpha, false))
CLASS_METHOD(m_isascii, all(s, is_ascii, true))
CLASS_METHOD(m_isdecimal, all(s, csn_py_is_decimal, false))
CLASS_METHOD(m_isdigit, all(s, csn_py_is_digit, false))
CLASS_METHOD(m_isnumeric, all(s, csn_py_is_numeric, false))
CLASS_METHOD(m_isprintable, all(s, csn_py_is_printable, true))
CLASS_METHOD(m_isspace, all(s, csn_py_is_space, false))
CLASS_METHOD(m_islower, csn_sm_is_case(s, false))
CLASS_METHOD(m_isupper, csn_sm_is_case(s, true))
CLASS_METHOD(m_istitle, is_title(s))

const tbuiltin csn_str_case_methods[] = {{"upper", m_upper, "", 0, true},
                                         {"lower", m_lower, "", 0, true},
                                         {"casefold", m_casefold, "", 0, true},
                                         {"swapcase", m_swapcase, "", 0, true},
                                         {"capitalize", m_capitalize, "", 0, true},
                                         {"title", m_title, "", 0, true},
                                         {"isalnum", m_isalnum, "", 0, true},
                                         {"isalpha", m_isalpha, "", 0, true},
                                         {"isascii", m_isascii, "", 0, true},
                                         {"isdecimal", m_isdecimal, "", 0, true},
                                         {"isdigit", m_isdigit, "", 0, true},
                                         {"isnumeric", m_isnumeric, "", 0, true},
                                         {"isprintable", m_isprintable, "", 0, true},
                                         {"isspace", m_isspace, "", 0, true},
                                         {"islower", m_islower, "", 0, true},
                                         {"isupper", m_isupper, "", 0, true},
                                         {"istitle", m_istitle, "", 0, true},
                                         {NULL, NULL, NULL, 0, false}};
