/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind `is`: a function and a row each. */
#include "text/template/ast_internal.h"

static caisson_status yes(bool b, tval *ret) {
    *ret = csn_tv_bool(b);
    return CAISSON_OK;
}

#define KIND_TEST(name, expr)                                                                      \
    static caisson_status name(trun *r, const tcall *c, tval *ret) {                               \
        (void)r;                                                                                   \
        tval v = c->self;                                                                          \
        return yes((expr), ret);                                                                   \
    }
KIND_TEST(t_defined, v.kind != V_UNDEF)
KIND_TEST(t_undefined, v.kind == V_UNDEF)
KIND_TEST(t_none, v.kind == V_NONE)
KIND_TEST(t_boolean, v.kind == V_BOOL)
KIND_TEST(t_true, v.kind == V_BOOL && v.u.b)
KIND_TEST(t_false, v.kind == V_BOOL && !v.u.b)
KIND_TEST(t_integer, v.kind == V_INT)
KIND_TEST(t_float, v.kind == V_FLOAT)
KIND_TEST(t_number, csn_tv_is_number(v))
KIND_TEST(t_string, v.kind == V_STR)
KIND_TEST(t_mapping, v.kind == V_DICT)
KIND_TEST(t_iterable, csn_tv_is_iterable(v))
/* what has a length and is subscripted: also dicts, strings and undefined values */
KIND_TEST(t_sequence, v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE ||
                          v.kind == V_DICT || v.kind == V_RANGE || v.kind == V_UNDEF)
KIND_TEST(t_callable, v.kind == V_METHOD || v.kind == V_FUNCTION || v.kind == V_MACRO ||
                          v.kind == V_LOOP || v.kind == V_UNDEF)
KIND_TEST(t_escaped, v.kind == V_STR && v.u.s->is_markup)

static caisson_status mod(trun *r, const tcall *c, tval by, tval *ret) {
    return csn_tv_arith(r, TOK_MOD, c->self, by, ret);
}

static caisson_status is_mod(trun *r, const tcall *c, tval by, int64_t wants, tval *ret) {
    tval v;
    bool is_same;
    CSN_TRY(mod(r, c, by, &v));
    CSN_TRY(csn_tv_equal(r, v, csn_tv_int(wants), &is_same));
    return yes(is_same, ret);
}
static caisson_status t_odd(trun *r, const tcall *c, tval *ret) {
    return is_mod(r, c, csn_tv_int(2), 1, ret);
}
static caisson_status t_even(trun *r, const tcall *c, tval *ret) {
    return is_mod(r, c, csn_tv_int(2), 0, ret);
}
static caisson_status t_divisibleby(trun *r, const tcall *c, tval *ret) {
    return is_mod(r, c, c->arg[0], 0, ret);
}

static caisson_status is_case(trun *r, const tcall *c, bool is_upper, tval *ret) {
    tval s;
    CSN_TRY(csn_tv_str(r, c->self, &s));
    CSN_TRY(csn_tr_charge_bytes(r, s.u.s->len));
    return yes(csn_sm_is_case(s.u.s, is_upper), ret);
}
static caisson_status t_lower(trun *r, const tcall *c, tval *ret) {
    return is_case(r, c, false, ret);
}
static caisson_status t_upper(trun *r, const tcall *c, tval *ret) {
    return is_case(r, c, true, ret);
}

/* Identity: of scalars that Python keeps once, else of the object. */
static caisson_status t_sameas(trun *r, const tcall *c, tval *ret) {
    tval a = c->self;
    tval b = c->arg[0];
    bool is_same = false;
    if (a.kind == b.kind) {
        if (a.kind == V_NONE || a.kind == V_BOOL || a.kind == V_INT || a.kind == V_STR) {
            CSN_TRY(csn_tv_equal(r, a, b, &is_same));
        } else {
            is_same = a.kind != V_UNDEF && a.kind != V_FLOAT && a.u.q == b.u.q;
        }
    }
    return yes(is_same, ret);
}

