/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. Each kind of node with work of its own has its function, so that the recursive one
 * needs little stack. */
#include "text/template/ast_internal.h"

static tval *find_in(const tscope *s, uint32_t sym) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->syms[i] == sym) {
            return &s->values[i];
        }
    }
    return NULL;
}

static caisson_status name(trun *r, const tnode *n, tval *ret) {
    for (const tscope *s = r->scope; s != NULL; s = s->parent) {
        const tval *v = find_in(s, n->sym);
        if (v != NULL) {
            *ret = *v;
            return CAISSON_OK;
        }
    }
    *ret = r->globals[n->sym];
    return ret->kind != V_MISSING ? CAISSON_OK : csn_tv_undef(r, n->name, NULL, NULL, ret);
}

caisson_status csn_tx_scope(trun *r, tscope *parent, tscope **ret) {
    CSN_TRY(TR_NEW(r, 1, ret));
    (*ret)->parent = parent;
    return CAISSON_OK;
}

caisson_status csn_tx_store(trun *r, uint32_t sym, tval v) {
    tscope *s = r->scope;
    if (s == NULL) {
        r->globals[sym] = v;
        return CAISSON_OK;
    }
    tval *slot = find_in(s, sym);
    if (slot != NULL) {
        *slot = v;
        return CAISSON_OK;
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap == 0 ? 4 : s->cap * 2;
        uint32_t *syms;
        tval *values;
        CSN_TRY(TR_NEW(r, cap, &syms));
        CSN_TRY(TR_NEW(r, cap, &values));
        if (s->n > 0) {
            memcpy(syms, s->syms, s->n * sizeof(*syms));
            memcpy(values, s->values, s->n * sizeof(*values));
        }
        s->syms = syms;
        s->values = values;
        s->cap = cap;
    }
    s->syms[s->n] = sym;
    s->values[s->n++] = v;
    return CAISSON_OK;
}

static caisson_status store_attr(trun *r, const tnode *target, tval v) {
    const tnode holder = {.kind = N_NAME, .sym = target->sym, .name = r->t->syms[target->sym]};
    tval ns;
    tval key;
    CSN_TRY(name(r, &holder, &ns));
    r->line = target->line;
    if (ns.kind != V_NAMESPACE) {
        return csn_tr_fail(r, "cannot assign attribute on non-namespace object");
    }
    if (target->name.len > 0 && target->name.ptr[0] == '_') {
        return csn_tr_fail(r,
                           "a namespace cannot hold an attribute that begins with an underscore");
    }
    CSN_TRY(csn_ts_view(r, target->name, true, &key));
    return csn_tv_dict_set(r, ns.u.d, key, v);
}

caisson_status csn_tx_assign(trun *r, const tnode *target, tval v) {
    if (target->kind == N_NAME) {
        return csn_tx_store(r, target->sym, v);
    }
    if (target->kind == N_NSREF) {
        return store_attr(r, target, v);
    }
    tval *items;
    size_t n;
    r->line = target->line;
    if (!csn_tv_is_iterable(v)) {
        return csn_tr_fail(r, "cannot unpack non-iterable %s object", csn_tv_type_name(v));
    }
    CSN_TRY(csn_tv_items(r, v, &items, &n));
    if (n != target->n_list) {
        return csn_tr_fail(r, "%s values to unpack (expected %u, got %zu)",
                           n < target->n_list ? "not enough" : "too many", target->n_list, n);
    }
    for (size_t i = 0; i < n; i++) {
        CSN_TRY(csn_tx_assign(r, target->list[i], items[i]));
    }
    return CAISSON_OK;
}

/* ---- compound nodes ---- */

static caisson_status sequence(trun *r, const tnode *n, tval *ret) {
    tval v;
    CSN_TRY(csn_tv_list(r, n->n_list, n->kind == N_LIST ? V_LIST : V_TUPLE, &v));
    for (uint32_t i = 0; i < n->n_list; i++) {
        CSN_TRY(csn_tx_eval(r, n->list[i], &v.u.q->items[i]));
    }
    *ret = v;
    return CAISSON_OK;
}

