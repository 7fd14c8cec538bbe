/* SPDX-License-Identifier: Apache-2.0 */
/* Values: construction, truth, equality, order, length, membership. Dicts are in dict.c. */
#include "text/template/value_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"

const char *csn_tv_type_name(tval v) {
    switch ((tkind)v.kind) {
    case V_MISSING:
    case V_UNDEF: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT: return "int";
    case V_FLOAT: return "float";
    case V_STR: return v.u.s->is_markup ? "Markup" : "str";
    case V_LIST: return "list";
    case V_TUPLE: return "tuple";
    case V_DICT: return "dict";
    case V_VIEW: return v.u.q->origin;
    case V_RANGE: return "range";
    case V_ITER: return v.u.q->origin != NULL ? v.u.q->origin : "generator";
    case V_NAMESPACE: return "Namespace";
    case V_LOOP: return "LoopContext";
    case V_MACRO: return "Macro";
    case V_METHOD:
    case V_FUNCTION: return "function";
    }
    return "object";
}

bool csn_tv_is_tainted(tval v) {
    switch ((tkind)v.kind) {
    case V_STR: return csn_ts_any_untrusted(v.u.s);
    case V_LIST:
    case V_TUPLE:
    case V_ITER:
    case V_VIEW: return v.u.q->is_tainted;
    case V_DICT: return v.u.d->is_tainted;
    default: return v.is_tainted;
    }
}

caisson_status csn_tv_undef(trun *r, csn_str name, const char *owner, const char *hint, tval *ret) {
    tundef *u;
    CSN_TRY(TR_NEW(r, 1, &u));
    *u = (tundef){.hint = hint, .name = name, .owner = owner};
    *ret = (tval){.kind = V_UNDEF, .u.u = u};
    return CAISSON_OK;
}

caisson_status csn_tv_undef_say(trun *r, tval v) {
    const tundef *u = v.u.u;
    if (u->hint != NULL) {
        return csn_tr_fail(r, "%s", u->hint);
    }
    if (u->owner == NULL) {
        return csn_tr_fail(r, "'%.*s' is undefined", CSN_STR_ARGS(u->name));
    }
    return csn_tr_fail(r, "'%s object' has no attribute '%.*s'", u->owner, CSN_STR_ARGS(u->name));
}

caisson_status csn_tv_list(trun *r, size_t n, tkind kind, tval *ret) {
    tseq *q;
    CSN_TRY(csn_tr_charge(r, n / 16));
    CSN_TRY(TR_NEW(r, 1, &q));
    CSN_TRY(TR_NEW(r, n, &q->items));
    q->n = n;
    *ret = (tval){.kind = (uint8_t)kind, .u.q = q};
    return CAISSON_OK;
}

caisson_status csn_tv_push(trun *r, tlist *l, tval v) {
    CSN_TRY(csn_tr_charge(r, 1));
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 8 : l->cap * 2;
        tval *grown;
        CSN_TRY(TR_NEW(r, cap, &grown));
        if (l->n > 0) {
            memcpy(grown, l->items, l->n * sizeof(*grown));
        }
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return CAISSON_OK;
}

caisson_status csn_tv_finish(trun *r, const tlist *l, tkind kind, bool is_tainted, tval *ret) {
    tseq *q;
    CSN_TRY(TR_NEW(r, 1, &q));
    *q = (tseq){.items = l->items, .n = l->n, .is_tainted = is_tainted};
    if (q->items == NULL) { /* never NULL, so that arithmetic on it is defined */
        CSN_TRY(TR_NEW(r, 0, &q->items));
    }
    *ret = (tval){.kind = (uint8_t)kind, .u.q = q};
    return CAISSON_OK;
}

caisson_status csn_tv_generator(trun *r, const tlist *l, bool is_tainted, caisson_status status,
                                tval *ret) {
    if (status != CAISSON_OK && status != CAISSON_E_TEMPLATE) {
        return status;
    }
    CSN_TRY(csn_tv_finish(r, l, V_ITER, is_tainted, ret));
    if (status == CAISSON_E_TEMPLATE) {
        caisson_error *fault;
        CSN_TRY(TR_NEW(r, 1, &fault));
        *fault = *r->err;
        ret->u.q->fault = fault;
    }
    return CAISSON_OK;
}

/* ---- truth, length ---- */

caisson_status csn_tv_truth(trun *r, tval v, bool *ret) {
    (void)r;
    switch ((tkind)v.kind) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE: *ret = false; break;
    case V_BOOL: *ret = v.u.b; break;
    case V_INT: *ret = v.u.i != 0; break;
    case V_FLOAT: *ret = v.u.f != 0; break;
    case V_STR: *ret = v.u.s->len > 0; break;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: *ret = v.u.q->n > 0; break;
    case V_DICT: *ret = v.u.d->n > 0; break;
    case V_RANGE: *ret = v.u.r->n > 0; break;
    default: *ret = true; break; /* generators too, even empty ones */
    }
    return CAISSON_OK;
}