static caisson_status t_in(trun *r, const tcall *c, tval *ret) {
    bool is_in;
    CSN_TRY(csn_tv_contains(r, c->arg[0], c->self, &is_in));
    return yes(is_in, ret);
}

static caisson_status t_eq(trun *r, const tcall *c, tval *ret) {
    bool is_same;
    CSN_TRY(csn_tv_equal(r, c->self, c->arg[0], &is_same));
    return yes(is_same, ret);
}
static caisson_status t_ne(trun *r, const tcall *c, tval *ret) {
    CSN_TRY(t_eq(r, c, ret));
    ret->u.b = !ret->u.b;
    return CAISSON_OK;
}

static caisson_status order(trun *r, const tcall *c, const char *op, tval *ret) {
    int o = 0;
    bool is_nan;
    CSN_TRY(csn_tv_compare(r, c->self, c->arg[0], op, &o, &is_nan));
    bool is_hit = op[0] == '<' ? o < 0 : o > 0;
    return yes(!is_nan && (is_hit || (op[1] == '=' && o == 0)), ret);
}
static caisson_status t_lt(trun *r, const tcall *c, tval *ret) {
    return order(r, c, "<", ret);
}
static caisson_status t_le(trun *r, const tcall *c, tval *ret) {
    return order(r, c, "<=", ret);
}
static caisson_status t_gt(trun *r, const tcall *c, tval *ret) {
    return order(r, c, ">", ret);
}
static caisson_status t_ge(trun *r, const tcall *c, tval *ret) {
    return order(r, c, ">=", ret);
}

static caisson_status t_filter(trun *r, const tcall *c, tval *ret) {
    (void)r;
    return yes(c->self.kind == V_STR && csn_filter_find(csn_tv_bytes(c->self)) != NULL, ret);
}
static caisson_status t_test(trun *r, const tcall *c, tval *ret) {
    (void)r;
    return yes(c->self.kind == V_STR && csn_test_find(csn_tv_bytes(c->self)) != NULL, ret);
}

static const tbuiltin tests[] = {
    {"odd", t_odd, "", 0, false},
    {"even", t_even, "", 0, false},
    {"divisibleby", t_divisibleby, "num", 1, false},
    {"defined", t_defined, "", 0, false},
    {"undefined", t_undefined, "", 0, false},
    {"filter", t_filter, "", 0, false},
    {"test", t_test, "", 0, false},
    {"none", t_none, "", 0, false},
    {"boolean", t_boolean, "", 0, false},
    {"false", t_false, "", 0, false},
    {"true", t_true, "", 0, false},
    {"integer", t_integer, "", 0, false},
    {"float", t_float, "", 0, false},
    {"lower", t_lower, "", 0, false},
    {"upper", t_upper, "", 0, false},
    {"string", t_string, "", 0, false},
    {"mapping", t_mapping, "", 0, false},
    {"number", t_number, "", 0, false},
    {"sequence", t_sequence, "", 0, false},
    {"iterable", t_iterable, "", 0, false},
    {"callable", t_callable, "", 0, false},
    {"sameas", t_sameas, "other", 1, false},
    {"escaped", t_escaped, "", 0, false},
    {"in", t_in, "seq", 1, false},
    {"==", t_eq, "other", 1, true},
    {"eq", t_eq, "other", 1, true},
    {"equalto", t_eq, "other", 1, true},
    {"!=", t_ne, "other", 1, true},
    {"ne", t_ne, "other", 1, true},
    {">", t_gt, "other", 1, true},
    {"gt", t_gt, "other", 1, true},
    {"greaterthan", t_gt, "other", 1, true},
    {"ge", t_ge, "other", 1, true},
    {">=", t_ge, "other", 1, true},
    {"<", t_lt, "other", 1, true},
    {"lt", t_lt, "other", 1, true},
    {"lessthan", t_lt, "other", 1, true},
    {"<=", t_le, "other", 1, true},
    {"le", t_le, "other", 1, true},
};

const tbuiltin *csn_test_find(csn_str name) {
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (csn_str_is(name, tests[i].name)) {
            return &tests[i];
        }
    }
    return NULL;
}
