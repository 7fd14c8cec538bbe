/* SPDX-License-Identifier: Apache-2.0 */
/* "..." % values and "...".format(...), with Python's rules. Text from a string value keeps its
 * marks; a number's text has the mark of the number; the rest has the marks of the format. */
#include "text/template/ast_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/template/pychar_internal.h"

enum { MAX_PRECISION = 100, NUMBER_TEXT = 512 };

typedef struct tspec {
    tval fill;  /* one character, V_MISSING = blank */
    char align; /* < > ^ =, 0 = by type */
    char sign;  /* + - blank, 0 = - */
    bool is_alt, is_zero;
    int64_t width;
    int64_t precision; /* -1 = none */
    char group;        /* , _ 0 */
    char type;         /* 0 = none */
} tspec;

static caisson_status pad(trun *r, tbuf *b, const tspec *s, int64_t n, bool is_trusted) {
    tstr blank = {.p = " ", .len = 1, .n_cp = 1, .is_trusted = is_trusted};
    return csn_tb_fill(r, b, s->fill.kind == V_STR ? s->fill.u.s : &blank, n);
}

/* head (sign, prefix) and body, both ASCII, into the field's width. */
static caisson_status put_number(trun *r, tbuf *b, const tspec *s, const char *head,
                                 const char *body, bool is_trusted) {
    size_t n_head = strlen(head);
    size_t n_body = strlen(body);
    int64_t gap = s->width - (int64_t)(n_head + n_body);
    tstr zero = {.p = "0", .len = 1, .n_cp = 1, .is_trusted = is_trusted};
    tspec filled = *s;
    if (s->is_zero && s->fill.kind != V_STR) {
        filled.fill = (tval){.kind = V_STR, .u.s = &zero};
        s = &filled;
    }
    char align = s->align != 0 ? s->align : s->is_zero ? '=' : '>';
    int64_t left = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
    gap = gap < 0 ? 0 : gap;
    left = left < 0 ? 0 : left;
    if (align != '=') {
        CSN_TRY(pad(r, b, s, left, is_trusted));
    }
    CSN_TRY(csn_tb_put(r, b, head, n_head, is_trusted));
    if (align == '=') {
        CSN_TRY(pad(r, b, s, gap, is_trusted));
    }
    CSN_TRY(csn_tb_put(r, b, body, n_body, is_trusted));
    return align == '=' ? CAISSON_OK : pad(r, b, s, gap - left, is_trusted);
}

/* Inserts the group sign into the leading digits of `text`. */
static void group_digits(char *text, size_t cap, char sign, size_t every) {
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    if (sign == 0 || digits <= every) {
        return;
    }
    size_t signs = (digits - 1) / every;
    size_t n = strlen(text);
    if (n + signs + 1 > cap) {
        return;
    }
    memmove(text + digits + signs, text + digits, n - digits + 1);
    size_t to = digits + signs;
    for (size_t i = 0; i < digits; i++) {
        if (i > 0 && i % every == 0) {
            text[--to] = sign;
        }
        text[--to] = text[digits - 1 - i];
    }
}

