/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. A body stops when r->flow says that a loop is to be left or continued. */
#include "text/template/ast_internal.h"

caisson_status csn_tx_capture(trun *r, const tbody *body, tval *ret) {
    tbuf text = {0};
    tbuf *out = r->out;
    r->out = &text;
    CSN_TRY(csn_tx_body(r, body));
    r->out = out;
    return csn_tb_finish(r, &text, ret);
}

static caisson_status do_if(trun *r, const tnode *n) {
    for (uint32_t i = 0; i < n->n_list; i++) {
        tval v;
        bool truth;
        CSN_TRY(csn_tx_eval(r, n->list[i], &v));
        CSN_TRY(csn_tv_truth(r, v, &truth));
        if (truth) {
            return csn_tx_body(r, &n->bodies[i]);
        }
    }
    return csn_tx_body(r, &n->bodies[n->n_list]);
}

static caisson_status macro_value(trun *r, const tnode *n, tval *ret) {
    tmacro_value *m;
    CSN_TRY(TR_NEW(r, 1, &m));
    *m = (tmacro_value){.macro = n->macro, .scope = r->scope};
    *ret = (tval){.kind = V_MACRO, .u.macro = m};
    return CAISSON_OK;
}

/* What a filter block or a call block writes must be text: jinja2 joins it as it is. */
static caisson_status put_text(trun *r, tval v) {
    return v.kind == V_STR ? csn_tb_put_str(r, r->out, v.u.s)
                           : csn_tr_fail(r, "expected str instance, %s found", csn_tv_type_name(v));
}

static caisson_status do_call_block(trun *r, const tnode *n) {
    tval caller;
    tval v;
    CSN_TRY(macro_value(r, n, &caller));
    CSN_TRY(csn_tx_call_with_caller(r, n->a, caller, &v));
    return put_text(r, v);
}

/* The text of a body in a scope of its own, through a chain of filters (may be NULL). */
static caisson_status filtered_block(trun *r, const tbody *body, const tnode *chain, tval *ret) {
    tscope *saved = r->scope;
    tval outer_capture = r->capture;
    CSN_TRY(csn_tx_scope(r, saved, &r->scope));
    CSN_TRY(csn_tx_capture(r, body, ret));
    if (chain != NULL && r->flow == FLOW_NEXT) {
        r->capture = *ret;
        CSN_TRY(csn_tx_eval(r, chain, ret));
        r->capture = outer_capture;
    }
    r->scope = saved;
    return CAISSON_OK;
}

static caisson_status do_with(trun *r, const tnode *n) {
    tscope *saved = r->scope;
    tscope *inner;
    CSN_TRY(csn_tx_scope(r, saved, &inner));
    for (uint32_t i = 0; i < n->n_list; i++) {
        tval v;
        r->scope = saved; /* values see what is outside */
        CSN_TRY(csn_tx_eval(r, n->list2[i], &v));
        r->scope = inner;
        CSN_TRY(csn_tx_assign(r, n->list[i], v));
    }
    r->scope = inner;
    CSN_TRY(csn_tx_body(r, &n->bodies[0]));
    r->scope = saved;
    return CAISSON_OK;
}

static caisson_status do_generation(trun *r, const tnode *n) {
    tscope *saved = r->scope;
    CSN_TRY(csn_tx_scope(r, saved, &r->scope));
    CSN_TRY(csn_tx_body(r, &n->macro->body));
    r->scope = saved;
    return CAISSON_OK;
}

static caisson_status exec(trun *r, const tnode *n) {
    tval v;
    r->line = n->line;
    switch ((tnode_kind)n->kind) {
    case N_DATA: return csn_tb_put(r, r->out, n->name.ptr, n->name.len, true);
    case N_PRINT:
        CSN_TRY(csn_tx_eval(r, n->a, &v));
        r->line = n->line;
        return csn_tv_put(r, r->out, v);
    case N_IF: return do_if(r, n);
    case N_FOR:
        CSN_TRY(csn_tx_eval(r, n->b, &v));
        r->line = n->line;
        return csn_tx_loop(r, n, v, 0);
    case N_MACRO: CSN_TRY(macro_value(r, n, &v)); return csn_tx_store(r, n->sym, v);
    case N_CALL_BLOCK: return do_call_block(r, n);
    case N_FILTER_BLOCK:
        CSN_TRY(filtered_block(r, &n->bodies[0], n->a, &v));
        return r->flow == FLOW_NEXT ? put_text(r, v) : CAISSON_OK;
    case N_WITH: return do_with(r, n);
    case N_SET: CSN_TRY(csn_tx_eval(r, n->b, &v)); return csn_tx_assign(r, n->a, v);
    case N_SET_BLOCK:
        CSN_TRY(filtered_block(r, &n->bodies[0], n->b, &v));
        return r->flow == FLOW_NEXT ? csn_tx_assign(r, n->a, v) : CAISSON_OK;
    case N_GENERATION: return do_generation(r, n);
    case N_BREAK: r->flow = FLOW_BREAK; return CAISSON_OK;
    case N_CONTINUE: r->flow = FLOW_CONTINUE; return CAISSON_OK;
    default: return csn_tr_fail(r, "this node is no statement");
    }
}

caisson_status csn_tx_body(trun *r, const tbody *body) {
    caisson_status s = CAISSON_OK;
    CSN_TRY(csn_tr_enter(r));
    for (uint32_t i = 0; i < body->n_unset && s == CAISSON_OK; i++) {
        tval v;
        s = csn_tv_undef(r, r->t->syms[body->unset[i]], NULL, NULL, &v);
        s = s == CAISSON_OK ? csn_tx_store(r, body->unset[i], v) : s;
    }
    for (uint32_t i = 0; i < body->n && s == CAISSON_OK && r->flow == FLOW_NEXT; i++) {
        s = csn_tr_charge(r, 1);
        if (s == CAISSON_OK) {
            s = exec(r, body->items[i]);
        }
    }
    csn_tr_leave(r);
    return s;
}
