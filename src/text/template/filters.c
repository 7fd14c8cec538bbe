/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on text, and the table of all filters of jinja2; numfilters.c and seqfilters.c have the
 * others. A filter is a function and a row. */
#include "text/template/filters_internal.h"

#include <stdio.h>

#include "base/utf8.h"
#include "text/template/pychar_internal.h"

/* soft_str: strings stay as they are (also Markup), the rest becomes text. */
static caisson_status soft(trun *r, tval v, tval *ret) {
    *ret = v;
    return v.kind == V_STR ? CAISSON_OK : csn_tv_str(r, v, ret);
}

caisson_status csn_filter_int_arg(trun *r, tval v, int64_t deflt, int64_t *ret) {
    *ret = deflt;
    if (v.kind == V_MISSING) {
        return CAISSON_OK;
    }
    if (v.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, v);
    }
    if (!csn_tv_is_int(v)) {
        return csn_tr_fail(r, "'%s' object cannot be interpreted as an integer",
                           csn_tv_type_name(v));
    }
    *ret = csn_tv_as_int(v);
    return CAISSON_OK;
}

caisson_status csn_filter_bool_arg(trun *r, tval v, bool *ret) {
    return csn_tv_truth(r, v, ret); /* V_MISSING is false */
}

/* ---- text ---- */

static caisson_status cased(trun *r, const tcall *c, tcase_op op, tval *ret) {
    tval s;
    CSN_TRY(soft(r, c->self, &s));
    return csn_sm_case(r, s.u.s, op, ret);
}
static caisson_status f_upper(trun *r, const tcall *c, tval *ret) {
    return cased(r, c, OP_UPPER, ret);
}
static caisson_status f_lower(trun *r, const tcall *c, tval *ret) {
    return cased(r, c, OP_LOWER, ret);
}
static caisson_status f_capitalize(trun *r, const tcall *c, tval *ret) {
    return cased(r, c, OP_CAPITALIZE, ret);
}
static caisson_status f_title(trun *r, const tcall *c, tval *ret) {
    CSN_TRY(cased(r, c, OP_TITLE_FILTER, ret));
    ret->u.s->is_markup = false;
    return CAISSON_OK;
}

static caisson_status f_trim(trun *r, const tcall *c, tval *ret) {
    tval s;
    CSN_TRY(soft(r, c->self, &s));
    return csn_sm_strip(r, s.u.s, c->arg[0], STRIP_LEFT | STRIP_RIGHT, ret);
}

static caisson_status f_string(trun *r, const tcall *c, tval *ret) {
    return soft(r, c->self, ret);
}

static caisson_status f_safe(trun *r, const tcall *c, tval *ret) {
    tval s;
    CSN_TRY(csn_tv_str(r, c->self, &s));
    CSN_TRY(csn_ts_sub(r, s.u.s, 0, s.u.s->len, ret));
    ret->u.s->is_markup = true;
    return CAISSON_OK;
}

static caisson_status f_escape(trun *r, const tcall *c, tval *ret) {
    return csn_tv_escape(r, c->self, ret);
}

static caisson_status f_forceescape(trun *r, const tcall *c, tval *ret) {
    tval s;
    CSN_TRY(csn_tv_str(r, c->self, &s));
    return csn_tv_escape(r, s, ret);
}

static caisson_status f_replace(trun *r, const tcall *c, tval *ret) {
    tval s;
    tval from;
    tval to;
    int64_t count;
    CSN_TRY(csn_tv_str(r, c->self, &s));
    CSN_TRY(csn_tv_str(r, c->arg[0], &from));
    CSN_TRY(csn_tv_str(r, c->arg[1], &to));
    CSN_TRY(csn_filter_int_arg(r, c->arg[2].kind == V_NONE ? (tval){0} : c->arg[2], -1, &count));
    return csn_sm_replace(r, s.u.s, from.u.s, to.u.s, count, ret);
}

static caisson_status f_center(trun *r, const tcall *c, tval *ret) {
    static const tstr blank = {.p = " ", .len = 1, .n_cp = 1, .is_trusted = true};
    tval s;
    int64_t width;
    CSN_TRY(soft(r, c->self, &s));
    CSN_TRY(csn_filter_int_arg(r, c->arg[0], 80, &width));
    return csn_sm_center(r, s.u.s, width, &blank, ret);
}

