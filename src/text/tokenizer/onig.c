/* SPDX-License-Identifier: Apache-2.0 */
/* Oniguruma's pattern language (its own default syntax, UTF-8) said in that of PCRE2.
 *
 * The two look alike and differ in what counts: \h is a hexadecimal digit, \v one character, (?m)
 * lets the dot match newlines, {n,m}+ is not possessive, classes nest and intersect, \s leaves out
 * U+180E, scripts are not script extensions, properties are those of Unicode 16. What is not
 * listed here is refused by name; nothing is passed on in the hope that it means the same. */
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"
#include "text/tokenizer/unicode_tables.h"

enum { MAX_NEST = 32 };

typedef struct translator {
    csn_str in;
    size_t at;
    csn_buf *out;
    caisson_error *err;
    unsigned depth;          /* open groups */
    uint8_t extra[MAX_NEST]; /* brackets that an isolated option opened in each group */
    bool fold[MAX_NEST];     /* letters match without regard to case in each group */
    uint32_t last;           /* the literal just read, 0 = something else */
    bool can_repeat;         /* something stands before that a quantifier can take */
    unsigned class_depth;
    bool is_negated_class; /* the outermost that is open */
} translator;

static caisson_status refuse(translator *t, const char *what) {
    size_t n = t->in.len - t->at < 24 ? t->in.len - t->at : 24;
    return CSN_FAIL(t->err, CAISSON_E_UNSUPPORTED, .section = "tokenizer", .what = what,
                    CSN_AT(t->at), .got = csn_str_make(t->in.ptr + t->at, n));
}

static caisson_status put(translator *t, const char *z) {
    return csn_buf_str(t->out, csn_str_from(z), t->err);
}

static bool next_is(const translator *t, const char *z) {
    return csn_str_starts(csn_str_make(t->in.ptr + t->at, t->in.len - t->at), csn_str_from(z));
}

static int peek(const translator *t, size_t ahead) {
    return t->at + ahead < t->in.len ? (unsigned char)t->in.ptr[t->at + ahead] : -1;
}

/* One literal code point, whatever it is. */
static caisson_status put_cp(translator *t, csn_buf *out, uint32_t cp) {
    return csn_buf_printf(out, t->err, "\\x{%x}", (unsigned)cp);
}

/* ---- sets of code points ---- */

static const char white[] = "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
                            "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/* \p{name} and what PCRE2's older Unicode lacks of it. */
static caisson_status put_property(translator *t, csn_buf *out, const char *name, bool is_script) {
    CSN_TRY(csn_buf_printf(out, t->err, is_script ? "\\p{sc:%s}" : "\\p{%s}", name));
    for (size_t i = 0; i < csn_property_deltas_n; i++) {
        const csn_property_delta *d = &csn_property_deltas[i];
        if (strcmp(d->name, name) == 0) {
            CSN_TRY(csn_buf_printf(out, t->err, "\\x{%x}-\\x{%x}", (unsigned)d->range.lo,
                                   (unsigned)d->range.hi));
        }
    }
    return CAISSON_OK;
}

/* \w: letters, marks, decimal and letter numbers, connectors, and what else is alphabetic there.
 * Outside brackets Oniguruma asks its Latin-1 table, which has the six superscripts and fractions.
 */
static caisson_status put_word(translator *t, csn_buf *out) {
    static const char *const parts[] = {"L", "M", "Nd", "Nl", "Pc"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        CSN_TRY(put_property(t, out, parts[i], false));
    }
    if (t->class_depth == 0) {
        CSN_TRY(csn_buf_str(out, CSN_STR("\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"), t->err));
    }
    return csn_buf_str(out,
                       CSN_STR("\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
                               "\\x{1f170}-\\x{1f189}"),
                       t->err);
}

