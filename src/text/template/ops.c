/* SPDX-License-Identifier: Apache-2.0 */
/* Operators, attributes, subscripts and slices. Integers are of 64 bits: where Python would go on
 * with a longer one, the rendering fails. */
#include "text/template/ast_internal.h"

#include <float.h>
#include <math.h>

#include "base/utf8.h"
#include "caisson/limits.h"

static caisson_status overflow(trun *r, const char *construct) {
    return csn_tr_fail(r, "the result of %s does not fit into 64 bits", construct);
}

static caisson_status bad_operands(trun *r, const char *op, tval a, tval b) {
    return csn_tr_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op,
                       csn_tv_type_name(a), csn_tv_type_name(b));
}

static const char *op_text(int op) {
    switch (op) {
    case TOK_ADD: return "+";
    case TOK_SUB: return "-";
    case TOK_MUL: return "*";
    case TOK_DIV: return "/";
    case TOK_FLOORDIV: return "//";
    case TOK_MOD: return "%";
    default: return "** or pow()";
    }
}

static caisson_status int_power(trun *r, int64_t base, int64_t e, tval *ret) {
    const char *name = op_text(TOK_POW);
    if (e < 0) {
        if (base == 0) {
            return csn_tr_fail(r, "0.0 cannot be raised to a negative power");
        }
        *ret = csn_tv_float(pow((double)base, (double)e));
        return CAISSON_OK;
    }
    int64_t v = 1;
    while (e > 0) {
        if ((e & 1) != 0 && __builtin_mul_overflow(v, base, &v)) {
            return overflow(r, name);
        }
        e >>= 1;
        if (e > 0 && __builtin_mul_overflow(base, base, &base)) {
            return overflow(r, name);
        }
    }
    *ret = csn_tv_int(v);
    return CAISSON_OK;
}

static caisson_status int_arith(trun *r, int op, int64_t a, int64_t b, tval *ret) {
    int64_t v = 0;
    bool is_over = false;
    switch (op) {
    case TOK_ADD: is_over = __builtin_add_overflow(a, b, &v); break;
    case TOK_SUB: is_over = __builtin_sub_overflow(a, b, &v); break;
    case TOK_MUL: is_over = __builtin_mul_overflow(a, b, &v); break;
    case TOK_POW: return int_power(r, a, b, ret);
    default:
        if (b == 0) {
            return csn_tr_fail(r, op == TOK_DIV ? "division by zero"
                                                : "integer division or modulo by zero");
        }
        if (op == TOK_DIV) { /* exact numbers rounded once, as Python does */
            const int64_t max = INT64_C(1) << DBL_MANT_DIG;
            if (a > max || a < -max || b > max || b < -max) {
                return csn_tr_fail(r, "/ of numbers beyond 2^53 is not supported");
            }
            *ret = csn_tv_float((double)a / (double)b);
            return CAISSON_OK;
        }
        if (b == -1) { /* INT64_MIN / -1 does not exist */
            if (op == TOK_MOD) {
                break;
            }
            is_over = __builtin_sub_overflow(0, a, &v);
            break;
        }
        v = op == TOK_MOD ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0)) { /* towards minus infinity */
            v = op == TOK_MOD ? v + b : v - 1;
        }
        break;
    }
    *ret = csn_tv_int(v);
    return is_over ? overflow(r, op_text(op)) : CAISSON_OK;
}

static caisson_status float_arith(trun *r, int op, double a, double b, tval *ret) {
    double v = 0;
    switch (op) {
    case TOK_ADD: v = a + b; break;
    case TOK_SUB: v = a - b; break;
    case TOK_MUL: v = a * b; break;
    case TOK_POW:
        if (a == 0 && b < 0) {
            return csn_tr_fail(r, "0.0 cannot be raised to a negative power");
        }
        if (a < 0 && b != floor(b) && isfinite(b)) {
            return csn_tr_fail(r, "a negative number to a fractional power is complex");
        }
        v = pow(a, b);
        if (isinf(v) && isfinite(a) && isfinite(b)) {
            return csn_tr_fail(r, "the result of ** is too large");
        }
        break;
    default:
        if (b == 0) {
            return csn_tr_fail(r, op == TOK_DIV   ? "float division by zero"
                                  : op == TOK_MOD ? "float modulo"
                                                  : "float floor division by zero");
        }
        if (op == TOK_DIV) {
            v = a / b;
            break;
        }
        double mod = fmod(a, b);
        double div = (a - mod) / b;
        if (mod != 0) {
            if ((b < 0) != (mod < 0)) {
                mod += b;
                div -= 1;
            }
        } else {
            mod = copysign(0, b);
        }
        if (op == TOK_MOD) {
            v = mod;
        } else if (div != 0) {
            v = floor(div);
            v += div - v > 0.5 ? 1 : 0;
        } else {
            v = copysign(0, a / b);
        }
        break;
    }
    *ret = csn_tv_float(v);
    return CAISSON_OK;
}