static caisson_status f_format(trun *r, const tcall *c, tval *ret) {
    const targv *a = c->argv;
    tval s;
    tval args;
    CSN_TRY(soft(r, c->self, &s));
    if (a->n_pos > 0 && a->n_kw > 0) {
        return csn_tr_fail(
            r, "format: can't handle positional and keyword arguments at the same time");
    }
    if (a->n_kw > 0) {
        CSN_TRY(csn_tv_dict_new(r, a->n_kw, &args));
        for (size_t i = 0; i < a->n_kw; i++) {
            tval key;
            CSN_TRY(csn_tx_keyword(r, a, i, &key));
            CSN_TRY(csn_tv_dict_set(r, args.u.d, key, a->kw[i]));
        }
    } else {
        CSN_TRY(csn_tv_list(r, a->n_pos, V_TUPLE, &args));
        for (size_t i = 0; i < a->n_pos; i++) {
            args.u.q->items[i] = a->pos[i];
        }
    }
    return csn_tf_percent(r, s.u.s, args, ret);
}

static caisson_status f_indent(trun *r, const tcall *c, tval *ret) {
    static const tstr blank = {.p = " ", .len = 1, .n_cp = 1, .is_trusted = true};
    tbuf pad = {0};
    tval indent = c->arg[0];
    tval lines;
    tbuf b = {0};
    bool has_first;
    bool has_blank;
    if (c->self.kind != V_STR) {
        return c->self.kind == V_UNDEF
                   ? csn_tv_undef_fail(r, c->self)
                   : csn_tr_fail(r, "indent needs a str, not %s", csn_tv_type_name(c->self));
    }
    const tstr *s = c->self.u.s;
    if (indent.kind != V_STR) {
        int64_t width;
        CSN_TRY(csn_filter_int_arg(r, c->arg[0], 4, &width));
        CSN_TRY(csn_tb_fill(r, &pad, &blank, width));
        CSN_TRY(csn_tb_finish(r, &pad, &indent));
    }
    CSN_TRY(csn_filter_bool_arg(r, c->arg[1], &has_first));
    CSN_TRY(csn_filter_bool_arg(r, c->arg[2], &has_blank));
    /* jinja2 adds a line break before it splits: a text that ends in one gets one more line. */
    tbuf whole = {0};
    tval text;
    CSN_TRY(csn_tb_put_str(r, &whole, s));
    CSN_TRY(csn_tb_put(r, &whole, "\n", 1, true));
    CSN_TRY(csn_tb_finish(r, &whole, &text));
    CSN_TRY(csn_sm_lines(r, text.u.s, false, &lines));
    const tseq *q = lines.u.q;
    for (size_t i = 0; i < q->n; i++) {
        if (i > 0) {
            CSN_TRY(csn_tb_put(r, &b, "\n", 1, true));
        }
        if (i == 0 ? has_first : has_blank || q->items[i].u.s->len > 0) {
            CSN_TRY(csn_tb_put_str(r, &b, indent.u.s));
        }
        CSN_TRY(csn_tb_put_str(r, &b, q->items[i].u.s));
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return CAISSON_OK;
}

static caisson_status f_truncate(trun *r, const tcall *c, tval *ret) {
    static const tstr dots = {.p = "...", .len = 3, .n_cp = 3, .is_trusted = true};
    int64_t length;
    int64_t leeway;
    bool kills;
    const tstr *end = &dots;
    int64_t n;
    CSN_TRY(csn_tv_len(r, c->self, &n));
    if (c->self.kind != V_STR && n <= 255 && c->arg[0].kind == V_MISSING) {
        *ret = c->self; /* a short list or dict passes as it is */
        return CAISSON_OK;
    }
    if (c->self.kind != V_STR || (c->arg[2].kind != V_MISSING && c->arg[2].kind != V_STR)) {
        return csn_tr_fail(r, "truncate needs a str");
    }
    const tstr *s = c->self.u.s;
    if (c->arg[2].kind == V_STR) {
        end = c->arg[2].u.s;
    }
    CSN_TRY(csn_filter_int_arg(r, c->arg[0], 255, &length));
    CSN_TRY(csn_filter_bool_arg(r, c->arg[1], &kills));
    CSN_TRY(csn_filter_int_arg(r, c->arg[3].kind == V_NONE ? (tval){0} : c->arg[3], 5, &leeway));
    int64_t n_end = (int64_t)csn_ts_count(end);
    if (length < n_end || leeway < 0) {
        return csn_tr_fail(r, "truncate: the length or the leeway is too small");
    }
    if (n - leeway <= length) {
        *ret = c->self;
        return CAISSON_OK;
    }
    size_t cut = csn_ts_offset(s, (size_t)(length - n_end));
    if (!kills) {
        size_t at;
        CSN_TRY(csn_ts_rfind(r, csn_str_make(s->p, cut), CSN_STR(" "), &at));
        cut = at == SIZE_MAX ? cut : at;
    }
    tbuf b = {0};
    CSN_TRY(csn_tb_put_sub(r, &b, s, 0, cut));
    CSN_TRY(csn_tb_put_str(r, &b, end));
    return csn_tb_finish(r, &b, ret);
}

static caisson_status f_wordcount(trun *r, const tcall *c, tval *ret) {
    tval s;
    int64_t n = 0;
    bool was_word = false;
    CSN_TRY(soft(r, c->self, &s));
    CSN_TRY(csn_tr_charge_bytes(r, s.u.s->len));
    for (size_t i = 0; i < s.u.s->len;) {
        uint32_t cp = 0;
        i += csn_utf8_decode(csn_tv_bytes(s), i, &cp);
        bool is_word = cp == '_' || csn_py_is_alpha(cp) || csn_py_is_numeric(cp);
        n += is_word && !was_word;
        was_word = is_word;
    }
    *ret = csn_tv_int(n);
    ret->is_tainted = csn_ts_any_untrusted(s.u.s);
    return CAISSON_OK;
}

static caisson_status quote(trun *r, tbuf *b, tval v, bool is_query) {
    tval s;
    CSN_TRY(csn_tv_str(r, v, &s));
    for (size_t i = 0; i < s.u.s->len; i++) {
        unsigned char ch = (unsigned char)s.u.s->p[i];
        char t[4];
        int n = snprintf(t, sizeof(t), "%%%02X", ch);
        bool is_plain = (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') ||
                        (ch > 0 && strchr(is_query ? "_.-~" : "_.-~/", ch) != NULL);
        if (is_plain || (is_query && ch == ' ')) {
            t[0] = ch == ' ' ? '+' : (char)ch;
            n = 1;
        }
        CSN_TRY(csn_tb_put(r, b, t, (size_t)n,
                           s.u.s->marks != NULL ? s.u.s->marks[i] != 0 : s.u.s->is_trusted));
    }
    return CAISSON_OK;
}

static caisson_status f_urlencode(trun *r, const tcall *c, tval *ret) {
    tbuf b = {0};
    tval *items;
    size_t n;
    if (c->self.kind == V_STR || !csn_tv_is_iterable(c->self)) {
        CSN_TRY(quote(r, &b, c->self, false));
        return csn_tb_finish(r, &b, ret);
    }
    if (c->self.kind != V_DICT) {
        CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    } else {
        n = c->self.u.d->n;
        items = NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (items != NULL &&
            ((items[i].kind != V_TUPLE && items[i].kind != V_LIST) || items[i].u.q->n != 2)) {
            return csn_tr_fail(r, "urlencode needs pairs");
        }
        if (i > 0) {
            CSN_TRY(csn_tb_put(r, &b, "&", 1, true));
        }
        CSN_TRY(
            quote(r, &b, items != NULL ? items[i].u.q->items[0] : c->self.u.d->pairs[i].key, true));
        CSN_TRY(csn_tb_put(r, &b, "=", 1, true));
        CSN_TRY(quote(r, &b, items != NULL ? items[i].u.q->items[1] : c->self.u.d->pairs[i].value,
                      true));
    }
    return csn_tb_finish(r, &b, ret);
}

static caisson_status f_xmlattr(trun *r, const tcall *c, tval *ret) {
    tbuf b = {0};
    bool has_space = true;
    if (c->self.kind != V_DICT) {
        return c->self.kind == V_UNDEF ? csn_tv_undef_fail(r, c->self)
                                       : csn_tr_fail(r, "xmlattr needs a dict");
    }
    if (c->arg[0].kind != V_MISSING) {
        CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &has_space));
    }
    const tdict *d = c->self.u.d;
    for (size_t i = 0; i < d->n; i++) {
        tval key = d->pairs[i].key;
        tval value = d->pairs[i].value;
        if (value.kind == V_NONE || value.kind == V_UNDEF) {
            continue;
        }
        if (key.kind != V_STR) {
            return csn_tr_fail(r, "expected string or bytes-like object, got '%s'",
                               csn_tv_type_name(key));
        }
        for (size_t k = 0; k < key.u.s->len; k++) {
            char ch = key.u.s->p[k];
            if (ch == ' ' || (ch >= 9 && ch <= 13) || ch == '/' || ch == '>' || ch == '=') {
                return csn_tr_fail(r, "Invalid character in attribute name");
            }
        }
        CSN_TRY(csn_tv_escape(r, key, &key));
        CSN_TRY(csn_tv_escape(r, value, &value));
        if (b.len > 0 || has_space) {
            CSN_TRY(csn_tb_put(r, &b, " ", 1, true));
        }
        CSN_TRY(csn_tb_put_str(r, &b, key.u.s));
        CSN_TRY(csn_tb_put(r, &b, "=\"", 2, true));
        CSN_TRY(csn_tb_put_str(r, &b, value.u.s));
        CSN_TRY(csn_tb_put(r, &b, "\"", 1, true));
    }
    return csn_tb_finish(r, &b, ret);
}