static const char *const generals[][2] = {{"L", "letter"},
                                          {"Lu", "uppercaseletter"},
                                          {"Ll", "lowercaseletter"},
                                          {"Lt", "titlecaseletter"},
                                          {"Lm", "modifierletter"},
                                          {"Lo", "otherletter"},
                                          {"M", "mark"},
                                          {"Mn", "nonspacingmark"},
                                          {"Mc", "spacingmark"},
                                          {"Me", "enclosingmark"},
                                          {"N", "number"},
                                          {"Nd", "decimalnumber"},
                                          {"Nl", "letternumber"},
                                          {"No", "othernumber"},
                                          {"P", "punctuation"},
                                          {"Pc", "connectorpunctuation"},
                                          {"Pd", "dashpunctuation"},
                                          {"Ps", "openpunctuation"},
                                          {"Pe", "closepunctuation"},
                                          {"Pi", "initialpunctuation"},
                                          {"Pf", "finalpunctuation"},
                                          {"Po", "otherpunctuation"},
                                          {"S", "symbol"},
                                          {"Sm", "mathsymbol"},
                                          {"Sc", "currencysymbol"},
                                          {"Sk", "modifiersymbol"},
                                          {"So", "othersymbol"},
                                          {"Z", "separator"},
                                          {"Zs", "spaceseparator"},
                                          {"Zl", "lineseparator"},
                                          {"Zp", "paragraphseparator"},
                                          {"Cc", "control"},
                                          {"Cf", "format"},
                                          {"Co", "privateuse"}};
static const char *const scripts[] = {
    "Han",      "Hiragana", "Katakana", "Hangul",     "Latin",   "Greek",   "Cyrillic",
    "Arabic",   "Hebrew",   "Thai",     "Devanagari", "Bengali", "Tamil",   "Telugu",
    "Georgian", "Armenian", "Khmer",    "Lao",        "Myanmar", "Tibetan", "Bopomofo"};

/* In a class under (?i) Oniguruma takes in the other case of a property's members, outside classes
 * not; PCRE2 does in neither. */
static bool is_folding_class(const translator *t) {
    return t->class_depth > 0 && t->fold[t->depth];
}