static caisson_status dict(trun *r, const tnode *n, tval *ret) {
    tval d;
    CSN_TRY(csn_tv_dict_new(r, n->n_list, &d));
    for (uint32_t i = 0; i < n->n_list; i++) {
        tval key;
        tval value;
        CSN_TRY(csn_tx_eval(r, n->list[i], &key));
        CSN_TRY(csn_tx_eval(r, n->list2[i], &value));
        CSN_TRY(csn_tv_dict_set(r, d.u.d, key, value));
    }
    *ret = d;
    return CAISSON_OK;
}

static caisson_status concat(trun *r, const tnode *n, tval *ret) {
    tval text;
    CSN_TRY(csn_ts_view(r, CSN_STR(""), true, &text));
    for (uint32_t i = 0; i < n->n_list; i++) {
        tval v;
        CSN_TRY(csn_tx_eval(r, n->list[i], &v));
        CSN_TRY(csn_tv_str(r, v, &v));
        if (i == 0) {
            text = v;
        } else {
            CSN_TRY(csn_ts_concat(r, text.u.s, v.u.s, &text));
        }
    }
    *ret = text;
    return CAISSON_OK;
}

static caisson_status compare_one(trun *r, int op, tval a, tval b, bool *ret) {
    static const char *const texts[] = {
        [TOK_GT] = ">", [TOK_GE] = ">=", [TOK_LT] = "<", [TOK_LE] = "<="};
    if (op == TOK_EQ || op == TOK_NE) {
        CSN_TRY(csn_tv_equal(r, a, b, ret));
        *ret = *ret == (op == TOK_EQ);
        return CAISSON_OK;
    }
    if (op == TOK_IN || op == TOK_NOTIN) {
        CSN_TRY(csn_tv_contains(r, b, a, ret));
        *ret = *ret == (op == TOK_IN);
        return CAISSON_OK;
    }
    int order = 0;
    bool is_nan;
    CSN_TRY(csn_tv_compare(r, a, b, texts[op], &order, &is_nan));
    switch (op) {
    case TOK_LT: *ret = order < 0; break;
    case TOK_LE: *ret = order <= 0; break;
    case TOK_GT: *ret = order > 0; break;
    default: *ret = order >= 0; break;
    }
    *ret = *ret && !is_nan;
    return CAISSON_OK;
}

static caisson_status compare(trun *r, const tnode *n, tval *ret) {
    tval a;
    bool is_true = true;
    CSN_TRY(csn_tx_eval(r, n->a, &a));
    for (uint32_t i = 0; i < n->n_list && is_true; i++) {
        tval b;
        CSN_TRY(csn_tx_eval(r, n->list[i], &b));
        r->line = n->line;
        CSN_TRY(compare_one(r, n->ops[i], a, b, &is_true));
        a = b;
    }
    *ret = csn_tv_bool(is_true);
    return CAISSON_OK;
}

static caisson_status subscript(trun *r, const tnode *n, tval *ret) {
    tval v;
    tval part[3] = {csn_tv_none(), csn_tv_none(), csn_tv_none()};
    CSN_TRY(csn_tx_eval(r, n->a, &v));
    if (n->b->kind != N_SLICE) {
        CSN_TRY(csn_tx_eval(r, n->b, &part[0]));
        r->line = n->line;
        return csn_tv_getitem(r, v, part[0], ret);
    }
    const tnode *const s[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        if (s[i] != NULL) {
            CSN_TRY(csn_tx_eval(r, s[i], &part[i]));
        }
    }
    r->line = n->line;
    return csn_tv_slice(r, v, part[0], part[1], part[2], ret);
}

static caisson_status binary(trun *r, const tnode *n, tval *ret) {
    tval a;
    tval b;
    CSN_TRY(csn_tx_eval(r, n->a, &a));
    CSN_TRY(csn_tx_eval(r, n->b, &b));
    r->line = n->line;
    return csn_tv_arith(r, n->op, a, b, ret);
}

