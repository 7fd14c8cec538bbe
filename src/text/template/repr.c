/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: str(), repr() and json.dumps() of Python. The characters of a string keep their
 * marks; what stands around them (brackets, quotes, escapes) has the mark of the value it belongs
 * to. */
#include "text/template/ast_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/template/pychar_internal.h"

int csn_float_repr(double f, char out[FLOAT_TEXT]) {
    if (!isfinite(f)) {
        return snprintf(out, FLOAT_TEXT, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    }
    char d[CSN_MAX_DIGITS];
    int exponent;
    int n = csn_number_digits(f, false, d, &exponent);
    int o = 0;
    if (signbit(f)) {
        out[o++] = '-';
    }
    if (exponent < -4 || exponent >= 16) {
        out[o++] = d[0];
        if (n > 1) {
            out[o++] = '.';
            memcpy(out + o, d + 1, (size_t)n - 1);
            o += n - 1;
        }
        return o + snprintf(out + o, FLOAT_TEXT - (size_t)o, "e%c%02d", exponent < 0 ? '-' : '+',
                            abs(exponent));
    }
    int whole = exponent < 0 ? 0 : exponent + 1; /* digits before the point */
    if (whole == 0) {
        out[o++] = '0';
    }
    for (int i = 0; i < whole; i++) {
        out[o++] = i < n ? d[i] : '0';
    }
    out[o++] = '.';
    for (int i = exponent + 1; i < 0; i++) {
        out[o++] = '0';
    }
    for (int i = whole; i < n; i++) {
        out[o++] = d[i];
    }
    if (n <= whole) {
        out[o++] = '0';
    }
    out[o] = '\0';
    return o;
}

static caisson_status put_z(trun *r, tbuf *b, const char *z, bool is_trusted) {
    return csn_tb_put(r, b, z, strlen(z), is_trusted);
}

/* Numbers, booleans and none. */
static caisson_status put_scalar(trun *r, tbuf *b, tval v) {
    char t[FLOAT_TEXT];
    switch ((tkind)v.kind) {
    case V_NONE: return put_z(r, b, "None", !v.is_tainted);
    case V_BOOL: return put_z(r, b, v.u.b ? "True" : "False", !v.is_tainted);
    case V_INT: snprintf(t, sizeof(t), "%" PRId64, v.u.i); return put_z(r, b, t, !v.is_tainted);
    default: csn_float_repr(v.u.f, t); return put_z(r, b, t, !v.is_tainted);
    }
}

static caisson_status repr_string(trun *r, tbuf *b, const tstr *s) {
    bool has_single = memchr(s->p, '\'', s->len) != NULL;
    char quote = has_single && memchr(s->p, '"', s->len) == NULL ? '"' : '\'';
    bool edge = !csn_ts_any_untrusted(s);
    if (s->is_markup) {
        CSN_TRY(put_z(r, b, "Markup(", edge));
    }
    CSN_TRY(csn_tb_put(r, b, &quote, 1, edge));
    size_t clean = 0;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0xfffd;
        size_t k = csn_utf8_decode(csn_ts_bytes(s), i, &cp);
        char t[16];
        if (cp == '\\' || cp == (uint32_t)quote) {
            snprintf(t, sizeof(t), "\\%c", (int)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(t, sizeof(t), "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        } else if (csn_py_is_printable(cp)) {
            i += k;
            continue;
        } else {
            snprintf(t, sizeof(t),
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        }
        CSN_TRY(csn_tb_put_sub(r, b, s, clean, i - clean));
        CSN_TRY(put_z(r, b, t, s->marks != NULL ? s->marks[i] != 0 : s->is_trusted));
        i += k;
        clean = i;
    }
    CSN_TRY(csn_tb_put_sub(r, b, s, clean, s->len - clean));
    CSN_TRY(csn_tb_put(r, b, &quote, 1, edge));
    return s->is_markup ? put_z(r, b, ")", edge) : CAISSON_OK;
}

static caisson_status repr_seq(trun *r, tbuf *b, tval v) {
    const tseq *q = v.u.q;
    bool mark = !q->is_tainted;
    bool is_tuple = v.kind == V_TUPLE;
    CSN_TRY(put_z(r, b, is_tuple ? "(" : "[", mark));
    for (size_t i = 0; i < q->n; i++) {
        if (i > 0) {
            CSN_TRY(put_z(r, b, ", ", mark));
        }
        CSN_TRY(csn_tv_repr(r, b, q->items[i]));
    }
    return put_z(r, b, !is_tuple ? "]" : q->n == 1 ? ",)" : ")", mark);
}

static caisson_status repr_dict(trun *r, tbuf *b, const tdict *d) {
    bool mark = !d->is_tainted;
    CSN_TRY(put_z(r, b, "{", mark));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0) {
            CSN_TRY(put_z(r, b, ", ", mark));
        }
        CSN_TRY(csn_tv_repr(r, b, d->pairs[i].key));
        CSN_TRY(put_z(r, b, ": ", mark));
        CSN_TRY(csn_tv_repr(r, b, d->pairs[i].value));
    }
    return put_z(r, b, "}", mark);
}

static caisson_status repr_range(trun *r, tbuf *b, tval v) {
    char t[96];
    const trange *g = v.u.r;
    int n = snprintf(t, sizeof(t), "range(%" PRId64 ", %" PRId64, g->start, g->stop);
    if (g->step != 1) {
        snprintf(t + n, sizeof(t) - (size_t)n, ", %" PRId64, g->step);
    }
    CSN_TRY(put_z(r, b, t, !v.is_tainted));
    return put_z(r, b, ")", !v.is_tainted);
}

static caisson_status repr_container(trun *r, tbuf *b, tval v) {
    switch ((tkind)v.kind) {
    case V_LIST:
    case V_TUPLE: return repr_seq(r, b, v);
    case V_DICT: return repr_dict(r, b, v.u.d);
    case V_RANGE: return repr_range(r, b, v);
    case V_VIEW:
        CSN_TRY(put_z(r, b, v.u.q->origin, !v.u.q->is_tainted));
        CSN_TRY(put_z(r, b, "(", !v.u.q->is_tainted));
        CSN_TRY(repr_seq(r, b, v));
        return put_z(r, b, ")", !v.u.q->is_tainted);
    case V_NAMESPACE:
        CSN_TRY(put_z(r, b, "<Namespace ", true));
        CSN_TRY(repr_dict(r, b, v.u.d));
        return put_z(r, b, ">", true);
    case V_MACRO: {
        const csn_str name = v.u.macro->macro->name;
        if (v.u.macro->macro->is_anonymous) {
            return put_z(r, b, "<Macro anonymous>", true);
        }
        CSN_TRY(put_z(r, b, "<Macro '", true));
        CSN_TRY(csn_tb_put(r, b, name.ptr, name.len, true));
        return put_z(r, b, "'>", true);
    }
    case V_LOOP: {
        int64_t n;
        char t[64];
        CSN_TRY(csn_tv_len(r, v, &n));
        snprintf(t, sizeof(t), "<LoopContext %" PRId64 "/%" PRId64 ">", v.u.loop->index0 + 1, n);
        return put_z(r, b, t, true);
    }
    default:
        /* Python would write an address in memory here. */
        return csn_tr_fail(r, "a value of type '%s' cannot be written as text",
                           csn_tv_type_name(v));
    }
}

caisson_status csn_tv_repr(trun *r, tbuf *b, tval v) {
    CSN_TRY(csn_tr_charge(r, 1));
    switch ((tkind)v.kind) {
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT: return put_scalar(r, b, v);
    case V_STR: return repr_string(r, b, v.u.s);
    case V_UNDEF: return put_z(r, b, "Undefined", true);
    default: {
        CSN_TRY(csn_tr_enter(r));
        caisson_status s = repr_container(r, b, v);
        csn_tr_leave(r);
        return s;
    }
    }
}

caisson_status csn_tv_put(trun *r, tbuf *b, tval v) {
    if (v.kind == V_STR) {
        return csn_tb_put_str(r, b, v.u.s);
    }
    return v.kind == V_UNDEF ? CAISSON_OK : csn_tv_repr(r, b, v);
}

caisson_status csn_tv_str(trun *r, tval v, tval *ret) {
    if (v.kind == V_STR) {
        *ret = v;
        if (v.u.s->is_markup) {
            CSN_TRY(csn_ts_sub(r, v.u.s, 0, v.u.s->len, ret));
            ret->u.s->is_markup = false;
        }
        return CAISSON_OK;
    }
    tbuf b = {0};
    CSN_TRY(csn_tv_put(r, &b, v));
    return csn_tb_finish(r, &b, ret);
}

/* ---- JSON ---- */

static caisson_status json_string(trun *r, tbuf *b, const tstr *s, bool is_ascii) {
    bool edge = !csn_ts_any_untrusted(s);
    CSN_TRY(put_z(r, b, "\"", edge));
    size_t clean = 0;
    for (size_t i = 0; i < s->len;) {
        unsigned char c = (unsigned char)s->p[i];
        uint32_t cp = c;
        size_t k = 1;
        char t[16];
        const char *simple = c == 0 ? NULL : strchr("\"\\\n\r\t\f\b", c);
        if (c >= 0x7f && is_ascii) { /* DEL is escaped as well */
            k = csn_utf8_decode(csn_ts_bytes(s), i, &cp);
            if (cp < 0x10000) {
                snprintf(t, sizeof(t), "\\u%04x", cp);
            } else {
                snprintf(t, sizeof(t), "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                         0xdc00 + ((cp - 0x10000) & 0x3ff));
            }
        } else if (simple != NULL) {
            snprintf(t, sizeof(t), "\\%c", "\"\\nrtfb"[simple - "\"\\\n\r\t\f\b"]);
        } else if (c < 0x20) {
            snprintf(t, sizeof(t), "\\u%04x", c);
        } else {
            i++;
            continue;
        }
        CSN_TRY(csn_tb_put_sub(r, b, s, clean, i - clean));
        CSN_TRY(put_z(r, b, t, s->marks != NULL ? s->marks[i] != 0 : s->is_trusted));
        i += k;
        clean = i;
    }
    CSN_TRY(csn_tb_put_sub(r, b, s, clean, s->len - clean));
    return put_z(r, b, "\"", edge);
}

static caisson_status json_scalar(trun *r, tbuf *b, tval v) {
    if (v.kind == V_NONE || v.kind == V_BOOL) {
        return put_z(r, b, v.kind == V_NONE ? "null" : v.u.b ? "true" : "false", !v.is_tainted);
    }
    if (v.kind == V_FLOAT && !isfinite(v.u.f)) {
        return put_z(r, b,
                     isnan(v.u.f) ? "NaN"
                     : v.u.f < 0  ? "-Infinity"
                                  : "Infinity",
                     !v.is_tainted);
    }
    return put_scalar(r, b, v);
}

static caisson_status json_line(trun *r, tbuf *b, const tjson_options *o, unsigned level,
                                bool mark) {
    if (!o->has_indent) {
        return CAISSON_OK;
    }
    CSN_TRY(put_z(r, b, "\n", mark));
    for (unsigned i = 0; i < level; i++) {
        CSN_TRY(csn_tb_put(r, b, o->indent.ptr, o->indent.len, mark));
    }
    return CAISSON_OK;
}

static caisson_status json_key(trun *r, tbuf *b, tval key, const tjson_options *o) {
    if (key.kind == V_STR) {
        return json_string(r, b, key.u.s, o->ensure_ascii);
    }
    if (key.kind != V_NONE && !csn_tv_is_number(key)) {
        return csn_tr_fail(r, "keys must be str, int, float, bool or None, not %s",
                           csn_tv_type_name(key));
    }
    CSN_TRY(put_z(r, b, "\"", !key.is_tainted));
    CSN_TRY(json_scalar(r, b, key));
    return put_z(r, b, "\"", !key.is_tainted);
}

static caisson_status json_dict(trun *r, tbuf *b, const tdict *d, const tjson_options *o,
                                unsigned level) {
    bool mark = !d->is_tainted;
    size_t *order = NULL;
    if (d->n == 0) {
        return put_z(r, b, "{}", mark);
    }
    if (o->sort_keys) {
        tval *keys;
        tval *at;
        CSN_TRY(TR_NEW(r, d->n, &keys));
        CSN_TRY(TR_NEW(r, d->n, &at));
        CSN_TRY(TR_NEW(r, d->n, &order));
        for (size_t i = 0; i < d->n; i++) {
            keys[i] = d->pairs[i].key;
            at[i] = csn_tv_int((int64_t)i);
        }
        CSN_TRY(csn_tv_sort(r, at, keys, d->n, false));
        for (size_t i = 0; i < d->n; i++) {
            order[i] = (size_t)at[i].u.i;
        }
    }
    CSN_TRY(put_z(r, b, "{", mark));
    for (size_t i = 0; i < d->n; i++) {
        const tpair *p = &d->pairs[order != NULL ? order[i] : i];
        if (i > 0) {
            CSN_TRY(csn_tb_put(r, b, o->item_sep.ptr, o->item_sep.len, mark));
        }
        CSN_TRY(json_line(r, b, o, level + 1, mark));
        CSN_TRY(json_key(r, b, p->key, o));
        CSN_TRY(csn_tb_put(r, b, o->key_sep.ptr, o->key_sep.len, mark));
        CSN_TRY(csn_tv_json(r, b, p->value, o, level + 1));
    }
    CSN_TRY(json_line(r, b, o, level, mark));
    return put_z(r, b, "}", mark);
}

static caisson_status json_seq(trun *r, tbuf *b, const tseq *q, const tjson_options *o,
                               unsigned level) {
    bool mark = !q->is_tainted;
    if (q->n == 0) {
        return put_z(r, b, "[]", mark);
    }
    CSN_TRY(put_z(r, b, "[", mark));
    for (size_t i = 0; i < q->n; i++) {
        if (i > 0) {
            CSN_TRY(csn_tb_put(r, b, o->item_sep.ptr, o->item_sep.len, mark));
        }
        CSN_TRY(json_line(r, b, o, level + 1, mark));
        CSN_TRY(csn_tv_json(r, b, q->items[i], o, level + 1));
    }
    CSN_TRY(json_line(r, b, o, level, mark));
    return put_z(r, b, "]", mark);
}

caisson_status csn_tv_json(trun *r, tbuf *b, tval v, const tjson_options *o, unsigned level) {
    CSN_TRY(csn_tr_charge(r, 1));
    switch ((tkind)v.kind) {
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT: return json_scalar(r, b, v);
    case V_STR: return json_string(r, b, v.u.s, o->ensure_ascii);
    case V_LIST:
    case V_TUPLE:
    case V_DICT: {
        CSN_TRY(csn_tr_enter(r));
        caisson_status s =
            v.kind == V_DICT ? json_dict(r, b, v.u.d, o, level) : json_seq(r, b, v.u.q, o, level);
        csn_tr_leave(r);
        return s;
    }
    case V_UNDEF: return csn_tr_fail(r, "Object of type Undefined is not JSON serializable");
    default:
        return csn_tr_fail(r, "Object of type %s is not JSON serializable", csn_tv_type_name(v));
    }
}