/* json.dumps as transformers exposes it. */
static caisson_status f_tojson(trun *r, const tcall *c, tval *ret) {
    static const tstr blank = {.p = " ", .len = 1, .n_cp = 1, .is_trusted = true};
    tjson_options o = {.item_sep = CSN_STR(", "), .key_sep = CSN_STR(": ")};
    tbuf b = {0};
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &o.ensure_ascii));
    CSN_TRY(csn_filter_bool_arg(r, c->arg[3], &o.sort_keys));
    if (c->arg[1].kind != V_MISSING && c->arg[1].kind != V_NONE) {
        tval indent = c->arg[1];
        if (indent.kind != V_STR) {
            int64_t n;
            CSN_TRY(csn_filter_int_arg(r, indent, 0, &n));
            CSN_TRY(csn_tb_fill(r, &b, &blank, n));
            CSN_TRY(csn_tb_finish(r, &b, &indent));
            b = (tbuf){0};
        }
        o.has_indent = true;
        o.indent = csn_tv_bytes(indent);
        o.item_sep = CSN_STR(",");
    }
    if (c->arg[2].kind != V_MISSING && c->arg[2].kind != V_NONE) {
        tval sep = c->arg[2];
        if ((sep.kind != V_TUPLE && sep.kind != V_LIST) || sep.u.q->n != 2 ||
            sep.u.q->items[0].kind != V_STR || sep.u.q->items[1].kind != V_STR) {
            return csn_tr_fail(r, "tojson: separators must be a pair of strings");
        }
        o.item_sep = csn_tv_bytes(sep.u.q->items[0]);
        o.key_sep = csn_tv_bytes(sep.u.q->items[1]);
    }
    CSN_TRY(csn_tv_json(r, &b, c->self, &o, 0));
    return csn_tb_finish(r, &b, ret);
}

