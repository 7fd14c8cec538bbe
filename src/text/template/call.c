/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: parameters of built-ins, macros with defaults, varargs, kwargs and caller, and the `loop`
 * of a recursive for. */
#include "text/template/ast_internal.h"

#include "caisson/limits.h"

caisson_status csn_tx_keyword(trun *r, const targv *a, size_t i, tval *ret) {
    if (a->kw_key != NULL && a->kw_key[i].kind == V_STR) {
        *ret = a->kw_key[i];
        return CAISSON_OK;
    }
    return csn_ts_view(r, a->kw_name[i], true, ret);
}

/* Index of `name` among the comma separated `params`, or -1. */
static int param_index(const char *params, csn_str name) {
    int i = 0;
    for (const char *p = params; *p != '\0'; i++) {
        size_t n = strcspn(p, ",");
        if (csn_str_eq(csn_str_make(p, n), name)) {
            return i;
        }
        p += n + (p[n] == ',');
    }
    return -1;
}

static size_t param_count(const char *params) {
    size_t n = *params != '\0';
    for (const char *p = params; *p != '\0'; p++) {
        n += *p == ',';
    }
    return n;
}

caisson_status csn_tx_builtin(trun *r, const tbuiltin *row, tval self, const targv *a, tval *ret) {
    tcall c = {.self = self, .argv = a};
    CSN_TRY(csn_tr_charge(r, 1));
    if (row->fn == NULL) {
        return csn_tr_fail(r, "%s is not supported in a chat template", row->name);
    }
    if (row->params != NULL) {
        size_t max = param_count(row->params);
        if (a->n_pos > max || (row->is_positional && a->n_kw > 0)) {
            return csn_tr_fail(r, "%s takes at most %zu %sargument(s)", row->name, max,
                               row->is_positional ? "positional " : "");
        }
        for (size_t i = 0; i < a->n_pos; i++) {
            c.arg[i] = a->pos[i];
        }
        for (size_t i = 0; i < a->n_kw; i++) {
            int at = param_index(row->params, a->kw_name[i]);
            if (at < 0 || c.arg[at].kind != V_MISSING) {
                return csn_tr_fail(r, "%s got an unexpected or repeated argument '%.*s'", row->name,
                                   CSN_STR_ARGS(a->kw_name[i]));
            }
            c.arg[at] = a->kw[i];
        }
        for (size_t i = 0; i < row->n_required; i++) {
            if (c.arg[i].kind == V_MISSING) {
                return csn_tr_fail(r, "%s is missing a required argument", row->name);
            }
        }
    }
    return row->fn(r, &c, ret);
}

/* ---- macros ---- */

static bool take_keyword(const targv *a, bool *used, csn_str name, tval *ret) {
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!used[i] && csn_str_eq(a->kw_name[i], name)) {
            used[i] = true;
            *ret = a->kw[i];
            return true;
        }
    }
    return false;
}

static caisson_status rest_keywords(trun *r, const targv *a, const bool *used, tval *ret) {
    CSN_TRY(csn_tv_dict_new(r, a->n_kw, ret));
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!used[i]) {
            tval key;
            CSN_TRY(csn_tx_keyword(r, a, i, &key));
            CSN_TRY(csn_tv_dict_set(r, ret->u.d, key, a->kw[i]));
        }
    }
    return CAISSON_OK;
}

