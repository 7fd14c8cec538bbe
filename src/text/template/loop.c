/* SPDX-License-Identifier: Apache-2.0 */
/* `for`: items are fetched one by one, so that a filter (`for x in xs if ...`) sees what the body
 * did before, as in Python; `loop` looks ahead only when it is asked to. */
#include "text/template/ast_internal.h"

/* Does the item pass the loop's filter? */
static caisson_status passes(trun *r, tloop *l, tval item, bool *ret) {
    tscope *saved = r->scope;
    tval v;
    l->test_scope->n = 0;
    r->scope = l->test_scope;
    CSN_TRY(csn_tx_assign(r, l->node->a, item));
    CSN_TRY(csn_tx_eval(r, l->node->c, &v));
    r->scope = saved;
    return csn_tv_truth(r, v, ret);
}

static caisson_status fetch(trun *r, tloop *l, bool *ret_has, tval *ret) {
    *ret_has = false;
    while (l->pos < l->n && !*ret_has) {
        *ret = l->items[l->pos++];
        *ret_has = true;
        if (l->is_filtered) {
            CSN_TRY(passes(r, l, *ret, ret_has));
        }
    }
    return CAISSON_OK;
}

static caisson_status peek(trun *r, tloop *l) {
    if (l->has_next) {
        return CAISSON_OK;
    }
    return fetch(r, l, &l->has_next, &l->next);
}

static caisson_status next(trun *r, tloop *l, bool *ret_has, tval *ret) {
    if (l->has_next) {
        *ret = l->next;
        *ret_has = true;
        l->has_next = false;
    } else {
        CSN_TRY(fetch(r, l, ret_has, ret));
    }
    if (*ret_has) {
        l->index0++;
        l->before = l->current;
        l->current = *ret;
    }
    return CAISSON_OK;
}

/* The number of items; a filter has to see all of them for it. */
static caisson_status length(trun *r, tloop *l) {
    if (l->length >= 0) {
        return CAISSON_OK;
    }
    if (l->is_filtered) {
        tlist rest = {0};
        tval v;
        bool has;
        for (;;) {
            CSN_TRY(fetch(r, l, &has, &v));
            if (!has) {
                break;
            }
            CSN_TRY(csn_tv_push(r, &rest, v));
        }
        l->items = rest.items;
        l->n = rest.n;
        l->pos = 0;
        l->is_filtered = false;
        l->length = (int64_t)rest.n + l->index0 + 1 + l->has_next;
        return CAISSON_OK;
    }
    l->length = (int64_t)l->n;
    return CAISSON_OK;
}

static caisson_status m_cycle(trun *r, const tcall *c, tval *ret) {
    const targv *a = c->argv;
    if (a->n_pos == 0 || a->n_kw > 0) {
        return csn_tr_fail(r, "no items for cycling given");
    }
    int64_t i = c->self.u.loop->index0;
    *ret = a->pos[(size_t)(i < 0 ? 0 : i) % a->n_pos];
    return CAISSON_OK;
}

static caisson_status m_changed(trun *r, const tcall *c, tval *ret) {
    const targv *a = c->argv;
    tloop *l = c->self.u.loop;
    tval now;
    bool is_same = false;
    CSN_TRY(csn_tv_list(r, a->n_pos, V_TUPLE, &now));
    for (size_t i = 0; i < a->n_pos; i++) {
        now.u.q->items[i] = a->pos[i];
    }
    if (l->has_changed) {
        CSN_TRY(csn_tv_equal(r, l->changed, now, &is_same));
    }
    if (!is_same) {
        l->changed = now;
        l->has_changed = true;
    }
    *ret = csn_tv_bool(!is_same);
    return CAISSON_OK;
}

static const tbuiltin loop_methods[] = {{"cycle", m_cycle, NULL, 0, true},
                                        {"changed", m_changed, NULL, 0, true}};