caisson_status csn_tv_len(trun *r, tval v, int64_t *ret) {
    tval unused;
    bool found;
    switch ((tkind)v.kind) {
    case V_UNDEF: *ret = 0; return CAISSON_OK;
    case V_STR:
        CSN_TRY(csn_tr_charge_bytes(r, v.u.s->n_cp == SIZE_MAX ? v.u.s->len : 0));
        *ret = (int64_t)csn_ts_count(v.u.s);
        if (v.u.s->n_cp == SIZE_MAX) {
            v.u.s->n_cp = (size_t)*ret; /* only strings of this rendering are not counted yet */
        }
        return CAISSON_OK;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: *ret = (int64_t)v.u.q->n; return CAISSON_OK;
    case V_DICT: *ret = (int64_t)v.u.d->n; return CAISSON_OK;
    case V_RANGE: *ret = v.u.r->n; return CAISSON_OK;
    case V_LOOP:
        CSN_TRY(csn_tx_loop_attr(r, v.u.loop, CSN_STR("length"), &found, &unused));
        *ret = unused.u.i;
        return CAISSON_OK;
    default: return csn_tr_fail(r, "object of type '%s' has no len()", csn_tv_type_name(v));
    }
}

/* ---- equality and order ---- */

/* Exact, as Python compares: -1, 0, 1; 2 = not comparable (NaN). */
static int compare_numbers(tval a, tval b) {
    if (a.kind != V_FLOAT && b.kind != V_FLOAT) {
        int64_t x = csn_tv_as_int(a);
        int64_t y = csn_tv_as_int(b);
        return (x > y) - (x < y);
    }
    if (a.kind == V_FLOAT && b.kind == V_FLOAT) {
        double x = a.u.f;
        double y = b.u.f;
        return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
    }
    bool is_swapped = a.kind == V_FLOAT;
    double f = is_swapped ? a.u.f : b.u.f;
    int64_t i = csn_tv_as_int(is_swapped ? b : a);
    if (isnan(f)) {
        return 2;
    }
    int c; /* i against f */
    if (f >= 9223372036854775808.0) {
        c = -1;
    } else if (f < -9223372036854775808.0) {
        c = 1;
    } else {
        int64_t whole = (int64_t)f;
        c = (i > whole) - (i < whole);
        if (c == 0) {
            double rest = f - (double)whole;
            c = (rest < 0) - (rest > 0);
        }
    }
    return is_swapped ? -c : c;
}

static caisson_status equal_seq(trun *r, const tseq *a, const tseq *b, bool *ret) {
    *ret = a->n == b->n;
    for (size_t i = 0; i < a->n && *ret; i++) {
        CSN_TRY(csn_tv_equal(r, a->items[i], b->items[i], ret));
    }
    return CAISSON_OK;
}

caisson_status csn_tv_equal(trun *r, tval a, tval b, bool *ret) {
    CSN_TRY(csn_tr_charge(r, 1));
    if (csn_tv_is_number(a) && csn_tv_is_number(b)) {
        *ret = compare_numbers(a, b) == 0;
        return CAISSON_OK;
    }
    if (a.kind != b.kind) {
        *ret = false;
        return CAISSON_OK;
    }
    switch ((tkind)a.kind) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE: *ret = true; return CAISSON_OK;
    case V_STR:
        if (a.u.s->len == b.u.s->len) {
            CSN_TRY(csn_tr_charge_bytes(r, a.u.s->len));
        }
        *ret = csn_str_eq(csn_tv_bytes(a), csn_tv_bytes(b));
        return CAISSON_OK;
    case V_LIST:
    case V_TUPLE:
    case V_DICT: {
        CSN_TRY(csn_tr_enter(r));
        caisson_status s = a.kind == V_DICT ? csn_tv_dict_equal(r, a.u.d, b.u.d, ret)
                                            : equal_seq(r, a.u.q, b.u.q, ret);
        csn_tr_leave(r);
        return s;
    }
    case V_RANGE:
        *ret = a.u.r->n == b.u.r->n &&
               (a.u.r->n == 0 ||
                (a.u.r->start == b.u.r->start && (a.u.r->n == 1 || a.u.r->step == b.u.r->step)));
        return CAISSON_OK;
    default: *ret = a.u.q == b.u.q; return CAISSON_OK;
    }
}