/* Binds what was passed; parameters that got nothing stay V_MISSING in `values`. */
static caisson_status bind(trun *r, const tmacro *m, const targv *a, tval *values, bool *used) {
    const csn_template *t = r->t;
    tval v;
    bool found_caller = m->has_caller_param && a->n_pos >= m->n_params;
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (i < a->n_pos) {
            values[i] = a->pos[i];
        } else {
            take_keyword(a, used, m->param_names[i], &values[i]);
            found_caller |= csn_str_is(m->param_names[i], "caller");
        }
    }
    if (m->uses_caller && !found_caller) {
        if (!take_keyword(a, used, CSN_STR("caller"), &v) || v.kind == V_NONE) {
            CSN_TRY(csn_tv_undef(r, CSN_STR("caller"), NULL, "No caller defined", &v));
        }
        CSN_TRY(csn_tx_store(r, t->sym_caller, v));
    }
    if (m->uses_kwargs) {
        CSN_TRY(rest_keywords(r, a, used, &v));
        CSN_TRY(csn_tx_store(r, t->sym_kwargs, v));
    } else {
        for (size_t i = 0; i < a->n_kw; i++) {
            if (!used[i]) {
                return csn_tr_fail(r, "macro '%.*s' takes no keyword argument '%.*s'",
                                   CSN_STR_ARGS(m->name), CSN_STR_ARGS(a->kw_name[i]));
            }
        }
    }
    if (m->uses_varargs) {
        size_t n = a->n_pos > m->n_params ? a->n_pos - m->n_params : 0;
        CSN_TRY(csn_tv_list(r, n, V_TUPLE, &v));
        for (size_t i = 0; i < n; i++) {
            v.u.q->items[i] = a->pos[m->n_params + i];
        }
        CSN_TRY(csn_tx_store(r, t->sym_varargs, v));
    } else if (a->n_pos > m->n_params) {
        return csn_tr_fail(r, "macro '%.*s' takes not more than %u argument(s)",
                           CSN_STR_ARGS(m->name), m->n_params);
    }
    return CAISSON_OK;
}

static caisson_status run_macro(trun *r, const tmacro *m, const targv *a, tval *ret) {
    tval *values;
    bool *used;
    CSN_TRY(TR_NEW(r, m->n_params, &values));
    CSN_TRY(TR_NEW(r, a->n_kw, &used));
    CSN_TRY(bind(r, m, a, values, used));
    for (uint32_t i = 0; i < m->n_params; i++) { /* defaults see the parameters before them */
        if (values[i].kind == V_MISSING) {
            if (m->defaults[i] != NULL) {
                CSN_TRY(csn_tx_eval(r, m->defaults[i], &values[i]));
            } else {
                CSN_TRY(csn_tv_undef(r, m->param_names[i], NULL, NULL, &values[i]));
            }
        }
        CSN_TRY(csn_tx_store(r, m->params[i], values[i]));
    }
    return csn_tx_capture(r, &m->body, ret);
}

static caisson_status enter_call(trun *r) {
    if (r->n_calls == CAISSON_MAX_TEMPLATE_DEPTH) {
        return csn_tr_limit(r, "calls of the template are nested too deeply",
                            CAISSON_MAX_TEMPLATE_DEPTH, (uint64_t)r->n_calls + 1);
    }
    r->n_calls++;
    return CAISSON_OK;
}

static caisson_status call_macro(trun *r, const tmacro_value *v, const targv *a, tval *ret) {
    tscope *saved = r->scope;
    CSN_TRY(enter_call(r));
    CSN_TRY(csn_tx_scope(r, v->scope, &r->scope));
    CSN_TRY(run_macro(r, v->macro, a, ret));
    r->scope = saved;
    r->n_calls--;
    return CAISSON_OK;
}

static caisson_status call_loop(trun *r, tloop *loop, const targv *a, tval *ret) {
    tscope *saved = r->scope;
    tbuf *out = r->out;
    tbuf text = {0};
    if (!loop->node->flag) {
        return csn_tr_fail(r,
                           "The loop must have the 'recursive' marker to be called recursively.");
    }
    if (a->n_pos != 1 || a->n_kw != 0) {
        return csn_tr_fail(r, "loop takes exactly one argument");
    }
    CSN_TRY(enter_call(r));
    r->scope = loop->outer;
    r->out = &text;
    CSN_TRY(csn_tx_loop(r, loop->node, a->pos[0], loop->depth0 + 1));
    r->out = out;
    r->scope = saved;
    r->n_calls--;
    return csn_tb_finish(r, &text, ret);
}

caisson_status csn_tx_call(trun *r, tval callee, const targv *a, tval *ret) {
    switch ((tkind)callee.kind) {
    case V_FUNCTION: return csn_tx_builtin(r, &callee.u.fn->row, (tval){0}, a, ret);
    case V_METHOD: return csn_tx_builtin(r, callee.u.m->row, callee.u.m->self, a, ret);
    case V_MACRO: return call_macro(r, callee.u.macro, a, ret);
    case V_LOOP: return call_loop(r, callee.u.loop, a, ret);
    case V_UNDEF: return csn_tv_undef_fail(r, callee);
    default: return csn_tr_fail(r, "'%s' object is not callable", csn_tv_type_name(callee));
    }
}