static caisson_status repeat(trun *r, tval seq, int64_t times, tval *ret) {
    if (seq.kind == V_STR) {
        tbuf b = {0};
        CSN_TRY(csn_tb_fill(r, &b, seq.u.s, times));
        CSN_TRY(csn_tb_finish(r, &b, ret));
        ret->u.s->is_markup = seq.u.s->is_markup;
        return CAISSON_OK;
    }
    size_t n = seq.u.q->n;
    times = times < 0 || n == 0 ? 0 : times;
    if (times > CAISSON_MAX_TEMPLATE_STEPS || (uint64_t)times * n > CAISSON_MAX_TEMPLATE_STEPS) {
        return csn_tr_limit(r, "a list of the template is too long", CAISSON_MAX_TEMPLATE_STEPS,
                            (uint64_t)times);
    }
    CSN_TRY(csn_tv_list(r, (size_t)times * n, (tkind)seq.kind, ret));
    for (int64_t i = 0; i < times; i++) {
        memcpy(ret->u.q->items + (size_t)i * n, seq.u.q->items, n * sizeof(tval));
    }
    ret->u.q->is_tainted = seq.u.q->is_tainted;
    return CAISSON_OK;
}

static caisson_status add_strings(trun *r, tval a, tval b, tval *ret) {
    bool is_markup = a.u.s->is_markup || b.u.s->is_markup;
    if (is_markup) { /* Markup escapes the other side */
        CSN_TRY(csn_tv_escape(r, a, &a));
        CSN_TRY(csn_tv_escape(r, b, &b));
    }
    CSN_TRY(csn_ts_concat(r, a.u.s, b.u.s, ret));
    ret->u.s->is_markup = is_markup;
    return CAISSON_OK;
}

caisson_status csn_tv_arith(trun *r, int op, tval a, tval b, tval *ret) {
    CSN_TRY(csn_tr_charge(r, 1));
    if (a.kind == V_UNDEF || (b.kind == V_UNDEF && !(op == TOK_MOD && a.kind == V_STR))) {
        return csn_tv_undef_fail(r, a.kind == V_UNDEF ? a : b);
    }
    if (csn_tv_is_number(a) && csn_tv_is_number(b)) {
        if (a.kind == V_FLOAT || b.kind == V_FLOAT) {
            CSN_TRY(float_arith(r, op, csn_tv_as_double(a), csn_tv_as_double(b), ret));
        } else {
            CSN_TRY(int_arith(r, op, csn_tv_as_int(a), csn_tv_as_int(b), ret));
        }
        ret->is_tainted = a.is_tainted || b.is_tainted;
        return CAISSON_OK;
    }
    if (op == TOK_MOD && a.kind == V_STR) {
        return csn_tf_percent(r, a.u.s, b, ret);
    }
    bool is_seq_a = a.kind == V_STR || a.kind == V_LIST || a.kind == V_TUPLE;
    bool is_seq_b = b.kind == V_STR || b.kind == V_LIST || b.kind == V_TUPLE;
    if (op == TOK_MUL && is_seq_a && csn_tv_is_int(b)) {
        return repeat(r, a, csn_tv_as_int(b), ret);
    }
    if (op == TOK_MUL && is_seq_b && csn_tv_is_int(a)) {
        return repeat(r, b, csn_tv_as_int(a), ret);
    }
    if (op != TOK_ADD || a.kind != b.kind || !is_seq_a) {
        return bad_operands(r, op_text(op), a, b);
    }
    if (a.kind == V_STR) {
        return add_strings(r, a, b, ret);
    }
    size_t n = a.u.q->n;
    CSN_TRY(csn_tv_list(r, n + b.u.q->n, (tkind)a.kind, ret));
    memcpy(ret->u.q->items, a.u.q->items, n * sizeof(tval));
    memcpy(ret->u.q->items + n, b.u.q->items, b.u.q->n * sizeof(tval));
    ret->u.q->is_tainted = a.u.q->is_tainted || b.u.q->is_tainted;
    return CAISSON_OK;
}