caisson_status csn_tv_compare(trun *r, tval a, tval b, const char *op, int *ret, bool *ret_nan) {
    CSN_TRY(csn_tr_charge(r, 1));
    *ret_nan = false;
    if (csn_tv_is_number(a) && csn_tv_is_number(b)) {
        *ret = compare_numbers(a, b);
        *ret_nan = *ret == 2;
        return CAISSON_OK;
    }
    if (a.kind == V_STR && b.kind == V_STR) { /* UTF-8 sorts as its code points do */
        CSN_TRY(csn_tr_charge_bytes(r, a.u.s->len < b.u.s->len ? a.u.s->len : b.u.s->len));
        *ret = csn_str_cmp(csn_tv_bytes(a), csn_tv_bytes(b));
        return CAISSON_OK;
    }
    if (a.kind == V_UNDEF || b.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, a.kind == V_UNDEF ? a : b);
    }
    if (a.kind != b.kind || (a.kind != V_LIST && a.kind != V_TUPLE)) {
        return csn_tr_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                           csn_tv_type_name(a), csn_tv_type_name(b));
    }
    CSN_TRY(csn_tr_enter(r));
    caisson_status s = CAISSON_OK;
    size_t n = a.u.q->n < b.u.q->n ? a.u.q->n : b.u.q->n;
    *ret = (a.u.q->n > b.u.q->n) - (a.u.q->n < b.u.q->n);
    for (size_t i = 0; i < n && s == CAISSON_OK; i++) {
        bool is_same;
        s = csn_tv_equal(r, a.u.q->items[i], b.u.q->items[i], &is_same);
        if (s == CAISSON_OK && !is_same) {
            s = csn_tv_compare(r, a.u.q->items[i], b.u.q->items[i], op, ret, ret_nan);
            break;
        }
    }
    csn_tr_leave(r);
    return s;
}

/* ---- iteration ---- */

bool csn_tv_is_iterable(tval v) {
    switch ((tkind)v.kind) {
    case V_UNDEF:
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_VIEW:
    case V_RANGE:
    case V_LOOP:
    case V_ITER: return true;
    default: return false;
    }
}

static caisson_status characters(trun *r, const tstr *s, tval **ret_items, size_t *ret_n) {
    size_t n = csn_ts_count(s);
    tstr *parts;
    tval *items;
    CSN_TRY(csn_tr_charge(r, n / 4));
    CSN_TRY(TR_NEW(r, n, &items));
    CSN_TRY(TR_NEW(r, n, &parts));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp;
        size_t k = csn_utf8_decode(csn_ts_bytes(s), at, &cp);
        parts[i] = *s;
        parts[i].p = s->p + at;
        parts[i].marks = s->marks != NULL ? s->marks + at : NULL;
        parts[i].len = k;
        parts[i].n_cp = 1;
        parts[i].is_markup = false; /* iterating over Markup gives plain strings */
        items[i] = (tval){.kind = V_STR, .u.s = &parts[i]};
        at += k;
    }
    *ret_items = items;
    *ret_n = n;
    return CAISSON_OK;
}

caisson_status csn_tv_items(trun *r, tval v, tval **ret_items, size_t *ret_n) {
    tval *items;
    switch ((tkind)v.kind) {
    case V_UNDEF: *ret_n = 0; return TR_NEW(r, 0, ret_items);
    case V_STR: return characters(r, v.u.s, ret_items, ret_n);
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        *ret_items = v.u.q->items;
        *ret_n = v.u.q->n;
        return CAISSON_OK;
    case V_ITER:
        if (v.u.q->fault != NULL) {
            *r->err = *v.u.q->fault;
            return r->err->code;
        }
        *ret_items = v.u.q->items + v.u.q->pos;
        *ret_n = v.u.q->n - v.u.q->pos;
        v.u.q->pos = v.u.q->n;
        return CAISSON_OK;
    case V_DICT:
        CSN_TRY(csn_tr_charge(r, v.u.d->n / 4));
        CSN_TRY(TR_NEW(r, v.u.d->n, &items));
        for (size_t i = 0; i < v.u.d->n; i++) {
            items[i] = v.u.d->pairs[i].key;
        }
        *ret_items = items;
        *ret_n = v.u.d->n;
        return CAISSON_OK;
    case V_RANGE:
        CSN_TRY(csn_tr_charge(r, (uint64_t)v.u.r->n / 4));
        CSN_TRY(TR_NEW(r, (size_t)v.u.r->n, &items));
        for (int64_t i = 0; i < v.u.r->n; i++) {
            items[i] = csn_tv_int(v.u.r->start + i * v.u.r->step);
            items[i].is_tainted = v.is_tainted;
        }
        *ret_items = items;
        *ret_n = (size_t)v.u.r->n;
        return CAISSON_OK;
    default: return csn_tr_fail(r, "'%s' object is not iterable", csn_tv_type_name(v));
    }
}