caisson_status csn_tx_loop_attr(trun *r, tloop *l, csn_str name, bool *ret_found, tval *ret) {
    *ret_found = true;
    if (csn_str_is(name, "index") || csn_str_is(name, "index0")) {
        *ret = csn_tv_int(l->index0 + (name.len == 5));
    } else if (csn_str_is(name, "first")) {
        *ret = csn_tv_bool(l->index0 == 0);
    } else if (csn_str_is(name, "last")) {
        CSN_TRY(peek(r, l));
        *ret = csn_tv_bool(!l->has_next);
    } else if (csn_str_is(name, "length")) {
        CSN_TRY(length(r, l));
        *ret = csn_tv_int(l->length);
    } else if (csn_str_is(name, "revindex") || csn_str_is(name, "revindex0")) {
        CSN_TRY(length(r, l));
        *ret = csn_tv_int(l->length - l->index0 - (name.len == 9));
    } else if (csn_str_is(name, "depth") || csn_str_is(name, "depth0")) {
        *ret = csn_tv_int((int64_t)l->depth0 + (name.len == 5));
    } else if (csn_str_is(name, "previtem")) {
        *ret = l->before;
        return l->index0 > 0 ? CAISSON_OK
                             : csn_tv_undef(r, name, NULL, "there is no previous item", ret);
    } else if (csn_str_is(name, "nextitem")) {
        CSN_TRY(peek(r, l));
        *ret = l->next;
        return l->has_next ? CAISSON_OK : csn_tv_undef(r, name, NULL, "there is no next item", ret);
    } else {
        for (size_t i = 0; i < 2; i++) {
            if (csn_str_is(name, loop_methods[i].name)) {
                tbound *m;
                CSN_TRY(TR_NEW(r, 1, &m));
                *m = (tbound){.self = {.kind = V_LOOP, .u.loop = l}, .row = &loop_methods[i]};
                *ret = (tval){.kind = V_METHOD, .u.m = m};
                return CAISSON_OK;
            }
        }
        *ret_found = false;
    }
    return CAISSON_OK;
}

static caisson_status iterations(trun *r, tloop *l, tscope *scope, bool *ret_ran) {
    tval loop = {.kind = V_LOOP, .u.loop = l};
    for (;;) {
        bool has;
        tval item;
        CSN_TRY(csn_tr_charge(r, 1));
        CSN_TRY(next(r, l, &has, &item));
        if (!has) {
            return CAISSON_OK;
        }
        *ret_ran = true;
        scope->n = 0; /* each round begins with what is outside */
        r->scope = scope;
        CSN_TRY(csn_tx_store(r, r->t->sym_loop, loop));
        CSN_TRY(csn_tx_assign(r, l->node->a, item));
        CSN_TRY(csn_tx_body(r, &l->node->bodies[0]));
        r->scope = l->outer;
        tflow flow = r->flow;
        r->flow = FLOW_NEXT;
        if (flow == FLOW_BREAK) {
            return CAISSON_OK;
        }
    }
}

caisson_status csn_tx_loop(trun *r, const tnode *n, tval iterable, uint32_t depth0) {
    tloop *l;
    tscope *scope;
    bool has_run = false;
    size_t start = iterable.kind == V_ITER ? iterable.u.q->pos : 0;
    CSN_TRY(TR_NEW(r, 1, &l));
    *l = (tloop){.node = n, .outer = r->scope, .index0 = -1, .length = -1, .depth0 = depth0};
    CSN_TRY(csn_tv_items(r, iterable, &l->items, &l->n));
    l->is_filtered = n->c != NULL;
    CSN_TRY(csn_tx_scope(r, r->scope, &scope));
    if (l->is_filtered) {
        CSN_TRY(csn_tx_scope(r, r->scope, &l->test_scope));
    }
    bool was_filtered = l->is_filtered;
    CSN_TRY(iterations(r, l, scope, &has_run));
    if (iterable.kind == V_ITER && (!was_filtered || l->is_filtered)) {
        iterable.u.q->pos = start + l->pos; /* a generator goes on where `break` left it */
    }
    if (has_run || n->bodies[1].n == 0) {
        return CAISSON_OK;
    }
    tscope *saved = r->scope;
    CSN_TRY(csn_tx_scope(r, saved, &r->scope));
    CSN_TRY(csn_tx_body(r, &n->bodies[1]));
    r->scope = saved;
    return CAISSON_OK;
}