static caisson_status f_default(trun *r, const tcall *c, tval *ret) {
    bool is_boolean;
    bool truth;
    CSN_TRY(csn_filter_bool_arg(r, c->arg[1], &is_boolean));
    CSN_TRY(csn_tv_truth(r, c->self, &truth));
    if (c->self.kind == V_UNDEF || (is_boolean && !truth)) {
        if (c->arg[0].kind == V_MISSING) {
            return csn_ts_view(r, CSN_STR(""), true, ret);
        }
        *ret = c->arg[0];
    } else {
        *ret = c->self;
    }
    return CAISSON_OK;
}

static caisson_status f_attr(trun *r, const tcall *c, tval *ret) {
    if (c->arg[0].kind != V_STR) {
        return csn_tr_fail(r, "attribute name must be string, not '%s'",
                           csn_tv_type_name(c->arg[0]));
    }
    csn_str name = csn_tv_bytes(c->arg[0]);
    CSN_TRY(csn_tv_getattr(r, c->self, name, ret));
    bool is_unsafe = false;
    if (c->self.kind == V_DICT && csn_method_find(c->self, name, &is_unsafe) == NULL) {
        return csn_tv_undef(r, name, "dict", NULL, ret); /* no look into the items */
    }
    return CAISSON_OK;
}