static caisson_status condition(trun *r, const tnode *n, tval *ret) {
    bool truth;
    CSN_TRY(csn_tx_eval(r, n->a, ret));
    CSN_TRY(csn_tv_truth(r, *ret, &truth));
    if (truth) {
        return csn_tx_eval(r, n->b, ret);
    }
    if (n->c != NULL) {
        return csn_tx_eval(r, n->c, ret);
    }
    r->line = n->line;
    return csn_tv_undef(r, CSN_STR(""), NULL,
                        "the inline if-expression evaluated to false and has no else part", ret);
}

static caisson_status logic(trun *r, const tnode *n, tval *ret) {
    bool truth;
    CSN_TRY(csn_tx_eval(r, n->a, ret));
    CSN_TRY(csn_tv_truth(r, *ret, &truth));
    if (n->kind == N_NOT) {
        *ret = csn_tv_bool(!truth);
        return CAISSON_OK;
    }
    return truth == (n->kind == N_AND) ? csn_tx_eval(r, n->b, ret) : CAISSON_OK;
}

/* ---- arguments ---- */

static caisson_status star_args(trun *r, const targs *a, targv *v) {
    tval extra;
    tval *items;
    size_t n;
    if (a->star != NULL) {
        CSN_TRY(csn_tx_eval(r, a->star, &extra));
        CSN_TRY(csn_tv_items(r, extra, &items, &n));
        tval *all;
        CSN_TRY(csn_tr_charge(r, n));
        CSN_TRY(TR_NEW(r, v->n_pos + n, &all));
        if (v->n_pos > 0) {
            memcpy(all, v->pos, v->n_pos * sizeof(tval));
        }
        if (n > 0) {
            memcpy(all + v->n_pos, items, n * sizeof(tval));
        }
        v->pos = all;
        v->n_pos += n;
    }
    if (a->star_star == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_tx_eval(r, a->star_star, &extra));
    if (extra.kind != V_DICT) {
        return csn_tr_fail(r, "argument after ** must be a mapping, not %s",
                           csn_tv_type_name(extra));
    }
    const tdict *d = extra.u.d;
    csn_str *names;
    tval *keys; /* V_MISSING for those that the template wrote */
    tval *values;
    CSN_TRY(csn_tr_charge(r, d->n));
    CSN_TRY(TR_NEW(r, v->n_kw + d->n, &names));
    CSN_TRY(TR_NEW(r, v->n_kw + d->n, &keys));
    CSN_TRY(TR_NEW(r, v->n_kw + d->n, &values));
    for (size_t i = 0; i < v->n_kw; i++) {
        names[i] = v->kw_name[i];
        values[i] = v->kw[i];
    }
    for (size_t i = 0; i < d->n; i++) {
        if (d->pairs[i].key.kind != V_STR) {
            return csn_tr_fail(r, "keywords must be strings");
        }
        csn_str key = csn_tv_bytes(d->pairs[i].key);
        for (size_t k = 0; k < v->n_kw; k++) {
            if (csn_str_eq(v->kw_name[k], key)) {
                return csn_tr_fail(r, "got multiple values for keyword argument '%.*s'",
                                   CSN_STR_ARGS(key));
            }
        }
        names[v->n_kw + i] = key;
        keys[v->n_kw + i] = d->pairs[i].key;
        values[v->n_kw + i] = d->pairs[i].value;
    }
    v->kw_name = names;
    v->kw_key = keys;
    v->kw = values;
    v->n_kw += d->n;
    return CAISSON_OK;
}

static caisson_status arguments(trun *r, const targs *a, targv *v) {
    *v = (targv){0};
    if (a == NULL) {
        return CAISSON_OK;
    }
    if (a->n_pos > 0) {
        CSN_TRY(TR_NEW(r, a->n_pos, &v->pos));
    }
    if (a->n_kw > 0) {
        CSN_TRY(TR_NEW(r, a->n_kw, &v->kw));
    }
    v->kw_name = a->kw_name;
    for (uint32_t i = 0; i < a->n_pos; i++) {
        CSN_TRY(csn_tx_eval(r, a->pos[i], &v->pos[i]));
        v->n_pos = i + 1;
    }
    for (uint32_t i = 0; i < a->n_kw; i++) {
        CSN_TRY(csn_tx_eval(r, a->kw[i], &v->kw[i]));
        v->n_kw = i + 1;
    }
    return star_args(r, a, v);
}