caisson_status csn_tv_negate(trun *r, int op, tval a, tval *ret) {
    if (a.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, a);
    }
    if (!csn_tv_is_number(a)) {
        return csn_tr_fail(r, "bad operand type for unary %s: '%s'", op_text(op),
                           csn_tv_type_name(a));
    }
    if (a.kind == V_FLOAT) {
        *ret = csn_tv_float(op == TOK_SUB ? -a.u.f : a.u.f);
    } else {
        int64_t v = csn_tv_as_int(a);
        if (op == TOK_SUB && __builtin_sub_overflow(0, v, &v)) {
            return overflow(r, "unary -");
        }
        *ret = csn_tv_int(v);
    }
    ret->is_tainted = a.is_tainted;
    return CAISSON_OK;
}

/* ---- attributes and subscripts ---- */

static bool is_dunder(csn_str name) {
    return name.len > 4 && csn_str_starts(name, CSN_STR("__")) && csn_str_ends(name, CSN_STR("__"));
}

static caisson_status macro_attr(trun *r, const tmacro *m, csn_str name, bool *ret_found,
                                 tval *ret) {
    *ret_found = true;
    if (csn_str_is(name, "name") && m->is_anonymous) {
        *ret = (tval){.kind = V_NONE};
        return CAISSON_OK;
    }
    if (csn_str_is(name, "name")) {
        return csn_ts_view(r, m->name, true, ret);
    }
    if (csn_str_is(name, "arguments")) {
        CSN_TRY(csn_tv_list(r, m->n_params, V_TUPLE, ret));
        for (uint32_t i = 0; i < m->n_params; i++) {
            CSN_TRY(csn_ts_view(r, m->param_names[i], true, &ret->u.q->items[i]));
        }
        return CAISSON_OK;
    }
    *ret = csn_tv_bool(csn_str_is(name, "caller")         ? m->uses_caller
                       : csn_str_is(name, "catch_kwargs") ? m->uses_kwargs
                                                          : m->uses_varargs);
    *ret_found = csn_str_is(name, "caller") || csn_str_is(name, "catch_kwargs") ||
                 csn_str_is(name, "catch_varargs");
    return CAISSON_OK;
}

/* What Python's getattr finds: methods and the few attributes of our types. */
static caisson_status own_attr(trun *r, tval v, csn_str name, bool *ret_found, tval *ret) {
    bool is_unsafe = false;
    *ret_found = true;
    if (v.kind == V_NAMESPACE) {
        *ret_found = csn_tv_dict_get_str(v.u.d, name, ret);
        return CAISSON_OK;
    }
    if (v.kind == V_LOOP) {
        return csn_tx_loop_attr(r, v.u.loop, name, ret_found, ret);
    }
    if (v.kind == V_MACRO) {
        return macro_attr(r, v.u.macro->macro, name, ret_found, ret);
    }
    if (v.kind == V_TUPLE && v.u.q->origin != NULL && v.u.q->n == 2 &&
        (csn_str_is(name, "grouper") || csn_str_is(name, "list"))) {
        *ret = v.u.q->items[csn_str_is(name, "list")];
        return CAISSON_OK;
    }
    if (v.kind == V_RANGE || csn_tv_is_int(v)) {
        static const struct {
            const char *name;
            int which;
        } attrs[] = {{"start", 0},     {"stop", 1}, {"step", 2},       {"real", 3},
                     {"numerator", 3}, {"imag", 4}, {"denominator", 5}};
        for (size_t i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
            if (!csn_str_is(name, attrs[i].name) || (attrs[i].which < 3) != (v.kind == V_RANGE)) {
                continue;
            }
            int64_t value = v.kind == V_RANGE     ? (&v.u.r->start)[attrs[i].which]
                            : attrs[i].which == 3 ? csn_tv_as_int(v)
                                                  : attrs[i].which - 4;
            *ret = csn_tv_int(value);
            ret->is_tainted = v.is_tainted;
            return CAISSON_OK;
        }
    }
    const tbuiltin *row = csn_method_find(v, name, &is_unsafe);
    if (is_unsafe || is_dunder(name)) {
        return csn_tv_undef(
            r, name, csn_tv_type_name(v),
            "access to an unsafe attribute (it would change the value, or is internal)", ret);
    }
    if (row == NULL) {
        *ret_found = false;
        return CAISSON_OK;
    }
    tbound *m;
    CSN_TRY(TR_NEW(r, 1, &m));
    *m = (tbound){.self = v, .row = row};
    *ret = (tval){.kind = V_METHOD, .u.m = m};
    return CAISSON_OK;
}

