/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of dict, list, tuple, range and numbers, and the table of all methods. Those that would
 * change their object are refused, as transformers' immutable sandbox refuses them. */
#include "text/template/value_internal.h"

#include <math.h>

static caisson_status m_get(trun *r, const tcall *c, tval *ret) {
    bool is_found;
    CSN_TRY(csn_tv_dict_get(r, c->self.u.d, c->arg[0], &is_found, ret));
    if (!is_found) {
        *ret = c->arg[1].kind == V_MISSING ? csn_tv_none() : c->arg[1];
    }
    return CAISSON_OK;
}

static caisson_status view(trun *r, const tcall *c, const char *origin, int what, tval *ret) {
    const tdict *d = c->self.u.d;
    tval *cells = NULL;
    CSN_TRY(csn_tv_list(r, d->n, V_VIEW, ret));
    ret->u.q->origin = origin;
    ret->u.q->is_tainted = d->is_tainted;
    if (what == 2) {
        CSN_TRY(TR_NEW(r, d->n * 2, &cells));
    }
    for (size_t i = 0; i < d->n; i++) {
        const tpair *p = &d->pairs[i];
        if (what == 2) {
            tseq *q;
            CSN_TRY(TR_NEW(r, 1, &q));
            cells[2 * i] = p->key;
            cells[2 * i + 1] = p->value;
            *q = (tseq){.items = &cells[2 * i], .n = 2, .is_tainted = d->is_tainted};
            ret->u.q->items[i] = (tval){.kind = V_TUPLE, .u.q = q};
        } else {
            ret->u.q->items[i] = what == 0 ? p->key : p->value;
        }
    }
    return csn_tr_charge(r, d->n / 4);
}
static caisson_status m_keys(trun *r, const tcall *c, tval *ret) {
    return view(r, c, "dict_keys", 0, ret);
}
static caisson_status m_values(trun *r, const tcall *c, tval *ret) {
    return view(r, c, "dict_values", 1, ret);
}
static caisson_status m_items(trun *r, const tcall *c, tval *ret) {
    return view(r, c, "dict_items", 2, ret);
}

/* Nothing changes: a copy is the thing itself. */
static caisson_status m_copy(trun *r, const tcall *c, tval *ret) {
    (void)r;
    *ret = c->self;
    return CAISSON_OK;
}

static caisson_status seq_scan(trun *r, const tcall *c, bool is_count, tval *ret) {
    tval *items;
    size_t n;
    int64_t hits = 0;
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    int64_t from = 0;
    int64_t to = (int64_t)n;
    for (int k = 1; k < 3; k++) {
        if (c->arg[k].kind == V_MISSING) {
            continue;
        }
        if (!csn_tv_is_int(c->arg[k])) {
            return csn_tr_fail(r, "slice indices must be integers");
        }
        int64_t i = csn_tv_as_int(c->arg[k]);
        i = i < 0 ? (i + (int64_t)n < 0 ? 0 : i + (int64_t)n) : i > (int64_t)n ? (int64_t)n : i;
        *(k == 1 ? &from : &to) = i;
    }
    for (int64_t i = from; i < to; i++) {
        bool is_same;
        CSN_TRY(csn_tv_equal(r, items[i], c->arg[0], &is_same));
        if (is_same && !is_count) {
            *ret = csn_tv_int(i);
            return CAISSON_OK;
        }
        hits += is_same;
    }
    *ret = csn_tv_int(hits);
    return is_count ? CAISSON_OK
                    : csn_tr_fail(r, "the value is not in the %s", csn_tv_type_name(c->self));
}
static caisson_status m_count(trun *r, const tcall *c, tval *ret) {
    return seq_scan(r, c, true, ret);
}
static caisson_status m_index(trun *r, const tcall *c, tval *ret) {
    return seq_scan(r, c, false, ret);
}

static caisson_status m_bit_length(trun *r, const tcall *c, tval *ret) {
    (void)r;
    int64_t v = csn_tv_as_int(c->self);
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int64_t n = 0;
    while (u > 0) {
        u >>= 1;
        n++;
    }
    *ret = csn_tv_int(n);
    return CAISSON_OK;
}

static caisson_status m_is_integer(trun *r, const tcall *c, tval *ret) {
    (void)r;
    *ret = csn_tv_bool(isfinite(c->self.u.f) && floor(c->self.u.f) == c->self.u.f);
    return CAISSON_OK;
}

static const tbuiltin dict_methods[] = {{"get", m_get, "key,default", 1, true},
                                        {"items", m_items, "", 0, true},
                                        {"keys", m_keys, "", 0, true},
                                        {"values", m_values, "", 0, true},
                                        {"copy", m_copy, "", 0, true},
                                        {"fromkeys", NULL, NULL, 0, false},
                                        {NULL, NULL, NULL, 0, false}};
static const tbuiltin list_methods[] = {{"count", m_count, "value", 1, true},
                                        {"index", m_index, "value,start,stop", 1, true},
                                        {"copy", m_copy, "", 0, true},
                                        {NULL, NULL, NULL, 0, false}};
static const tbuiltin tuple_methods[] = {{"count", m_count, "value", 1, true},
                                         {"index", m_index, "value,start,stop", 1, true},
                                         {NULL, NULL, NULL, 0, false}};
static const tbuiltin int_methods[] = {{"bit_length", m_bit_length, "", 0, true},
                                       {"bit_count", NULL, NULL, 0, false},
                                       {"conjugate", m_copy, "", 0, true},
                                       {"as_integer_ratio", NULL, NULL, 0, false},
                                       {"to_bytes", NULL, NULL, 0, false},
                                       {"from_bytes", NULL, NULL, 0, false},
                                       {NULL, NULL, NULL, 0, false}};
static const tbuiltin float_methods[] = {
    {"is_integer", m_is_integer, "", 0, true},  {"hex", NULL, NULL, 0, false},
    {"fromhex", NULL, NULL, 0, false},          {"conjugate", m_copy, "", 0, true},
    {"as_integer_ratio", NULL, NULL, 0, false}, {NULL, NULL, NULL, 0, false}};
static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_unsafe[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};

static const tbuiltin *find_in(const tbuiltin *rows, csn_str name) {
    for (; rows != NULL && rows->name != NULL; rows++) {
        if (csn_str_is(name, rows->name)) {
            return rows;
        }
    }
    return NULL;
}

const tbuiltin *csn_method_find(tval self, csn_str name, bool *ret_is_unsafe) {
    const char *const *unsafe = NULL;
    const tbuiltin *row = NULL;
    switch ((tkind)self.kind) {
    case V_STR:
        row = find_in(csn_str_methods, name);
        return row != NULL ? row : find_in(csn_str_case_methods, name);
    case V_DICT:
        row = find_in(dict_methods, name);
        unsafe = dict_unsafe;
        break;
    case V_LIST:
        row = find_in(list_methods, name);
        unsafe = list_unsafe;
        break;
    case V_TUPLE:
    case V_RANGE: row = find_in(tuple_methods, name); break;
    case V_BOOL:
    case V_INT: row = find_in(int_methods, name); break;
    case V_FLOAT: row = find_in(float_methods, name); break;
    default: break;
    }
    for (; unsafe != NULL && *unsafe != NULL && row == NULL; unsafe++) {
        *ret_is_unsafe |= csn_str_is(name, *unsafe);
    }
    return row;
}