static caisson_status range_contains(tval range, tval item, bool *ret) {
    const trange *g = range.u.r;
    *ret = false;
    if (csn_tv_is_number(item)) {
        double f = csn_tv_as_double(item);
        int64_t i =
            item.kind == V_FLOAT ? (f > -1e15 && f < 1e15 ? (int64_t)f : 0) : csn_tv_as_int(item);
        if (item.kind != V_FLOAT || (double)i == f) {
            int64_t last = g->start + (g->n - 1) * g->step;
            int64_t lo = g->step > 0 ? g->start : last;
            int64_t hi = g->step > 0 ? last : g->start;
            *ret = g->n > 0 && i >= lo && i <= hi &&
                   (g->n == 1 || ((uint64_t)i - (uint64_t)lo) % (uint64_t)llabs(g->step) == 0);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_tv_contains(trun *r, tval container, tval item, bool *ret) {
    tval *items = NULL;
    size_t n = 0;
    tval unused;
    switch ((tkind)container.kind) {
    case V_STR:
        if (item.kind != V_STR) {
            return csn_tr_fail(r, "'in <string>' requires string as left operand, not %s",
                               csn_tv_type_name(item));
        }
        CSN_TRY(csn_tr_charge_bytes(r, container.u.s->len));
        *ret = csn_ts_find(csn_tv_bytes(container), csn_tv_bytes(item), 0) != SIZE_MAX;
        return CAISSON_OK;
    case V_DICT: return csn_tv_dict_get(r, container.u.d, item, ret, &unused);
    case V_RANGE: return range_contains(container, item, ret);
    default: break;
    }
    if (!csn_tv_is_iterable(container) || container.kind == V_LOOP) {
        return csn_tr_fail(r, "argument of type '%s' is not iterable", csn_tv_type_name(container));
    }
    CSN_TRY(csn_tv_items(r, container, &items, &n));
    *ret = false;
    for (size_t i = 0; i < n && !*ret; i++) {
        CSN_TRY(csn_tv_equal(r, items[i], item, ret));
    }
    return CAISSON_OK;
}

/* ---- the caller's variables ---- */

static caisson_status json_object(trun *r, const csn_jval *j, tval *ret) {
    CSN_TRY(csn_tv_dict_new(r, csn_jval_len(j), ret));
    tdict *d = ret->u.d;
    d->is_tainted = true;
    for (csn_jiter it = csn_jval_iter(j); csn_jiter_next(&it);) {
        tval key;
        tval value;
        CSN_TRY(csn_ts_view(r, it.key, false, &key));
        CSN_TRY(csn_tv_from_json(r, it.value, &value));
        CSN_TRY(csn_tv_dict_set(r, d, key, value)); /* a key given twice: the last one counts */
    }
    return CAISSON_OK;
}

caisson_status csn_tv_from_json(trun *r, const csn_jval *j, tval *ret) {
    csn_str s = {0};
    uint64_t u;
    bool b = false;
    switch (csn_jval_kind(j)) {
    case CSN_JSON_STRING: csn_jval_str(j, &s); return csn_ts_view(r, s, false, ret);
    case CSN_JSON_BOOL:
        csn_jval_bool(j, &b);
        *ret = csn_tv_bool(b);
        break;
    case CSN_JSON_INT:
        *ret = csn_tv_int(0);
        if (!csn_jval_i64(j, &ret->u.i)) {
            csn_jval_u64(j, &u);
            return csn_tr_fail(r, "the integer %" PRIu64 " does not fit into 64 bits with sign", u);
        }
        break;
    case CSN_JSON_REAL:
        *ret = csn_tv_float(0);
        csn_jval_f64(j, &ret->u.f);
        break;
    case CSN_JSON_OBJECT:
    case CSN_JSON_ARRAY: {
        CSN_TRY(csn_tr_enter(r)); /* at most CAISSON_MAX_JSON_DEPTH */
        caisson_status status = CAISSON_OK;
        if (csn_jval_kind(j) == CSN_JSON_OBJECT) {
            status = json_object(r, j, ret);
        } else {
            status = csn_tv_list(r, csn_jval_len(j), V_LIST, ret);
            for (csn_jiter it = csn_jval_iter(j); status == CAISSON_OK && csn_jiter_next(&it);) {
                status = csn_tv_from_json(r, it.value, &ret->u.q->items[it.index]);
            }
            if (status == CAISSON_OK) {
                ret->u.q->is_tainted = true;
            }
        }
        csn_tr_leave(r);
        return status;
    }
    case CSN_JSON_NULL:
    case CSN_JSON_ABSENT: *ret = csn_tv_none(); break;
    }
    ret->is_tainted = true;
    return CAISSON_OK;
}