static caisson_status f_length(trun *r, const tcall *c, tval *ret) {
    *ret = csn_tv_int(0);
    CSN_TRY(csn_tv_len(r, c->self, &ret->u.i));
    ret->is_tainted = csn_tv_is_tainted(c->self);
    return CAISSON_OK;
}

/* fn NULL: jinja2 has it, we do not; a template that uses it is refused when it is compiled. */
static const tbuiltin filters[] = {
    {"abs", csn_f_abs, "", 0, false},
    {"attr", f_attr, "name", 1, false},
    {"batch", csn_f_batch, "linecount,fill_with", 1, false},
    {"capitalize", f_capitalize, "", 0, false},
    {"center", f_center, "width", 0, false},
    {"count", f_length, "", 0, false},
    {"d", f_default, "default_value,boolean", 0, false},
    {"default", f_default, "default_value,boolean", 0, false},
    {"dictsort", csn_f_dictsort, "case_sensitive,by,reverse", 0, false},
    {"e", f_escape, "", 0, false},
    {"escape", f_escape, "", 0, false},
    {"filesizeformat", csn_f_filesizeformat, "binary", 0, false},
    {"first", csn_f_first, "", 0, false},
    {"float", csn_f_float, "default", 0, false},
    {"forceescape", f_forceescape, "", 0, false},
    {"format", f_format, NULL, 0, false},
    {"groupby", csn_f_groupby, "attribute,default,case_sensitive", 1, false},
    {"indent", f_indent, "width,first,blank", 0, false},
    {"int", csn_f_int, "default,base", 0, false},
    {"items", csn_f_items, "", 0, false},
    {"join", csn_f_join, "d,attribute", 0, false},
    {"last", csn_f_last, "", 0, false},
    {"length", f_length, "", 0, false},
    {"list", csn_f_list, "", 0, false},
    {"lower", f_lower, "", 0, false},
    {"map", csn_f_map, NULL, 0, false},
    {"max", csn_f_max, "case_sensitive,attribute", 0, false},
    {"min", csn_f_min, "case_sensitive,attribute", 0, false},
    {"pprint", NULL, NULL, 0, false},
    {"random", NULL, NULL, 0, false},
    {"reject", csn_f_reject, NULL, 0, false},
    {"rejectattr", csn_f_rejectattr, NULL, 0, false},
    {"replace", f_replace, "old,new,count", 2, false},
    {"reverse", csn_f_reverse, "", 0, false},
    {"round", csn_f_round, "precision,method", 0, false},
    {"safe", f_safe, "", 0, false},
    {"select", csn_f_select, NULL, 0, false},
    {"selectattr", csn_f_selectattr, NULL, 0, false},
    {"slice", csn_f_slice, "slices,fill_with", 1, false},
    {"sort", csn_f_sort, "reverse,case_sensitive,attribute", 0, false},
    {"string", f_string, "", 0, false},
    {"striptags", NULL, NULL, 0, false},
    {"sum", csn_f_sum, "attribute,start", 0, false},
    {"title", f_title, "", 0, false},
    {"tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys", 0, false},
    {"trim", f_trim, "chars", 0, false},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0, false},
    {"unique", csn_f_unique, "case_sensitive,attribute", 0, false},
    {"upper", f_upper, "", 0, false},
    {"urlencode", f_urlencode, "", 0, false},
    {"urlize", NULL, NULL, 0, false},
    {"wordcount", f_wordcount, "", 0, false},
    {"wordwrap", NULL, NULL, 0, false},
    {"xmlattr", f_xmlattr, "autospace", 0, false},
};

const tbuiltin *csn_filter_find(csn_str name) {
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (csn_str_is(name, filters[i].name)) {
            return &filters[i];
        }
    }
    return NULL;
}
