/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on sequences. Where jinja2 gives a generator the result is a V_ITER: always true, without
 * length, consumed once. */
#include "text/template/filters_internal.h"

#include "caisson/limits.h"

/* Strings in lower case unless case matters: what sort, unique, min, max and groupby compare. */
static caisson_status fold(trun *r, tval v, bool is_sensitive, tval *ret) {
    *ret = v;
    return v.kind == V_STR && !is_sensitive ? csn_sm_case(r, v.u.s, OP_LOWER, ret) : CAISSON_OK;
}

caisson_status csn_f_first(trun *r, const tcall *c, tval *ret) {
    tval *items;
    size_t n;
    if (c->self.kind == V_ITER) {
        tseq *q = c->self.u.q;
        if (q->pos < q->n) {
            *ret = q->items[q->pos++];
            return CAISSON_OK;
        }
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    if (n == 0) {
        return csn_tv_undef(r, CSN_STR(""), NULL, "No first item, sequence was empty.", ret);
    }
    *ret = items[0];
    return CAISSON_OK;
}

caisson_status csn_f_last(trun *r, const tcall *c, tval *ret) {
    tval *items;
    size_t n;
    if (c->self.kind == V_ITER) {
        return csn_tr_fail(r, "'%s' object is not reversible", csn_tv_type_name(c->self));
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    if (n == 0) {
        return csn_tv_undef(r, CSN_STR(""), NULL, "No last item, sequence was empty.", ret);
    }
    *ret = items[n - 1];
    return CAISSON_OK;
}

caisson_status csn_f_list(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    CSN_TRY(csn_tv_items(r, c->self, &l.items, &l.n));
    return csn_tv_finish(r, &l, V_LIST, csn_tv_is_tainted(c->self), ret);
}

static caisson_status pairs(trun *r, tval v, tlist *l) {
    bool is_unsafe = false;
    const targv none = {0};
    tval view;
    if (v.kind == V_UNDEF) {
        return CAISSON_OK;
    }
    if (v.kind != V_DICT) {
        return csn_tr_fail(r, "Can only get item pairs from a mapping.");
    }
    CSN_TRY(csn_tx_builtin(r, csn_method_find(v, CSN_STR("items"), &is_unsafe), v, &none, &view));
    l->items = view.u.q->items;
    l->n = view.u.q->n;
    return CAISSON_OK;
}

caisson_status csn_f_items(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    caisson_status s = pairs(r, c->self, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

caisson_status csn_f_join(trun *r, const tcall *c, tval *ret) {
    tval *items;
    size_t n;
    tval sep;
    tbuf b = {0};
    CSN_TRY(csn_ts_view(r, CSN_STR(""), true, &sep));
    if (c->arg[0].kind != V_MISSING) {
        CSN_TRY(csn_tv_str(r, c->arg[0], &sep));
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        tval item;
        CSN_TRY(csn_tr_charge(r, 1));
        CSN_TRY(csn_tv_attr_path(r, items[i], c->arg[1], (tval){0}, &item));
        if (i > 0) {
            CSN_TRY(csn_tb_put_str(r, &b, sep.u.s));
        }
        CSN_TRY(csn_tv_put(r, &b, item));
    }
    return csn_tb_finish(r, &b, ret);
}

caisson_status csn_f_reverse(trun *r, const tcall *c, tval *ret) {
    if (c->self.kind == V_STR) {
        return csn_tv_slice(r, c->self, csn_tv_none(), csn_tv_none(), csn_tv_int(-1), ret);
    }
    tval *items;
    size_t n;
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    CSN_TRY(csn_tv_list(r, n, c->self.kind == V_ITER ? V_LIST : V_ITER, ret));
    for (size_t i = 0; i < n; i++) {
        ret->u.q->items[i] = items[n - 1 - i];
    }
    ret->u.q->is_tainted = csn_tv_is_tainted(c->self);
    return CAISSON_OK;
}

static caisson_status batches(trun *r, const tcall *c, tlist *l) {
    tval *items;
    size_t n;
    /* jinja2 only asks whether a row's length equals it: what never does gives one row, and 0,
     * which the first row's does, an empty row before that. */
    double size = csn_tv_is_number(c->arg[0]) ? csn_tv_as_double(c->arg[0]) : -1;
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    if (size == 0 && n > 0) {
        tval empty;
        CSN_TRY(csn_tv_list(r, 0, V_LIST, &empty));
        CSN_TRY(csn_tv_push(r, l, empty));
    }
    bool fills = c->arg[1].kind != V_MISSING && c->arg[1].kind != V_NONE;
    if (fills && !csn_tv_is_int(c->arg[0]) && n > 0) {
        return csn_tr_fail(r, "batch: rows are filled to an integer, not to %s",
                           csn_tv_type_name(c->arg[0]));
    }
    if (fills && size > CAISSON_MAX_TEMPLATE_STEPS) {
        return csn_tr_limit(r, "batch: too many items", CAISSON_MAX_TEMPLATE_STEPS, (uint64_t)size);
    }
    bool is_count = size >= 1 && size <= (double)n && size == (double)(size_t)size;
    size_t step = is_count ? (size_t)size : n + 1;
    for (size_t i = 0; i < n; i += step) {
        size_t k = n - i < step ? n - i : step;
        size_t full = fills && size > (double)k ? (size_t)size : k;
        tval row;
        CSN_TRY(csn_tv_list(r, full, V_LIST, &row));
        for (size_t j = 0; j < full; j++) {
            row.u.q->items[j] = j < k ? items[i + j] : c->arg[1];
        }
        CSN_TRY(csn_tv_push(r, l, row));
    }
    return CAISSON_OK;
}

caisson_status csn_f_batch(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    caisson_status s = batches(r, c, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

static caisson_status slices(trun *r, const tcall *c, tlist *l) {
    tval *items;
    size_t n;
    int64_t slices;
    CSN_TRY(csn_filter_int_arg(r, c->arg[0], 0, &slices));
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    if (slices == 0) {
        return csn_tr_fail(r, "integer division or modulo by zero");
    }
    bool fills = c->arg[1].kind != V_MISSING && c->arg[1].kind != V_NONE;
    size_t per = slices > 0 ? n / (size_t)slices : 0;
    size_t extra = slices > 0 ? n % (size_t)slices : 0;
    size_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        bool has_extra = (uint64_t)i < extra;
        size_t k = per + has_extra;
        bool adds = fills && !has_extra;
        tval row;
        CSN_TRY(csn_tv_list(r, k + adds, V_LIST, &row));
        for (size_t j = 0; j < k; j++) {
            row.u.q->items[j] = items[at + j];
        }
        if (adds) {
            row.u.q->items[k] = c->arg[1];
        }
        at += k;
        CSN_TRY(csn_tv_push(r, l, row));
    }
    return CAISSON_OK;
}

caisson_status csn_f_slice(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    caisson_status s = slices(r, c, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

/* ---- map, select, reject ---- */

static caisson_status filter_name(trun *r, const targv *a, size_t i, bool is_filter,
                                  const tbuiltin **ret) {
    if (a->pos[i].kind != V_STR) {
        return csn_tr_fail(r, "the name of a %s must be a string", is_filter ? "filter" : "test");
    }
    csn_str name = csn_tv_bytes(a->pos[i]);
    *ret = is_filter ? csn_filter_find(name) : csn_test_find(name);
    if (*ret == NULL || (*ret)->fn == NULL) {
        return csn_tr_fail(r, "No %s named '%.*s'.", is_filter ? "filter" : "test",
                           CSN_STR_ARGS(name));
    }
    return CAISSON_OK;
}

static caisson_status mapped(trun *r, const tcall *c, tlist *l) {
    const targv *a = c->argv;
    tval *items;
    size_t n;
    bool truth;
    tval path = {0};
    tval deflt = {0};
    const tbuiltin *row = NULL;
    targv rest = {0};
    CSN_TRY(csn_tv_truth(r, c->self, &truth));
    if (!truth) {
        return CAISSON_OK;
    }
    for (size_t i = 0; i < a->n_kw && a->n_pos == 0; i++) {
        if (csn_str_is(a->kw_name[i], "attribute")) {
            path = a->kw[i];
        } else if (csn_str_is(a->kw_name[i], "default")) {
            deflt = a->kw[i];
        } else {
            return csn_tr_fail(r, "Unexpected keyword argument '%.*s'",
                               CSN_STR_ARGS(a->kw_name[i]));
        }
    }
    if (path.kind == V_MISSING) {
        if (a->n_pos == 0) {
            return csn_tr_fail(r, "map requires a filter argument");
        }
        CSN_TRY(filter_name(r, a, 0, true, &row));
        rest = *a;
        rest.pos++;
        rest.n_pos--;
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        tval v;
        CSN_TRY(row != NULL ? csn_tx_builtin(r, row, items[i], &rest, &v)
                            : csn_tv_attr_path(r, items[i], path, deflt, &v));
        CSN_TRY(csn_tv_push(r, l, v));
    }
    return CAISSON_OK;
}

caisson_status csn_f_map(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    caisson_status s = mapped(r, c, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

static caisson_status select_items(trun *r, const tcall *c, bool wants, bool has_attr, tlist *l) {
    const targv *a = c->argv;
    tval *items;
    size_t n;
    bool truth;
    const tbuiltin *row = NULL;
    targv rest = *a;
    size_t off = has_attr ? 1 : 0;
    CSN_TRY(csn_tv_truth(r, c->self, &truth));
    if (!truth) {
        return CAISSON_OK;
    }
    if (has_attr && a->n_pos == 0) {
        return csn_tr_fail(r, "Missing parameter for attribute name");
    }
    if (a->n_pos > off) {
        CSN_TRY(filter_name(r, a, off, false, &row));
        rest.pos += off + 1;
        rest.n_pos -= off + 1;
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        tval v = items[i];
        if (has_attr) {
            CSN_TRY(csn_tv_attr_path(r, v, a->pos[0], (tval){0}, &v));
        }
        if (row != NULL) {
            CSN_TRY(csn_tx_builtin(r, row, v, &rest, &v));
        }
        CSN_TRY(csn_tr_charge(r, 1));
        CSN_TRY(csn_tv_truth(r, v, &truth));
        if (truth == wants) {
            CSN_TRY(csn_tv_push(r, l, items[i]));
        }
    }
    return CAISSON_OK;
}

static caisson_status selection(trun *r, const tcall *c, bool wants, bool has_attr, tval *ret) {
    tlist l = {0};
    caisson_status s = select_items(r, c, wants, has_attr, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

caisson_status csn_f_select(trun *r, const tcall *c, tval *ret) {
    return selection(r, c, true, false, ret);
}
caisson_status csn_f_reject(trun *r, const tcall *c, tval *ret) {
    return selection(r, c, false, false, ret);
}
caisson_status csn_f_selectattr(trun *r, const tcall *c, tval *ret) {
    return selection(r, c, true, true, ret);
}
caisson_status csn_f_rejectattr(trun *r, const tcall *c, tval *ret) {
    return selection(r, c, false, true, ret);
}

/* ---- order ---- */

/* Items with one key each: *ret_items is a copy that may be reordered. */
static caisson_status keyed(trun *r, tval v, tval path, tval deflt, bool is_sensitive,
                            tval **ret_items, tval **ret_keys, size_t *ret_n) {
    tval *items;
    CSN_TRY(csn_tv_items(r, v, &items, ret_n));
    CSN_TRY(csn_tr_charge(r, *ret_n));
    CSN_TRY(TR_NEW(r, *ret_n, ret_items));
    CSN_TRY(TR_NEW(r, *ret_n, ret_keys));
    for (size_t i = 0; i < *ret_n; i++) {
        tval key;
        (*ret_items)[i] = items[i];
        CSN_TRY(csn_tv_attr_path(r, items[i], path, deflt, &key));
        CSN_TRY(fold(r, key, is_sensitive, &(*ret_keys)[i]));
    }
    return CAISSON_OK;
}

/* What sort compares is a list, of one value or, for attribute="a,b.c", of several: "<" is asked
 * only of what differs, so that equal values without an order (none, undefined, objects) are no
 * error. */
static caisson_status sort_key(trun *r, tval item, tval paths, bool is_sensitive, tval *ret) {
    tlist l = {0};
    csn_str all = paths.kind == V_STR ? csn_tv_bytes(paths) : (csn_str){0};
    size_t from = 0;
    for (;;) {
        size_t comma = csn_ts_find(all, CSN_STR(","), from);
        size_t end = comma == SIZE_MAX ? all.len : comma;
        tval path = paths;
        tval key;
        if (paths.kind == V_STR) {
            CSN_TRY(csn_ts_sub(r, paths.u.s, from, end - from, &path));
        }
        CSN_TRY(csn_tv_attr_path(r, item, path, (tval){0}, &key));
        CSN_TRY(fold(r, key, is_sensitive, &key));
        CSN_TRY(csn_tv_push(r, &l, key));
        if (comma == SIZE_MAX) {
            return csn_tv_finish(r, &l, V_LIST, false, ret);
        }
        from = comma + 1;
    }
}

/* Python's sorted() takes a whole number for `reverse`, of which it asks whether it is 0. */
caisson_status csn_f_sort(trun *r, const tcall *c, tval *ret) {
    int64_t reverse;
    bool is_sensitive;
    tval *items;
    tval *keys;
    size_t n;
    CSN_TRY(csn_filter_int_arg(r, c->arg[0], 0, &reverse));
    CSN_TRY(csn_filter_bool_arg(r, c->arg[1], &is_sensitive));
    CSN_TRY(keyed(r, c->self, (tval){0}, (tval){0}, true, &items, &keys, &n));
    for (size_t i = 0; i < n; i++) {
        CSN_TRY(sort_key(r, items[i], c->arg[2], is_sensitive, &keys[i]));
    }
    CSN_TRY(csn_tv_sort(r, items, keys, n, reverse != 0));
    tlist l = {.items = items, .n = n};
    return csn_tv_finish(r, &l, V_LIST, csn_tv_is_tainted(c->self), ret);
}

caisson_status csn_f_dictsort(trun *r, const tcall *c, tval *ret) {
    bool is_sensitive;
    int64_t reverse;
    bool by_value = c->arg[1].kind == V_STR && csn_str_is(csn_tv_bytes(c->arg[1]), "value");
    if (c->arg[1].kind != V_MISSING && !by_value &&
        !(c->arg[1].kind == V_STR && csn_str_is(csn_tv_bytes(c->arg[1]), "key"))) {
        return csn_tr_fail(r, "You can only sort by either \"key\" or \"value\"");
    }
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &is_sensitive));
    CSN_TRY(csn_filter_int_arg(r, c->arg[2], 0, &reverse));
    if (c->self.kind != V_DICT) {
        return c->self.kind == V_UNDEF ? csn_tv_undef_fail(r, c->self)
                                       : csn_tr_fail(r, "'%s' object has no attribute 'items'",
                                                     csn_tv_type_name(c->self));
    }
    tval pairs;
    tval *items;
    tval *keys;
    size_t n;
    CSN_TRY(csn_f_items(r, c, &pairs));
    CSN_TRY(keyed(r, pairs, csn_tv_int(by_value), (tval){0}, is_sensitive, &items, &keys, &n));
    CSN_TRY(csn_tv_sort(r, items, keys, n, reverse != 0));
    tlist l = {.items = items, .n = n};
    return csn_tv_finish(r, &l, V_LIST, c->self.u.d->is_tainted, ret);
}

static caisson_status extreme(trun *r, const tcall *c, bool is_max, tval *ret) {
    bool is_sensitive;
    tval *items;
    tval *keys;
    size_t n;
    size_t best = 0;
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &is_sensitive));
    CSN_TRY(keyed(r, c->self, c->arg[1], (tval){0}, is_sensitive, &items, &keys, &n));
    if (n == 0) {
        return csn_tv_undef(r, CSN_STR(""), NULL, "No aggregated item, sequence was empty.", ret);
    }
    for (size_t i = 1; i < n; i++) {
        int order = 0;
        bool is_nan;
        CSN_TRY(csn_tv_compare(r, keys[i], keys[best], is_max ? ">" : "<", &order, &is_nan));
        if (!is_nan && (is_max ? order > 0 : order < 0)) {
            best = i;
        }
    }
    *ret = items[best];
    return CAISSON_OK;
}
caisson_status csn_f_max(trun *r, const tcall *c, tval *ret) {
    return extreme(r, c, true, ret);
}
caisson_status csn_f_min(trun *r, const tcall *c, tval *ret) {
    return extreme(r, c, false, ret);
}

static caisson_status uniques(trun *r, const tcall *c, tlist *l) {
    bool is_sensitive;
    tval *items;
    tval *keys;
    size_t n;
    tval seen;
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &is_sensitive));
    CSN_TRY(keyed(r, c->self, c->arg[1], (tval){0}, is_sensitive, &items, &keys, &n));
    CSN_TRY(csn_tv_dict_new(r, 0, &seen));
    for (size_t i = 0; i < n; i++) {
        bool is_known;
        tval unused;
        CSN_TRY(csn_tv_dict_get(r, seen.u.d, keys[i], &is_known, &unused));
        if (!is_known) {
            CSN_TRY(csn_tv_dict_set(r, seen.u.d, keys[i], csn_tv_none()));
            CSN_TRY(csn_tv_push(r, l, items[i]));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_f_unique(trun *r, const tcall *c, tval *ret) {
    tlist l = {0};
    caisson_status s = uniques(r, c, &l);
    return csn_tv_generator(r, &l, csn_tv_is_tainted(c->self), s, ret);
}

caisson_status csn_f_groupby(trun *r, const tcall *c, tval *ret) {
    bool is_sensitive;
    tval *items;
    tval *keys;
    size_t n;
    tlist l = {0};
    CSN_TRY(csn_filter_bool_arg(r, c->arg[2], &is_sensitive));
    CSN_TRY(keyed(r, c->self, c->arg[0], c->arg[1], is_sensitive, &items, &keys, &n));
    CSN_TRY(csn_tv_sort(r, items, keys, n, false));
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        bool is_same = true;
        while (end < n && is_same) {
            CSN_TRY(csn_tv_equal(r, keys[i], keys[end], &is_same));
            end += is_same;
        }
        tval group;
        tval pair;
        CSN_TRY(csn_tv_list(r, end - i, V_LIST, &group));
        memcpy(group.u.q->items, items + i, (end - i) * sizeof(tval));
        CSN_TRY(csn_tv_list(r, 2, V_TUPLE, &pair));
        pair.u.q->origin = "group";
        CSN_TRY(csn_tv_attr_path(r, items[i], c->arg[0], c->arg[1], &pair.u.q->items[0]));
        pair.u.q->items[1] = group;
        CSN_TRY(csn_tv_push(r, &l, pair));
        i = end;
    }
    return csn_tv_finish(r, &l, V_LIST, csn_tv_is_tainted(c->self), ret);
}

caisson_status csn_f_sum(trun *r, const tcall *c, tval *ret) {
    tval *items;
    size_t n;
    tval sum = c->arg[1].kind == V_MISSING ? csn_tv_int(0) : c->arg[1];
    if (sum.kind == V_STR) {
        return csn_tr_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    CSN_TRY(csn_tv_items(r, c->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        tval v;
        CSN_TRY(csn_tv_attr_path(r, items[i], c->arg[0], (tval){0}, &v));
        CSN_TRY(csn_tv_arith(r, CSN_OP_PLUS, sum, v, &sum));
    }
    *ret = sum;
    return CAISSON_OK;
}
