/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that a chat template may call: jinja2's range, dict and namespace, and
 * transformers' raise_exception and strftime_now. */
#include "text/template/ast_internal.h"

static caisson_status f_range(trun *r, const tcall *c, tval *ret) {
    enum { MAX_RANGE = 100000 }; /* jinja2's sandbox */
    int64_t v[3] = {0, 0, 1};
    const targv *a = c->argv;
    bool is_tainted = false;
    if (a->n_kw > 0 || a->n_pos < 1 || a->n_pos > 3) {
        return csn_tr_fail(r, "range takes 1 to 3 arguments");
    }
    for (size_t i = 0; i < a->n_pos; i++) {
        if (!csn_tv_is_int(a->pos[i])) {
            return a->pos[i].kind == V_UNDEF
                       ? csn_tv_undef_fail(r, a->pos[i])
                       : csn_tr_fail(r, "'%s' object cannot be interpreted as an integer",
                                     csn_tv_type_name(a->pos[i]));
        }
        v[a->n_pos == 1 ? 1 : i] = csn_tv_as_int(a->pos[i]);
        is_tainted |= a->pos[i].is_tainted;
    }
    if (v[2] == 0) {
        return csn_tr_fail(r, "range() arg 3 must not be zero");
    }
    uint64_t n = 0;
    if (v[2] > 0 ? v[1] > v[0] : v[1] < v[0]) {
        uint64_t span =
            v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
        uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
        n = (span - 1) / step + 1;
    }
    if (n > MAX_RANGE) {
        return csn_tr_fail(
            r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    trange *g;
    CSN_TRY(TR_NEW(r, 1, &g));
    *g = (trange){.start = v[0], .stop = v[1], .step = v[2], .n = (int64_t)n};
    *ret = (tval){.kind = V_RANGE, .is_tainted = is_tainted, .u.r = g};
    return CAISSON_OK;
}

/* dict(mapping or pairs, **kwargs) */
static caisson_status make_dict(trun *r, const tcall *c, tval *ret) {
    const targv *a = c->argv;
    CSN_TRY(csn_tv_dict_new(r, a->n_kw, ret));
    tdict *d = ret->u.d;
    if (a->n_pos > 1) {
        return csn_tr_fail(r, "dict expected at most 1 argument, got %zu", a->n_pos);
    }
    if (a->n_pos == 1 && a->pos[0].kind == V_UNDEF) {
        return csn_tv_undef_fail(r, a->pos[0]);
    }
    if (a->n_pos == 1 && a->pos[0].kind == V_DICT) {
        const tdict *from = a->pos[0].u.d;
        d->is_tainted = from->is_tainted;
        for (size_t i = 0; i < from->n; i++) {
            CSN_TRY(csn_tv_dict_set(r, d, from->pairs[i].key, from->pairs[i].value));
        }
    } else if (a->n_pos == 1) {
        tval *items;
        size_t n;
        d->is_tainted = csn_tv_is_tainted(a->pos[0]);
        CSN_TRY(csn_tv_items(r, a->pos[0], &items, &n));
        for (size_t i = 0; i < n; i++) {
            tval *pair;
            size_t k;
            CSN_TRY(csn_tv_items(r, items[i], &pair, &k));
            if (k != 2) {
                return csn_tr_fail(
                    r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                    k);
            }
            CSN_TRY(csn_tv_dict_set(r, d, pair[0], pair[1]));
        }
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        tval key;
        CSN_TRY(csn_tx_keyword(r, a, i, &key));
        CSN_TRY(csn_tv_dict_set(r, d, key, a->kw[i]));
    }
    return CAISSON_OK;
}

static caisson_status f_namespace(trun *r, const tcall *c, tval *ret) {
    CSN_TRY(make_dict(r, c, ret));
    ret->kind = V_NAMESPACE;
    for (size_t i = 0; i < ret->u.d->n; i++) {
        tval key = ret->u.d->pairs[i].key;
        if (key.kind == V_STR && key.u.s->len > 0 && key.u.s->p[0] == '_') {
            return csn_tr_fail(
                r, "a namespace cannot hold an attribute that begins with an underscore");
        }
    }
    return CAISSON_OK;
}

static caisson_status f_raise(trun *r, const tcall *c, tval *ret) {
    tval s;
    (void)ret;
    CSN_TRY(csn_tv_str(r, c->arg[0], &s));
    tbuf b = {0};
    CSN_TRY(csn_tb_put_str(r, &b, s.u.s));
    CSN_TRY(csn_tb_put(r, &b, "", 1, true)); /* its NUL: the sentence is a C string */
    return CSN_FAIL(r->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                    .tensor = CSN_STR("raise_exception"), .what = b.p);
}

static caisson_status f_strftime(trun *r, const tcall *c, tval *ret) {
    if (c->arg[0].kind != V_STR) {
        return csn_tr_fail(r, "strftime() argument 1 must be str, not %s",
                           csn_tv_type_name(c->arg[0]));
    }
    return csn_tf_strftime(r, c->arg[0].u.s, ret);
}

static const tfunction functions[] = {
    {{"range", f_range, NULL, 0, true}},
    {{"dict", make_dict, NULL, 0, false}},
    {{"namespace", f_namespace, NULL, 0, false}},
    {{"raise_exception", f_raise, "message", 1, false}},
    {{"strftime_now", f_strftime, "format", 1, false}},
};

const tfunction *csn_function_find(csn_str name) {
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (csn_str_is(name, functions[i].row.name)) {
            return &functions[i];
        }
    }
    return NULL;
}

bool csn_function_is_refused(csn_str name) {
    return csn_str_is(name, "cycler") || csn_str_is(name, "joiner") || csn_str_is(name, "lipsum");
}