static const char *sign_text(const tspec *s, bool is_negative) {
    return is_negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

static caisson_status format_int(trun *r, tbuf *b, const tspec *s, int64_t v, bool is_trusted) {
    char body[NUMBER_TEXT];
    char head[8];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *prefix = "";
    size_t every = 4;
    switch (s->type) {
    case 'b': {
        char *p = body + 64;
        *p = '\0';
        do {
            *--p = (char)('0' + (u & 1));
        } while ((u >>= 1) > 0);
        memmove(body, p, strlen(p) + 1);
        prefix = "0b";
        break;
    }
    case 'o':
        snprintf(body, sizeof(body), "%" PRIo64, u);
        prefix = "0o";
        break;
    case 'x':
        snprintf(body, sizeof(body), "%" PRIx64, u);
        prefix = "0x";
        break;
    case 'X':
        snprintf(body, sizeof(body), "%" PRIX64, u);
        prefix = "0X";
        break;
    default:
        snprintf(body, sizeof(body), "%" PRIu64, u);
        every = 3;
        break;
    }
    if (s->precision > (int64_t)strlen(body)) { /* only "%.5d" can have one */
        size_t n = strlen(body);
        size_t zeros = (size_t)s->precision - n;
        memmove(body + zeros, body, n + 1);
        memset(body, '0', zeros);
    }
    group_digits(body, sizeof(body), s->group, every);
    snprintf(head, sizeof(head), "%s%s", sign_text(s, v < 0), s->is_alt ? prefix : "");
    return put_number(r, b, s, head, body, is_trusted);
}

/* Without a type Python goes to the exponent one digit earlier than %g: 100.25 with .3 is 1e+02. */
static void bare_exponent(double a, int precision, char body[NUMBER_TEXT]) {
    char e[NUMBER_TEXT];
    snprintf(e, sizeof(e), "%.*e", precision - 1, a);
    char *mark = strchr(e, 'e');
    if ((int)strtol(mark + 1, NULL, 10) != precision - 1) {
        return;
    }
    char *end = mark;
    while (memchr(e, '.', (size_t)(end - e)) != NULL && (end[-1] == '0' || end[-1] == '.')) {
        end--;
    }
    snprintf(body, NUMBER_TEXT, "%.*s%s", (int)(end - e), e, mark);
}

static caisson_status format_float(trun *r, tbuf *b, const tspec *s, double v, bool is_trusted) {
    char body[NUMBER_TEXT];
    bool is_negative = signbit(v) != 0 && !isnan(v);
    double a = is_negative ? -v : v;
    char type = s->type;
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    bool is_bare = type == 0;
    tspec plain = *s;
    if (!isfinite(v)) {
        snprintf(body, sizeof(body), "%s", isnan(v) ? "nan" : "inf");
        if (type == 'E' || type == 'F' || type == 'G') {
            snprintf(body, sizeof(body), "%s", isnan(v) ? "NAN" : "INF");
        }
        plain.is_zero = plain.is_zero && s->align == '=';
    } else if (is_bare && s->precision < 0) {
        char t[FLOAT_TEXT];
        csn_float_repr(a, t);
        snprintf(body, sizeof(body), "%s", t);
    } else {
        char f[8];
        type = is_bare || type == 'n' ? 'g' : type;
        bool is_percent = type == '%';
        snprintf(f, sizeof(f), s->is_alt ? "%%#.*%c" : "%%.*%c", is_percent ? 'f' : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(body, sizeof(body), f, precision == 0 && type == 'g' ? 1 : precision,
                 is_percent ? a * 100 : a);
#pragma GCC diagnostic pop
        if (is_bare) {
            bare_exponent(a, precision == 0 ? 1 : precision, body);
        }
        size_t n = strlen(body);
        if (is_percent) {
            snprintf(body + n, sizeof(body) - n, "%%");
        } else if (is_bare && strpbrk(body, ".e") == NULL) {
            snprintf(body + n, sizeof(body) - n, ".0");
        }
    }
    group_digits(body, sizeof(body), s->group, 3);
    return put_number(r, b, &plain, sign_text(s, is_negative), body, is_trusted);
}

static caisson_status put_padded(trun *r, tbuf *b, const tspec *s, const tstr *text) {
    size_t n = csn_ts_count(text);
    size_t bytes = text->len;
    if (s->precision >= 0 && (uint64_t)s->precision < n) {
        n = (size_t)s->precision;
        bytes = csn_ts_offset(text, n);
    }
    int64_t gap = s->width > (int64_t)n ? s->width - (int64_t)n : 0;
    int64_t left = s->align == '>' ? gap : s->align == '^' ? gap / 2 : 0;
    CSN_TRY(csn_tr_charge_bytes(r, text->len));
    CSN_TRY(pad(r, b, s, left, true));
    CSN_TRY(csn_tb_put_sub(r, b, text, 0, bytes));
    return pad(r, b, s, gap - left, true);
}

static caisson_status put_char(trun *r, tbuf *b, const tspec *s, tval v) {
    char utf8[4];
    int64_t cp = csn_tv_as_int(v);
    size_t n = cp < 0 || cp > 0x10ffff ? 0 : csn_utf8_encode((uint32_t)cp, utf8);
    if (n == 0) {
        return csn_tr_fail(r, "%%c arg not in range(0x110000)");
    }
    tstr text = {.p = utf8, .len = n, .n_cp = 1, .is_trusted = !v.is_tainted};
    return put_padded(r, b, s, &text);
}

/* ---- % ---- */

typedef struct tpercent {
    trun *r;
    tval args;
    size_t used;
    bool is_mapping; /* a dict or list: leftover arguments are no error */
} tpercent;

static caisson_status next_arg(tpercent *p, tval *ret) {
    if (p->args.kind == V_TUPLE) {
        if (p->used < p->args.u.q->n) {
            *ret = p->args.u.q->items[p->used++];
            return CAISSON_OK;
        }
    } else if (p->used == 0) {
        p->used = 1;
        *ret = p->args;
        return CAISSON_OK;
    }
    return csn_tr_fail(p->r, "not enough arguments for format string");
}

static caisson_status number_or_star(tpercent *p, csn_str f, size_t *i, int64_t *ret) {
    if (*i < f.len && f.ptr[*i] == '*') {
        tval v;
        (*i)++;
        CSN_TRY(next_arg(p, &v));
        if (!csn_tv_is_int(v)) {
            return csn_tr_fail(p->r, "* wants int");
        }
        *ret = csn_tv_as_int(v);
        return CAISSON_OK;
    }
    *ret = 0;
    while (*i < f.len && f.ptr[*i] >= '0' && f.ptr[*i] <= '9') {
        *ret = *ret * 10 + (f.ptr[(*i)++] - '0');
        if (*ret > INT32_MAX) {
            return csn_tr_fail(p->r, "a width in a format is too large");
        }
    }
    return CAISSON_OK;
}

static caisson_status percent_spec(tpercent *p, csn_str f, size_t *i, tspec *s) {
    *s = (tspec){.precision = -1, .align = '>'};
    for (; *i < f.len && strchr("-+ 0#", f.ptr[*i]) != NULL && f.ptr[*i] != '\0'; (*i)++) {
        switch (f.ptr[*i]) {
        case '-': s->align = '<'; break;
        case '+': s->sign = '+'; break;
        case ' ': s->sign = s->sign == '+' ? '+' : ' '; break;
        case '0': s->is_zero = true; break;
        default: s->is_alt = true; break;
        }
    }
    CSN_TRY(number_or_star(p, f, i, &s->width));
    if (s->width < 0) {
        s->width = s->width < -INT32_MAX ? INT32_MAX : -s->width;
        s->align = '<';
    }
    if (*i < f.len && f.ptr[*i] == '.') {
        (*i)++;
        CSN_TRY(number_or_star(p, f, i, &s->precision));
        s->precision = s->precision < 0 ? 0 : s->precision;
    }
    while (*i < f.len && strchr("hlL", f.ptr[*i]) != NULL && f.ptr[*i] != '\0') {
        (*i)++;
    }
    if (*i >= f.len) {
        return csn_tr_fail(p->r, "incomplete format");
    }
    s->type = f.ptr[(*i)++];
    return CAISSON_OK;
}

static caisson_status percent_number(trun *r, tbuf *b, tspec *s, tval v) {
    bool is_int = strchr("diuoxX", s->type) != NULL;
    if (v.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, v);
    }
    if (!csn_tv_is_number(v) || (v.kind == V_FLOAT && strchr("oxX", s->type) != NULL)) {
        return csn_tr_fail(r, "%%%c format: a number is required, not %s", s->type,
                           csn_tv_type_name(v));
    }
    if (s->precision > MAX_PRECISION) {
        return csn_tr_fail(r, "a precision in a format is too large");
    }
    if (s->is_zero) {
        s->align = s->align == '<' ? '<' : '=';
        s->is_zero = s->align == '='; /* "%-05d" is filled with blanks */
    }
    if (!is_int) {
        return format_float(r, b, s, csn_tv_as_double(v), !v.is_tainted);
    }
    int64_t i;
    if (v.kind == V_FLOAT) {
        if (!(v.u.f > -9.2e18 && v.u.f < 9.2e18)) {
            return csn_tr_fail(r, "cannot convert this float to an integer of 64 bits");
        }
        i = (int64_t)v.u.f;
    } else {
        i = csn_tv_as_int(v);
    }
    return format_int(r, b, s, i, !v.is_tainted);
}

static caisson_status percent_value(tpercent *p, tbuf *b, tspec *s, tval v, bool is_markup) {
    trun *r = p->r;
    tval text;
    switch (s->type) {
    case 's':
        CSN_TRY(is_markup ? csn_tv_escape(r, v, &text) : csn_tv_str(r, v, &text));
        return put_padded(r, b, s, text.u.s);
    case 'r': {
        tbuf t = {0};
        CSN_TRY(csn_tv_repr(r, &t, v));
        CSN_TRY(csn_tb_finish(r, &t, &text));
        if (is_markup) {
            CSN_TRY(csn_tv_escape(r, text, &text));
        }
        return put_padded(r, b, s, text.u.s);
    }
    case 'c':
        if (v.kind == V_STR && csn_ts_count(v.u.s) == 1) {
            return put_padded(r, b, s, v.u.s);
        }
        if (!csn_tv_is_int(v)) {
            return csn_tr_fail(r, "%%c requires int or char");
        }
        s->precision = -1;
        return put_char(r, b, s, v);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return percent_number(r, b, s, v);
    case 'a': return csn_tr_fail(r, "the format %%a is not supported");
    default: return csn_tr_fail(r, "unsupported format character");
    }
}

/* "%(name)": the value of name, from a dict. */
static caisson_status percent_key(tpercent *p, const tstr *format, size_t *i, tval *ret) {
    csn_str f = csn_ts_bytes(format);
    size_t depth = 1;
    size_t from = ++*i;
    for (; *i < f.len && depth > 0; (*i)++) {
        depth += f.ptr[*i] == '(' ? 1 : 0;
        depth -= f.ptr[*i] == ')' ? 1 : 0;
    }
    if (depth > 0) {
        return csn_tr_fail(p->r, "incomplete format key");
    }
    if (p->args.kind != V_DICT) {
        return csn_tr_fail(p->r, "format requires a mapping");
    }
    tval key;
    bool is_found;
    CSN_TRY(csn_ts_sub(p->r, format, from, *i - 1 - from, &key));
    CSN_TRY(csn_tv_dict_get(p->r, p->args.u.d, key, &is_found, ret));
    return is_found ? CAISSON_OK
                    : csn_tr_fail(p->r, "KeyError: '%.*s'", CSN_STR_ARGS(csn_tv_bytes(key)));
}

caisson_status csn_tf_percent(trun *r, const tstr *format, tval args, tval *ret) {
    csn_str f = csn_ts_bytes(format);
    tpercent p = {.r = r, .args = args};
    p.is_mapping =
        args.kind == V_DICT || args.kind == V_LIST || args.kind == V_RANGE || args.kind == V_UNDEF;
    tbuf b = {0};
    size_t clean = 0;
    for (size_t i = 0; i < f.len;) {
        if (f.ptr[i] != '%') {
            i++;
            continue;
        }
        CSN_TRY(csn_tr_charge(r, 1));
        CSN_TRY(csn_tb_put_sub(r, &b, format, clean, i - clean));
        i++;
        tval value = {0};
        size_t start = i;
        if (i < f.len && f.ptr[i] == '(') {
            CSN_TRY(percent_key(&p, format, &i, &value));
        }
        tspec s;
        CSN_TRY(percent_spec(&p, f, &i, &s));
        if (s.type == '%' && i == start + 1) {
            CSN_TRY(csn_tb_put_sub(r, &b, format, start, 1));
        } else {
            if (value.kind == V_MISSING) {
                CSN_TRY(next_arg(&p, &value));
            }
            CSN_TRY(percent_value(&p, &b, &s, value, format->is_markup));
        }
        clean = i;
    }
    CSN_TRY(csn_tb_put_sub(r, &b, format, clean, f.len - clean));
    size_t given = args.kind == V_TUPLE ? args.u.q->n : 1;
    if (p.used < given && !p.is_mapping) {
        return csn_tr_fail(r, "not all arguments converted during string formatting");
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = format->is_markup;
    return CAISSON_OK;
}

/* ---- str.format ---- */

static bool is_align(csn_str s, size_t i) {
    return i < s.len && (s.ptr[i] == '<' || s.ptr[i] == '>' || s.ptr[i] == '^' || s.ptr[i] == '=');
}

static caisson_status parse_spec(trun *r, const tstr *text, tspec *s) {
    csn_str f = csn_ts_bytes(text);
    size_t i = 0;
    uint32_t cp;
    *s = (tspec){.precision = -1};
    size_t k = csn_utf8_decode(f, 0, &cp);
    if (k > 0 && is_align(f, k)) {
        CSN_TRY(csn_ts_sub(r, text, 0, k, &s->fill));
        s->align = f.ptr[k];
        i = k + 1;
    } else if (is_align(f, 0)) {
        s->align = f.ptr[i++];
    }
    if (i < f.len && (f.ptr[i] == '+' || f.ptr[i] == '-' || f.ptr[i] == ' ')) {
        s->sign = f.ptr[i++];
    }
    if (i < f.len && f.ptr[i] == '#') {
        s->is_alt = true;
        i++;
    }
    if (i < f.len && f.ptr[i] == '0') {
        s->is_zero = true;
        i++;
    }
    for (; i < f.len && f.ptr[i] >= '0' && f.ptr[i] <= '9'; i++) {
        s->width = s->width * 10 + (f.ptr[i] - '0');
        if (s->width > INT32_MAX) {
            return csn_tr_fail(r, "a width in a format is too large");
        }
    }
    if (i < f.len && (f.ptr[i] == ',' || f.ptr[i] == '_')) {
        s->group = f.ptr[i++];
    }
    if (i < f.len && f.ptr[i] == '.') {
        s->precision = 0;
        size_t from = ++i;
        for (; i < f.len && f.ptr[i] >= '0' && f.ptr[i] <= '9' && s->precision <= INT32_MAX; i++) {
            s->precision = s->precision * 10 + (f.ptr[i] - '0');
        }
        if (i == from) {
            return csn_tr_fail(r, "Format specifier missing precision");
        }
    }
    if (i < f.len) {
        s->type = f.ptr[i++];
    }
    return i < f.len ? csn_tr_fail(r, "Invalid format specifier") : CAISSON_OK;
}

static caisson_status bad_code(trun *r, char code, tval v) {
    return csn_tr_fail(r, "Unknown format code '%c' for object of type '%s'", code,
                       csn_tv_type_name(v));
}

/* format(v, spec) */
static caisson_status format_value(trun *r, tbuf *b, tval v, const tstr *spec) {
    tspec s;
    if (spec->len == 0) {
        return csn_tv_put(r, b, v);
    }
    CSN_TRY(parse_spec(r, spec, &s));
    if (v.kind == V_STR) {
        if ((s.type != 0 && s.type != 's') || s.sign != 0 || s.is_alt || s.align == '=' ||
            s.group != 0) {
            return bad_code(r, s.type != 0 ? s.type : '=', v);
        }
        tstr zero = {.p = "0", .len = 1, .n_cp = 1, .is_trusted = true};
        if (s.is_zero && s.fill.kind != V_STR) {
            s.fill = (tval){.kind = V_STR, .u.s = &zero};
        }
        return put_padded(r, b, &s, v.u.s);
    }
    if (!csn_tv_is_number(v)) {
        return csn_tr_fail(r, "unsupported format string passed to %s.__format__",
                           csn_tv_type_name(v));
    }
    if (s.precision > MAX_PRECISION || (s.is_zero && s.group != 0 && s.width > 0)) {
        return csn_tr_fail(r, "this format specifier is not supported");
    }
    bool is_float_type = s.type != 0 && strchr("eEfFgG%", s.type) != NULL;
    if (v.kind == V_FLOAT || is_float_type) {
        if (!is_float_type && s.type != 0 && s.type != 'n') {
            return bad_code(r, s.type, v);
        }
        return format_float(r, b, &s, csn_tv_as_double(v), !v.is_tainted);
    }
    if (s.type == 'c') {
        return put_char(r, b, &s, v);
    }
    if (s.type != 0 && strchr("bdoxXn", s.type) == NULL) {
        return bad_code(r, s.type, v);
    }
    if (s.precision >= 0) {
        return csn_tr_fail(r, "Precision not allowed in integer format specifier");
    }
    return format_int(r, b, &s, csn_tv_as_int(v), !v.is_tainted);
}

typedef struct tformat {
    trun *r;
    const targv *argv;
    int64_t next_auto; /* -1: fields are numbered by hand */
    bool is_manual, is_markup;
} tformat;

static caisson_status field_root(tformat *f, csn_str first, tval *ret) {
    uint64_t u;
    if (first.len == 0 || csn_str_to_u64(first, &u)) {
        bool is_auto = first.len == 0;
        if ((is_auto && f->is_manual) || (!is_auto && f->next_auto > 0)) {
            return csn_tr_fail(f->r, "cannot switch between automatic and manual field numbering");
        }
        f->is_manual = !is_auto;
        uint64_t i = is_auto ? (uint64_t)f->next_auto++ : u;
        if (i >= f->argv->n_pos) {
            return csn_tr_fail(f->r, "Replacement index %" PRIu64 " out of range", i);
        }
        *ret = f->argv->pos[i];
        return CAISSON_OK;
    }
    for (size_t i = 0; i < f->argv->n_kw; i++) {
        if (csn_str_eq(f->argv->kw_name[i], first)) {
            *ret = f->argv->kw[i];
            return CAISSON_OK;
        }
    }
    return csn_tr_fail(f->r, "KeyError: '%.*s'", CSN_STR_ARGS(first));
}

/* "name.attr[key]" */
static caisson_status field_value(tformat *f, const tstr *format, size_t from, size_t end,
                                  tval *ret) {
    const char *p = format->p;
    size_t i = from;
    while (i < end && p[i] != '.' && p[i] != '[') {
        i++;
    }
    CSN_TRY(field_root(f, csn_str_make(p + from, i - from), ret));
    while (i < end) {
        bool is_attr = p[i] == '.';
        size_t start = ++i;
        while (i < end && (is_attr ? p[i] != '.' && p[i] != '[' : p[i] != ']')) {
            i++;
        }
        csn_str name = csn_str_make(p + start, i - start);
        uint64_t u;
        tval key;
        if (name.len == 0 || (!is_attr && i == end)) {
            return csn_tr_fail(f->r, "Empty attribute in format string");
        }
        if (is_attr) {
            CSN_TRY(csn_tv_getattr(f->r, *ret, name, ret));
            continue;
        }
        if (csn_str_to_u64(name, &u) && u <= INT64_MAX) {
            key = csn_tv_int((int64_t)u);
        } else {
            CSN_TRY(csn_ts_sub(f->r, format, start, name.len, &key));
        }
        CSN_TRY(csn_tv_getitem(f->r, *ret, key, ret));
        i++;
        if (i < end && p[i] != '.' && p[i] != '[') {
            return csn_tr_fail(f->r, "Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    return CAISSON_OK;
}

static caisson_status format_into(tformat *f, tbuf *b, const tstr *format, int level);

static caisson_status field(tformat *f, tbuf *b, const tstr *format, size_t from, size_t end,
                            int level) {
    const char *p = format->p;
    size_t name_end = from;
    int open = 0;
    while (name_end < end && (open > 0 || (p[name_end] != '!' && p[name_end] != ':'))) {
        open += p[name_end] == '[' ? 1 : p[name_end] == ']' ? -1 : 0;
        name_end++;
    }
    tval v;
    CSN_TRY(field_value(f, format, from, name_end, &v));
    size_t i = name_end;
    if (i < end && p[i] == '!') {
        char conversion = i + 1 < end ? p[i + 1] : '\0';
        i += 2;
        if ((conversion != 's' && conversion != 'r') || (i < end && p[i] != ':')) {
            return csn_tr_fail(f->r, "this conversion in a format string is not supported");
        }
        if (conversion == 's') {
            CSN_TRY(csn_tv_str(f->r, v, &v));
        } else {
            tbuf t = {0};
            CSN_TRY(csn_tv_repr(f->r, &t, v));
            CSN_TRY(csn_tb_finish(f->r, &t, &v));
        }
    }
    tval spec;
    CSN_TRY(csn_ts_sub(f->r, format, i < end ? i + 1 : end, i < end ? end - i - 1 : 0, &spec));
    if (memchr(spec.u.s->p, '{', spec.u.s->len) != NULL) {
        tbuf t = {0};
        CSN_TRY(format_into(f, &t, spec.u.s, level + 1));
        CSN_TRY(csn_tb_finish(f->r, &t, &spec));
    }
    if (f->is_markup && spec.u.s->len == 0) {
        CSN_TRY(csn_tv_escape(f->r, v, &v));
    }
    return format_value(f->r, b, v, spec.u.s);
}

static caisson_status format_into(tformat *f, tbuf *b, const tstr *format, int level) {
    if (level > 1) {
        return csn_tr_fail(f->r, "Max string recursion exceeded");
    }
    const char *p = format->p;
    size_t clean = 0;
    size_t i = 0;
    while (i < format->len) {
        if (p[i] != '{' && p[i] != '}') {
            i++;
            continue;
        }
        CSN_TRY(csn_tr_charge(f->r, 1));
        bool is_double = i + 1 < format->len && p[i + 1] == p[i];
        CSN_TRY(csn_tb_put_sub(f->r, b, format, clean, i - clean + is_double));
        if (is_double) {
            i += 2;
            clean = i;
            continue;
        }
        if (p[i] == '}') {
            return csn_tr_fail(f->r, "Single '}' encountered in format string");
        }
        size_t from = ++i;
        int open = 1;
        for (; i < format->len && open > 0; i++) {
            open += p[i] == '{' ? 1 : p[i] == '}' ? -1 : 0;
        }
        if (open > 0) {
            return csn_tr_fail(f->r, "expected '}' before end of string");
        }
        CSN_TRY(field(f, b, format, from, i - 1, level));
        clean = i;
    }
    return csn_tb_put_sub(f->r, b, format, clean, format->len - clean);
}

caisson_status csn_tf_format(trun *r, const tstr *format, const targv *a, tval *ret) {
    tformat f = {.r = r, .argv = a, .is_markup = format->is_markup};
    tbuf b = {0};
    CSN_TRY(format_into(&f, &b, format, 0));
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = format->is_markup;
    return CAISSON_OK;
}