caisson_status csn_tv_getattr(trun *r, tval v, csn_str name, tval *ret) {
    bool is_found;
    CSN_TRY(csn_tr_charge(r, 1));
    if (v.kind == V_UNDEF && !is_dunder(name)) {
        return csn_tv_undef_fail(r, v);
    }
    CSN_TRY(own_attr(r, v, name, &is_found, ret));
    if (is_found || (v.kind == V_DICT && csn_tv_dict_get_str(v.u.d, name, ret))) {
        return CAISSON_OK;
    }
    return csn_tv_undef(r, name, csn_tv_type_name(v), NULL, ret);
}

static caisson_status item_of(trun *r, tval v, tval key, bool *ret_found, tval *ret) {
    *ret_found = false;
    if (v.kind == V_DICT) {
        return csn_tv_is_hashable(key) ? csn_tv_dict_get(r, v.u.d, key, ret_found, ret)
                                       : CAISSON_OK;
    }
    if (!csn_tv_is_int(key) ||
        (v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_STR && v.kind != V_RANGE)) {
        return CAISSON_OK;
    }
    int64_t n;
    int64_t i = csn_tv_as_int(key);
    CSN_TRY(csn_tv_len(r, v, &n));
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        return CAISSON_OK;
    }
    *ret_found = true;
    if (v.kind == V_RANGE) {
        *ret = csn_tv_int(v.u.r->start + i * v.u.r->step);
        ret->is_tainted = v.is_tainted;
    } else if (v.kind == V_STR) {
        uint32_t cp;
        CSN_TRY(csn_tr_charge_bytes(r, v.u.s->len == (size_t)n ? 0 : v.u.s->len));
        size_t at = csn_ts_offset(v.u.s, (size_t)i);
        return csn_ts_sub(r, v.u.s, at, csn_utf8_decode(csn_tv_bytes(v), at, &cp), ret);
    } else {
        *ret = v.u.q->items[i];
    }
    return CAISSON_OK;
}

caisson_status csn_tv_getitem(trun *r, tval v, tval key, tval *ret) {
    bool is_found;
    CSN_TRY(csn_tr_charge(r, 1));
    if (v.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, v);
    }
    CSN_TRY(item_of(r, v, key, &is_found, ret));
    if (!is_found && key.kind == V_STR) {
        CSN_TRY(own_attr(r, v, csn_tv_bytes(key), &is_found, ret));
    }
    if (is_found) {
        return CAISSON_OK;
    }
    tval text = key;
    if (key.kind != V_STR) {
        tbuf b = {0};
        if (csn_tv_is_number(key) || key.kind == V_NONE) {
            CSN_TRY(csn_tv_repr(r, &b, key));
        }
        CSN_TRY(csn_tb_finish(r, &b, &text));
    }
    return csn_tv_undef(r, csn_tv_bytes(text), csn_tv_type_name(v), NULL, ret);
}

/* One bound of a slice, clamped as Python does for a sequence of n items. */
static caisson_status bound(trun *r, tval v, int64_t deflt, int64_t lo, int64_t hi, int64_t n,
                            int64_t *ret) {
    if (v.kind == V_NONE || v.kind == V_MISSING) {
        *ret = deflt;
        return CAISSON_OK;
    }
    if (v.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, v);
    }
    if (!csn_tv_is_int(v)) {
        return csn_tr_fail(r, "slice indices must be integers or None");
    }
    int64_t i = csn_tv_as_int(v);
    i += i < 0 ? n : 0;
    *ret = i < lo ? lo : i > hi ? hi : i;
    return CAISSON_OK;
}