static bool has_two_cases(const char *name, bool is_script) {
    static const char *const cased[] = {"Latin", "Greek", "Cyrillic", "Georgian", "Armenian"};
    if (!is_script) {
        return name[0] == 'L' || name[0] == 'M';
    }
    for (size_t i = 0; i < sizeof(cased) / sizeof(cased[0]); i++) {
        if (strcmp(cased[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static caisson_status put_named_property(translator *t, csn_buf *out, const char *name,
                                         bool is_script, bool is_negated) {
    if (is_folding_class(t) && has_two_cases(name, is_script)) {
        if (strcmp(name, "L") != 0 || is_negated || !t->is_negated_class) {
            return refuse(t, "property with two cases in a class under (?i)");
        }
        CSN_TRY(put_cp(t, out, 0x345)); /* the one that is no letter and has a letter's case */
    }
    return put_property(t, out, name, is_script);
}

static bool same_name(const char *a, csn_str b) {
    size_t k = 0;
    for (size_t i = 0; i < b.len; i++) {
        char c = b.ptr[i];
        if (c == ' ' || c == '_' || c == '-') {
            continue;
        }
        char x = a[k] >= 'A' && a[k] <= 'Z' ? (char)(a[k] + 32) : a[k];
        char y = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
        if (x == '\0' || x != y) {
            return false;
        }
        k++;
    }
    return a[k] == '\0';
}

/* {name} or {^name} behind \p; at stands behind the p. */
static caisson_status read_property(translator *t, csn_buf *out, bool *is_negated) {
    size_t close = csn_str_find(t->in, CSN_STR("}"), t->at);
    if (peek(t, 0) != '{' || close == SIZE_MAX) {
        return refuse(t, "property without {name} in a pattern");
    }
    csn_str name = csn_str_make(t->in.ptr + t->at + 1, close - t->at - 1);
    if (name.len > 0 && name.ptr[0] == '^') {
        *is_negated = !*is_negated;
        name = csn_str_make(name.ptr + 1, name.len - 1);
    }
    for (size_t i = 0; i < sizeof(generals) / sizeof(generals[0]); i++) {
        if (same_name(generals[i][0], name) || same_name(generals[i][1], name)) {
            CSN_TRY(put_named_property(t, out, generals[i][0], false, *is_negated));
            t->at = close + 1;
            return CAISSON_OK;
        }
    }
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        if (same_name(scripts[i], name)) {
            CSN_TRY(put_named_property(t, out, scripts[i], true, *is_negated));
            t->at = close + 1;
            return CAISSON_OK;
        }
    }
    return refuse(t, "Unicode property of a pattern is not supported");
}

/* If an escape stands here that means a set, appends its members (without brackets), sets
 * is_negated, and moves behind it. */
static caisson_status read_set_escape(translator *t, csn_buf *out, bool *is_set, bool *is_negated) {
    int c = peek(t, 1);
    *is_set = true;
    *is_negated = c == 'P' || c == 'D' || c == 'W' || c == 'S' || c == 'H';
    switch (c) {
    case 'p':
    case 'P': t->at += 2; return read_property(t, out, is_negated);
    case 'd':
    case 'D': t->at += 2; return put_property(t, out, "Nd", false);
    case 's':
    case 'S': t->at += 2; return csn_buf_str(out, csn_str_from(white), t->err);
    case 'h':
    case 'H': t->at += 2; return csn_buf_str(out, CSN_STR("0-9a-fA-F"), t->err);
    case 'w':
    case 'W': t->at += 2; return put_word(t, out);
    default: *is_set = false; return CAISSON_OK;
    }
}

static int hex_value(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static caisson_status read_hex(translator *t, size_t max_digits, uint32_t *ret) {
    uint32_t v = 0;
    size_t n = 0;
    while (n < max_digits && hex_value(peek(t, 0)) >= 0 && v <= 0x10ffff) {
        v = v << 4 | (uint32_t)hex_value(peek(t, 0));
        t->at++;
        n++;
    }
    if (n == 0 || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) {
        return refuse(t, "code point of a pattern is not valid");
    }
    *ret = v;
    return CAISSON_OK;
}

/* A literal character, escaped or not. */
static caisson_status read_literal(translator *t, uint32_t *ret) {
    if (peek(t, 0) != '\\') {
        size_t n = csn_utf8_decode(t->in, t->at, ret);
        t->at += n == 0 ? 1 : n;
        return CAISSON_OK;
    }
    static const char letters[] = "tnrfaev";
    static const uint8_t values[] = {9, 10, 13, 12, 7, 27, 11};
    int c = peek(t, 1);
    const char *known = c > 0 ? memchr(letters, c, sizeof(letters) - 1) : NULL;
    if (known != NULL) {
        t->at += 2;
        *ret = values[known - letters];
        return CAISSON_OK;
    }
    if (c == 'x' && peek(t, 2) == '{') {
        t->at += 3;
        CSN_TRY(read_hex(t, 8, ret));
        if (peek(t, 0) != '}') {
            return refuse(t, "list of code points in a pattern");
        }
        t->at++;
        return CAISSON_OK;
    }
    if (c == 'x') { /* one byte: a character only below 0x80 */
        t->at += 2;
        CSN_TRY(read_hex(t, 2, ret));
        return *ret < 0x80 ? CAISSON_OK : refuse(t, "byte of a character in a pattern");
    }
    if (c == 'u') {
        t->at += 2;
        size_t from = t->at;
        CSN_TRY(read_hex(t, 4, ret));
        return t->at - from == 4 ? CAISSON_OK : refuse(t, "\\u without four digits in a pattern");
    }
    if (c < 0 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return refuse(t, "escape of a pattern is not supported");
    }
    t->at++;
    size_t n = csn_utf8_decode(t->in, t->at, ret);
    t->at += n == 0 ? 1 : n;
    return CAISSON_OK;
}

/* ---- bracketed classes ----
 * A class becomes an expression that matches one character. As long as it is a plain union that is
 * a class of PCRE2; a complement inside it, a nested class or an intersection makes it a group. */
typedef struct class_parts {
    csn_buf members; /* plain members */
    csn_buf others;  /* further alternatives, each with a bar before it */
} class_parts;

static caisson_status read_class(translator *t, csn_buf *out);

/* Under (?i) a class with one of these matches several characters at once: [\xdf] takes "ss". One
 * that is negated never does. */
static bool holds_several(uint32_t lo, uint32_t hi) {
    static const uint32_t ranges[][2] = {
        {0xdf, 0xdf},   {0x130, 0x130}, {0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},
        {0x3b0, 0x3b0}, {0x587, 0x587}, {0x1e96, 0x1e9e}, {0x1f50, 0x1fff}, {0xfb00, 0xfb17}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (lo <= ranges[i][1] && hi >= ranges[i][0]) {
            return true;
        }
    }
    return false;
}

static caisson_status class_item(translator *t, class_parts *p) {
    if (next_is(t, "[:")) {
        return refuse(t, "POSIX class of a pattern is not supported");
    }
    if (peek(t, 0) == '[') {
        if (is_folding_class(t)) {
            return refuse(t, "class in a class under (?i)");
        }
        CSN_TRY(csn_buf_char(&p->others, '|', t->err));
        return read_class(t, &p->others);
    }
    bool is_set = false;
    bool is_negated = false;
    if (peek(t, 0) == '\\') {
        int c = peek(t, 1);
        csn_buf set = CSN_BUF_INIT(t->out->max);
        caisson_status status = read_set_escape(t, &set, &is_set, &is_negated);
        bool holds_sharp_s = c == 'w' || (is_negated && c != 'W');
        if (status == CAISSON_OK && is_set && holds_sharp_s && is_folding_class(t) &&
            !t->is_negated_class) {
            status = refuse(t, "set of a class that folds to several under (?i)");
        }
        if (status == CAISSON_OK && is_set && is_negated) {
            status = csn_buf_printf(&p->others, t->err, "|[^%s]", set.ptr);
        } else if (status == CAISSON_OK && is_set) {
            status = csn_buf_str(&p->members, csn_buf_view(&set), t->err);
        }
        csn_buf_free(&set);
        if (status != CAISSON_OK || is_set) {
            return status;
        }
        if (peek(t, 1) == 'b') { /* a backspace in a class */
            t->at += 2;
            return put_cp(t, &p->members, 8);
        }
    }
    uint32_t lo;
    CSN_TRY(read_literal(t, &lo));
    CSN_TRY(put_cp(t, &p->members, lo));
    uint32_t hi = lo;
    if (peek(t, 0) == '-' && peek(t, 1) >= 0 && peek(t, 1) != ']') {
        if (peek(t, 1) == '[' || next_is(t, "-&&")) {
            return refuse(t, "range of a class in a pattern");
        }
        t->at++;
        bool ends_in_set = peek(t, 0) == '\\' && strchr("pPdDsShHwW", peek(t, 1)) != NULL;
        if (ends_in_set) {
            return refuse(t, "range that ends in a set in a pattern");
        }
        CSN_TRY(read_literal(t, &hi));
        if (hi < lo) {
            return refuse(t, "empty range in a pattern");
        }
        CSN_TRY(csn_buf_char(&p->members, '-', t->err));
        CSN_TRY(put_cp(t, &p->members, hi));
    }
    if (is_folding_class(t) && holds_several(lo, hi)) {
        return refuse(t, "character of a class that folds to several under (?i)");
    }
    return CAISSON_OK;
}

/* The union read so far as one expression. */
static caisson_status class_union(translator *t, const class_parts *p, csn_buf *out) {
    if (p->members.len == 0 && p->others.len == 0) {
        return refuse(t, "empty class in a pattern");
    }
    if (p->others.len == 0) {
        return csn_buf_printf(out, t->err, "[%s]", p->members.ptr);
    }
    if (p->members.len == 0) {
        return csn_buf_printf(out, t->err, "(?:%s)", p->others.ptr + 1);
    }
    return csn_buf_printf(out, t->err, "(?:[%s]%s)", p->members.ptr, p->others.ptr);
}

static caisson_status read_class_body(translator *t, class_parts *p, csn_buf *all, bool *is_plain) {
    bool first = true;
    for (;;) {
        if (t->at >= t->in.len) {
            return refuse(t, "class of a pattern is not closed");
        }
        if (peek(t, 0) == ']' && !first) {
            t->at++;
            break;
        }
        if (next_is(t, "&&")) {        /* what stood before must match as well: (?=before)after */
            if (is_folding_class(t)) { /* one folds the members, the other the result */
                return refuse(t, "intersection in a class under (?i)");
            }
            t->at += 2;
            *is_plain = false;
            CSN_TRY(csn_buf_str(all, CSN_STR("(?="), t->err));
            CSN_TRY(class_union(t, p, all));
            CSN_TRY(csn_buf_char(all, ')', t->err));
            p->members.len = 0;
            p->others.len = 0;
            continue;
        }
        first = false;
        CSN_TRY(class_item(t, p));
    }
    *is_plain = *is_plain && p->others.len == 0;
    return CAISSON_OK;
}

static caisson_status read_class(translator *t, csn_buf *out) {
    if (++t->class_depth > MAX_NEST) {
        return refuse(t, "classes of a pattern are nested too deeply");
    }
    t->at++; /* [ */
    bool is_negated = peek(t, 0) == '^';
    t->at += is_negated;
    t->is_negated_class = t->class_depth > 1 ? t->is_negated_class : is_negated;
    class_parts p = {CSN_BUF_INIT(t->out->max), CSN_BUF_INIT(t->out->max)};
    csn_buf all = CSN_BUF_INIT(t->out->max);
    bool is_plain = true;
    caisson_status status = read_class_body(t, &p, &all, &is_plain);
    if (status == CAISSON_OK && is_plain && p.members.len > 0) {
        status = csn_buf_printf(out, t->err, is_negated ? "[^%s]" : "[%s]", p.members.ptr);
    } else if (status == CAISSON_OK) {
        status = class_union(t, &p, &all);
        if (status == CAISSON_OK) {
            status =
                csn_buf_printf(out, t->err, is_negated ? "(?:(?!%s)(?s:.))" : "(?:%s)", all.ptr);
        }
    }
    csn_buf_free(&p.members);
    csn_buf_free(&p.others);
    csn_buf_free(&all);
    t->class_depth--;
    return status;
}

/* ---- outside classes ---- */

static uint32_t lower(uint32_t cp) {
    return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
}

/* Oniguruma lets one character match several that it folds to (sharp s and "ss", the ligatures),
 * which PCRE2 does not: where a pattern could run into that, it is refused. */
static bool folds_to_several(uint32_t last, uint32_t cp) {
    last = lower(last);
    cp = lower(cp);
    return (last == 's' && (cp == 's' || cp == 't')) ||
           (last == 'f' && (cp == 'f' || cp == 'i' || cp == 'l')) || cp == 0xdf || cp == 0x130 ||
           cp == 0x149 || cp == 0x17f || cp == 0x1f0 || cp == 0x2bc || cp == 0x2be ||
           (cp >= 0x300 && cp <= 0x3ff) || (cp >= 0x530 && cp <= 0x58f) ||
           (cp >= 0x1e96 && cp <= 0x1e9e) || (cp >= 0x1f00 && cp <= 0x1fff) ||
           (cp >= 0xfb00 && cp <= 0xfb17);
}

/* \b and \B by Oniguruma's idea of a word. */
static caisson_status put_border(translator *t, bool is_border) {
    csn_buf w = CSN_BUF_INIT(t->out->max);
    caisson_status status = put_word(t, &w);
    if (status == CAISSON_OK) {
        const char *then = is_border ? "!" : "=";
        const char *other = is_border ? "=" : "!";
        status = csn_buf_printf(t->out, t->err, "(?:(?<=[%s])(?%s[%s])|(?<![%s])(?%s[%s]))", w.ptr,
                                then, w.ptr, w.ptr, other, w.ptr);
    }
    csn_buf_free(&w);
    return status;
}

/* A literal behind the literal `last`. */
static caisson_status put_literal(translator *t, uint32_t last) {
    uint32_t cp = 0;
    CSN_TRY(read_literal(t, &cp));
    t->can_repeat = true;
    t->last = cp;
    if (t->fold[t->depth] && folds_to_several(last, cp)) {
        return refuse(t, "letters of a pattern that fold to several");
    }
    if (cp < 0x80 &&
        !((cp >= '0' && cp <= '9') || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z'))) {
        return put_cp(t, t->out, cp);
    }
    char utf8[4];
    return csn_buf_append(t->out, utf8, csn_utf8_encode(cp, utf8), t->err);
}

static caisson_status read_escape(translator *t, uint32_t last) {
    int c = peek(t, 1);
    if (c == 'b' || c == 'B') {
        t->at += 2;
        t->can_repeat = false;
        return put_border(t, c == 'b');
    }
    if (c == 'A' || c == 'z' || c == 'Z') {
        t->at += 2;
        t->can_repeat = false;
        char text[3] = {'\\', (char)c, '\0'};
        return put(t, text);
    }
    csn_buf set = CSN_BUF_INIT(t->out->max);
    bool is_set = false;
    bool is_negated = false;
    caisson_status status = read_set_escape(t, &set, &is_set, &is_negated);
    if (status == CAISSON_OK && is_set) {
        status = csn_buf_printf(t->out, t->err, is_negated ? "[^%s]" : "[%s]", set.ptr);
    }
    csn_buf_free(&set);
    t->can_repeat = true;
    if (status != CAISSON_OK || is_set) {
        return status;
    }
    return put_literal(t, last);
}

/* (?imx-imx) and (?imx-imx: ; at stands behind the "(?". */
static caisson_status read_options(translator *t) {
    char flags[16] = "";
    size_t n = 0;
    for (; n + 2 < sizeof(flags); t->at++) {
        int c = peek(t, 0);
        if (c == ':' || c == ')') {
            break;
        }
        if (c != 'i' && c != 'm' && c != '-') {
            return refuse(t, "group or option of a pattern is not supported");
        }
        flags[n++] = c == 'm' ? 's' : (char)c; /* (?m): the dot matches newlines */
    }
    flags[n] = '\0';
    const char *off = strchr(flags, '-');
    const char *i = strchr(flags, 'i');
    bool fold = i == NULL ? t->fold[t->depth - 1] : off == NULL || i < off;
    int c = peek(t, 0);
    if (c != ':' && c != ')') {
        return refuse(t, "options of a pattern are too long");
    }
    t->at++;
    CSN_TRY(csn_buf_printf(t->out, t->err, "(?%s:", flags));
    if (c == ':') {
        t->extra[t->depth] = 0;
        t->fold[t->depth] = fold;
        return CAISSON_OK;
    }
    /* Without a colon: to the end of the group that it stands in, bars included. */
    t->depth--;
    t->fold[t->depth] = fold;
    if (t->extra[t->depth] == UINT8_MAX) {
        return refuse(t, "too many options in a pattern");
    }
    t->extra[t->depth]++;
    return CAISSON_OK;
}

static void open_group(translator *t) {
    t->depth++;
    t->extra[t->depth] = 0;
    t->fold[t->depth] = t->fold[t->depth - 1];
}

static caisson_status read_group(translator *t) {
    if (t->depth + 1 >= MAX_NEST) {
        return refuse(t, "groups of a pattern are nested too deeply");
    }
    t->can_repeat = false;
    if (peek(t, 1) == '*') {
        return refuse(t, "callout of a pattern is not supported");
    }
    if (peek(t, 1) != '?') {
        t->at++;
        open_group(t);
        return put(t, "(?:"); /* nothing refers back to a group */
    }
    static const char *const plain[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (next_is(t, plain[i])) {
            t->at += strlen(plain[i]);
            open_group(t);
            return put(t, plain[i]);
        }
    }
    if (next_is(t, "(?<") || next_is(t, "(?#")) {
        bool is_comment = next_is(t, "(?#");
        size_t close = csn_str_find(t->in, is_comment ? CSN_STR(")") : CSN_STR(">"), t->at);
        if (close == SIZE_MAX) {
            return refuse(t, "group of a pattern is not closed");
        }
        t->at = close + 1;
        if (is_comment) {
            return CAISSON_OK;
        }
        open_group(t);
        return put(t, "(?:");
    }
    t->at += 2;
    t->depth++;
    return read_options(t);
}

static caisson_status close_group(translator *t) {
    if (t->depth == 0) {
        return refuse(t, "bracket of a pattern is not opened");
    }
    for (unsigned i = 0; i <= t->extra[t->depth]; i++) {
        CSN_TRY(put(t, ")"));
    }
    t->depth--;
    t->at++;
    t->can_repeat = true;
    return CAISSON_OK;
}

/* {n}, {n,}, {n,m}, {,m}; anything else is a literal brace. */
static caisson_status read_interval(translator *t) {
    uint32_t n[2] = {0, 0};
    size_t digits[2] = {0, 0};
    size_t i = t->at + 1;
    bool has_comma = false;
    for (; i < t->in.len && t->in.ptr[i] != '}'; i++) {
        char c = t->in.ptr[i];
        if (c == ',' && !has_comma) {
            has_comma = true;
        } else if (c >= '0' && c <= '9' && digits[has_comma] < 6) {
            n[has_comma] = n[has_comma] * 10 + (uint32_t)(c - '0');
            digits[has_comma]++;
        } else {
            break;
        }
    }
    bool is_interval = i < t->in.len && t->in.ptr[i] == '}' && digits[0] + digits[1] > 0;
    if (!is_interval) {
        t->at++;
        t->can_repeat = true;
        return put(t, "\\{");
    }
    if (!t->can_repeat) {
        return refuse(t, "nothing to repeat in a pattern");
    }
    t->at = i + 1;
    if (peek(t, 0) == '+' || (peek(t, 0) == '?' && !has_comma) || (digits[1] > 0 && n[0] > n[1])) {
        return refuse(t, "interval of a pattern is not supported");
    }
    if (digits[1] > 0) {
        CSN_TRY(csn_buf_printf(t->out, t->err, "{%u,%u}", (unsigned)n[0], (unsigned)n[1]));
    } else {
        CSN_TRY(csn_buf_printf(t->out, t->err, has_comma ? "{%u,}" : "{%u}", (unsigned)n[0]));
    }
    if (peek(t, 0) == '?') {
        t->at++;
        CSN_TRY(put(t, "?"));
    }
    return CAISSON_OK;
}

static caisson_status read_quantifier(translator *t) {
    if (!t->can_repeat) {
        return refuse(t, "nothing to repeat in a pattern");
    }
    char text[3] = {(char)peek(t, 0), '\0', '\0'};
    t->at++;
    if (peek(t, 0) == '?' || peek(t, 0) == '+') {
        text[1] = (char)peek(t, 0);
        t->at++;
    }
    int c = peek(t, 0);
    if (c == '*' || c == '+' || c == '?') {
        return refuse(t, "repeated repetition in a pattern");
    }
    return put(t, text);
}

static caisson_status read_one(translator *t) {
    int c = peek(t, 0);
    uint32_t last = t->last;
    bool is_joined = c == '(' || c == ')' || c == '{'; /* "ss" is also s(?#)s, (?:s)s and s{1}s */
    t->last = is_joined ? last : 0;
    switch (c) {
    case '\\': return read_escape(t, last);
    case '[': t->can_repeat = true; return read_class(t, t->out);
    case '(': return read_group(t);
    case ')': return close_group(t);
    case '{': return read_interval(t);
    case '*':
    case '+':
    case '?': return read_quantifier(t);
    case '|':
    case '^':
    case '$':
        t->can_repeat = false;
        t->at++;
        return put(t, c == '|' ? "|" : c == '^' ? "^" : "$");
    case '.':
        t->can_repeat = true;
        t->at++;
        return put(t, ".");
    default: return put_literal(t, last);
    }
}

caisson_status csn_onig_translate(csn_str pattern, csn_buf *out, caisson_error *err) {
    translator t = {.in = pattern, .out = out, .err = err};
    while (t.at < pattern.len) {
        CSN_TRY(read_one(&t));
    }
    if (t.depth > 0) {
        return refuse(&t, "group of a pattern is not closed");
    }
    for (unsigned i = 0; i < t.extra[0]; i++) {
        CSN_TRY(put(&t, ")"));
    }
    return CAISSON_OK;
}