static caisson_status call(trun *r, const tnode *n, tval *ret) {
    tval callee;
    targv a;
    CSN_TRY(csn_tx_eval(r, n->a, &callee));
    CSN_TRY(arguments(r, n->args, &a));
    r->line = n->line;
    return csn_tx_call(r, callee, &a, ret);
}

caisson_status csn_tx_call_with_caller(trun *r, const tnode *n, tval caller, tval *ret) {
    tval callee;
    targv a;
    CSN_TRY(csn_tx_eval(r, n->a, &callee));
    CSN_TRY(arguments(r, n->args, &a));
    csn_str *names;
    tval *keys;
    tval *values;
    CSN_TRY(TR_NEW(r, a.n_kw + 1, &names));
    CSN_TRY(TR_NEW(r, a.n_kw + 1, &keys));
    CSN_TRY(TR_NEW(r, a.n_kw + 1, &values));
    for (size_t i = 0; i < a.n_kw; i++) {
        names[i] = a.kw_name[i];
        keys[i] = a.kw_key != NULL ? a.kw_key[i] : (tval){0};
        values[i] = a.kw[i];
    }
    names[a.n_kw] = CSN_STR("caller");
    values[a.n_kw] = caller;
    a.kw_name = names;
    a.kw_key = keys;
    a.kw = values;
    a.n_kw++;
    r->line = n->line;
    return csn_tx_call(r, callee, &a, ret);
}

static caisson_status filter_or_test(trun *r, const tnode *n, tval *ret) {
    tval v;
    targv a;
    r->line = n->line;
    if (n->row == NULL) {
        return csn_tr_fail(r, "No %s named '%.*s' found.", n->kind == N_FILTER ? "filter" : "test",
                           CSN_STR_ARGS(n->name));
    }
    CSN_TRY(csn_tx_eval(r, n->a, &v));
    CSN_TRY(arguments(r, n->args, &a));
    r->line = n->line;
    return csn_tx_builtin(r, n->row, v, &a, ret);
}

static caisson_status eval(trun *r, const tnode *n, tval *ret) {
    switch ((tnode_kind)n->kind) {
    case N_CONST: *ret = n->value; return CAISSON_OK;
    case N_NAME: return name(r, n, ret);
    case N_TUPLE:
    case N_LIST: return sequence(r, n, ret);
    case N_DICT: return dict(r, n, ret);
    case N_COND: return condition(r, n, ret);
    case N_OR:
    case N_AND:
    case N_NOT: return logic(r, n, ret);
    case N_UNARY:
        CSN_TRY(csn_tx_eval(r, n->a, ret));
        r->line = n->line;
        return csn_tv_negate(r, n->op, *ret, ret);
    case N_BINARY: return binary(r, n, ret);
    case N_CONCAT: return concat(r, n, ret);
    case N_COMPARE: return compare(r, n, ret);
    case N_GETATTR:
        CSN_TRY(csn_tx_eval(r, n->a, ret));
        r->line = n->line;
        return csn_tv_getattr(r, *ret, n->name, ret);
    case N_GETITEM: return subscript(r, n, ret);
    case N_CALL: return call(r, n, ret);
    case N_FILTER:
    case N_TEST: return filter_or_test(r, n, ret);
    case N_CAPTURE: *ret = r->capture; return CAISSON_OK;
    default: return csn_tr_fail(r, "this node has no value");
    }
}

caisson_status csn_tx_eval(trun *r, const tnode *n, tval *ret) {
    r->line = n->line;
    CSN_TRY(csn_tr_charge(r, 1));
    CSN_TRY(csn_tr_enter(r));
    caisson_status s = eval(r, n, ret);
    csn_tr_leave(r);
    return s;
}