static caisson_status slice_string(trun *r, const tstr *s, int64_t start, int64_t count,
                                   int64_t step, tval *ret) {
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    if (step == 1) {
        size_t from = csn_ts_offset(s, (size_t)start);
        size_t to = csn_ts_offset(s, (size_t)(start + count));
        return csn_ts_sub(r, s, from, to - from, ret);
    }
    tval *chars;
    size_t n;
    tbuf b = {0};
    tval whole = {.kind = V_STR, .u.s = (tstr *)s};
    CSN_TRY(csn_tv_items(r, whole, &chars, &n));
    CSN_TRY(csn_tr_charge(r, (uint64_t)count / 8));
    for (int64_t k = 0; k < count; k++) {
        CSN_TRY(csn_tb_put_str(r, &b, chars[start + k * step].u.s)); /* inside by `count` */
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return CAISSON_OK;
}

caisson_status csn_tv_slice(trun *r, tval v, tval vstart, tval vstop, tval vstep, tval *ret) {
    int64_t n;
    int64_t step = 1;
    int64_t start;
    int64_t stop;
    CSN_TRY(csn_tr_charge(r, 1));
    if (v.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, v);
    }
    if (v.kind != V_STR && v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_RANGE) {
        return csn_tr_fail(r, "'%s' object cannot be sliced", csn_tv_type_name(v));
    }
    CSN_TRY(csn_tv_len(r, v, &n));
    if (vstep.kind != V_NONE && vstep.kind != V_MISSING) {
        if (!csn_tv_is_int(vstep)) {
            return csn_tr_fail(r, "slice indices must be integers or None");
        }
        step = csn_tv_as_int(vstep);
        step = step < -INT64_MAX ? -INT64_MAX : step;
    }
    if (step == 0) {
        return csn_tr_fail(r, "slice step cannot be zero");
    }
    bool is_up = step > 0;
    CSN_TRY(bound(r, vstart, is_up ? 0 : n - 1, is_up ? 0 : -1, is_up ? n : n - 1, n, &start));
    CSN_TRY(bound(r, vstop, is_up ? n : -1, is_up ? 0 : -1, is_up ? n : n - 1, n, &stop));
    int64_t count = 0;
    if (is_up && stop > start) {
        count = (stop - start - 1) / step + 1;
    } else if (!is_up && start > stop) {
        count = (start - stop - 1) / -step + 1;
    }
    if (v.kind == V_STR) {
        return slice_string(r, v.u.s, start, count, step, ret);
    }
    if (v.kind == V_RANGE) {
        trange *g;
        CSN_TRY(TR_NEW(r, 1, &g));
        *g = (trange){.n = count};
        if (__builtin_mul_overflow(v.u.r->step, step, &g->step)) {
            return overflow(r, "a slice of range()");
        }
        g->start = v.u.r->start + start * v.u.r->step;
        g->stop = v.u.r->start + stop * v.u.r->step;
        *ret = (tval){.kind = V_RANGE, .is_tainted = v.is_tainted, .u.r = g};
        return CAISSON_OK;
    }
    CSN_TRY(csn_tv_list(r, (size_t)count, (tkind)v.kind, ret));
    for (int64_t k = 0; k < count; k++) {
        ret->u.q->items[k] = v.u.q->items[start + k * step];
    }
    ret->u.q->is_tainted = v.u.q->is_tainted;
    return CAISSON_OK;
}

caisson_status csn_tv_escape(trun *r, tval v, tval *ret) {
    CSN_TRY(csn_tv_str(r, v, ret));
    if (v.kind == V_STR && v.u.s->is_markup) {
        *ret = v;
        return CAISSON_OK;
    }
    const tstr *s = ret->u.s;
    tbuf b = {0};
    size_t clean = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *to = s->p[i] == '&'    ? "&amp;"
                         : s->p[i] == '<'  ? "&lt;"
                         : s->p[i] == '>'  ? "&gt;"
                         : s->p[i] == '\'' ? "&#39;"
                         : s->p[i] == '"'  ? "&#34;"
                                           : NULL;
        if (to != NULL) {
            CSN_TRY(csn_tb_put_sub(r, &b, s, clean, i - clean));
            CSN_TRY(csn_tb_put(r, &b, to, strlen(to),
                               s->marks != NULL ? s->marks[i] != 0 : s->is_trusted));
            clean = i + 1;
        }
    }
    CSN_TRY(csn_tb_put_sub(r, &b, s, clean, s->len - clean));
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = true;
    return CAISSON_OK;
}

caisson_status csn_tv_attr_path(trun *r, tval v, tval path, tval deflt, tval *ret) {
    *ret = v;
    if (path.kind == V_NONE || path.kind == V_MISSING) {
        return CAISSON_OK;
    }
    if (path.kind != V_STR) {
        CSN_TRY(csn_tv_getitem(r, v, path, ret));
        if (ret->kind == V_UNDEF && deflt.kind != V_MISSING && deflt.kind != V_NONE) {
            *ret = deflt;
        }
        return CAISSON_OK;
    }
    csn_str rest = csn_tv_bytes(path);
    size_t from = 0;
    for (;;) {
        size_t dot = csn_ts_find(rest, CSN_STR("."), from);
        csn_str part = csn_str_make(rest.ptr + from, (dot == SIZE_MAX ? rest.len : dot) - from);
        uint64_t u;
        tval key;
        if (csn_str_to_u64(part, &u) && u <= INT64_MAX) {
            key = csn_tv_int((int64_t)u);
        } else {
            CSN_TRY(csn_ts_sub(r, path.u.s, from, part.len, &key));
        }
        CSN_TRY(csn_tv_getitem(r, *ret, key, ret));
        if (ret->kind == V_UNDEF && deflt.kind != V_MISSING && deflt.kind != V_NONE) {
            *ret = deflt;
        }
        if (dot == SIZE_MAX) {
            return CAISSON_OK;
        }
        from = dot + 1;
    }
}
