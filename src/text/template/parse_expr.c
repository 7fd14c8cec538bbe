/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, by jinja2's precedence: inline if, or, and, not, comparisons, + -, ~, * / // %, **,
 * unary, then postfix (subscripts, calls), filters and tests. */
#include "text/template/ast_internal.h"

static caisson_status tp_or(tparser *p, tnode **ret);
static caisson_status unary(tparser *p, bool has_filters, tnode **ret);

static caisson_status binary(tparser *p, tnode_kind kind, ttok_kind op, uint32_t line, tnode *a,
                             tnode *b, tnode **ret) {
    tnode *n;
    CSN_TRY(csn_tp_node(p, kind, line, &n));
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    CSN_TRY(csn_tp_close(p, n));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status constant(tparser *p, uint32_t line, tval v, tnode **ret) {
    CSN_TRY(csn_tp_node(p, N_CONST, line, ret));
    (*ret)->value = v;
    return CAISSON_OK;
}

static caisson_status string_constant(tparser *p, uint32_t line, csn_str text, tnode **ret) {
    tstr *s;
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &s, p->err));
    *s = (tstr){.p = text.ptr, .len = text.len, .n_cp = SIZE_MAX, .is_trusted = true};
    s->n_cp = csn_ts_count(s); /* counted now: the tree is shared by threads */
    return constant(p, line, (tval){.kind = V_STR, .u.s = s}, ret);
}

/* Adjacent string literals are one string. */
static caisson_status strings(tparser *p, tnode **ret) {
    uint32_t line = p->cur.line;
    csn_str text = p->cur.text;
    CSN_TRY(csn_tp_advance(p));
    while (p->cur.kind == TOK_STRING) {
        char *joined;
        CSN_TRY(
            csn_arena_alloc(p->arena, text.len + p->cur.text.len + 1, 1, (void **)&joined, p->err));
        memcpy(joined, text.ptr, text.len);
        memcpy(joined + text.len, p->cur.text.ptr, p->cur.text.len);
        text = csn_str_make(joined, text.len + p->cur.text.len);
        if (p->arena->used_bytes > (size_t)512 << 20) {
            return csn_tp_fail(p, line, CSN_STR("string"), "too many adjacent strings");
        }
        CSN_TRY(csn_tp_advance(p));
    }
    return string_constant(p, line, text, ret);
}

static caisson_status list_literal(tparser *p, tnode **ret) {
    tnode *n;
    tnode_list l = {0};
    CSN_TRY(csn_tp_node(p, N_LIST, p->cur.line, &n));
    CSN_TRY(csn_tp_advance(p));
    while (p->cur.kind != TOK_RBRACKET) {
        tnode *item;
        if (l.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        if (p->cur.kind == TOK_RBRACKET) {
            break;
        }
        CSN_TRY(csn_tp_expr(p, true, &item));
        CSN_TRY(csn_tp_push(p, &l, item));
    }
    CSN_TRY(csn_tp_advance(p));
    n->list = l.items;
    n->n_list = l.n;
    *ret = n;
    return csn_tp_close(p, n);
}

static caisson_status dict_literal(tparser *p, tnode **ret) {
    tnode *n;
    tnode_list keys = {0};
    tnode_list values = {0};
    CSN_TRY(csn_tp_node(p, N_DICT, p->cur.line, &n));
    CSN_TRY(csn_tp_advance(p));
    while (p->cur.kind != TOK_RBRACE) {
        tnode *key;
        tnode *value;
        if (keys.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        if (p->cur.kind == TOK_RBRACE) {
            break;
        }
        CSN_TRY(csn_tp_expr(p, true, &key));
        CSN_TRY(csn_tp_expect(p, TOK_COLON, ":", NULL));
        CSN_TRY(csn_tp_expr(p, true, &value));
        CSN_TRY(csn_tp_push(p, &keys, key));
        CSN_TRY(csn_tp_push(p, &values, value));
    }
    CSN_TRY(csn_tp_advance(p));
    n->list = keys.items;
    n->list2 = values.items;
    n->n_list = keys.n;
    *ret = n;
    return csn_tp_close(p, n);
}

static caisson_status name(tparser *p, bool is_target, tnode **ret) {
    ttok t = p->cur;
    CSN_TRY(csn_tp_advance(p));
    if (csn_str_is(t.text, "true") || csn_str_is(t.text, "True")) {
        return constant(p, t.line, csn_tv_bool(true), ret);
    }
    if (csn_str_is(t.text, "false") || csn_str_is(t.text, "False")) {
        return constant(p, t.line, csn_tv_bool(false), ret);
    }
    if (csn_str_is(t.text, "none") || csn_str_is(t.text, "None")) {
        return constant(p, t.line, csn_tv_none(), ret);
    }
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_NAME, t.line, &n));
    n->name = t.text;
    CSN_TRY(csn_tp_sym(p, t.text, &n->sym));
    if (is_target && p->cur.kind == TOK_DOT) {
        ttok attr;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(csn_tp_expect(p, TOK_NAME, "an attribute's name", &attr));
        n->kind = N_NSREF;
        n->name = attr.text;
        csn_tp_watch(p, t.text, false);
    } else if (!is_target) {
        if (csn_str_is(t.text, "self")) {
            return csn_tp_fail(p, t.line, t.text, "`self` is not supported in a chat template");
        }
        csn_tp_watch(p, t.text, false);
    }
    *ret = n;
    return CAISSON_OK;
}

caisson_status csn_tp_primary(tparser *p, bool is_target, tnode **ret) {
    ttok t = p->cur;
    switch (t.kind) {
    case TOK_NAME: return name(p, is_target, ret);
    case TOK_STRING: return strings(p, ret);
    case TOK_INT: CSN_TRY(csn_tp_advance(p)); return constant(p, t.line, csn_tv_int(t.i), ret);
    case TOK_FLOAT: CSN_TRY(csn_tp_advance(p)); return constant(p, t.line, csn_tv_float(t.f), ret);
    case TOK_LPAREN:
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(csn_tp_enter(p));
        CSN_TRY(csn_tp_tuple(p, TUPLE_COND | TUPLE_PARENS, NULL, ret));
        p->depth--;
        return csn_tp_expect(p, TOK_RPAREN, ")", NULL);
    case TOK_LBRACKET:
    case TOK_LBRACE:
        CSN_TRY(csn_tp_enter(p));
        CSN_TRY(t.kind == TOK_LBRACKET ? list_literal(p, ret) : dict_literal(p, ret));
        p->depth--;
        return CAISSON_OK;
    default:
        return csn_tp_fail(p, t.line, t.kind == TOK_EOF ? CSN_STR("end of template") : t.text,
                           "expected an expression");
    }
}

static bool is_tuple_end(const tparser *p, const char *stop) {
    return p->cur.kind == TOK_PRINT_END || p->cur.kind == TOK_BLOCK_END ||
           p->cur.kind == TOK_RPAREN || (stop != NULL && csn_tp_is_name(&p->cur, stop));
}

static caisson_status tuple_of(tparser *p, unsigned flags, const char *stop, bool is_target,
                               bool has_namespace, tnode **ret) {
    tnode_list l = {0};
    bool is_tuple = false;
    uint32_t line = p->cur.line;
    for (;;) {
        tnode *item;
        if (l.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        if (is_tuple_end(p, stop)) {
            break;
        }
        if (is_target) {
            CSN_TRY(csn_tp_primary(p, true, &item));
            if (item->kind == N_NSREF && !has_namespace) {
                return csn_tp_fail(p, item->line, item->name, "cannot be assigned to here");
            }
        } else {
            CSN_TRY(csn_tp_expr(p, (flags & TUPLE_COND) != 0, &item));
        }
        CSN_TRY(csn_tp_push(p, &l, item));
        if (p->cur.kind != TOK_COMMA) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple && l.n > 0) {
        *ret = l.items[0];
        return CAISSON_OK;
    }
    if (!is_tuple && (flags & TUPLE_PARENS) == 0) {
        return csn_tp_fail(p, line, p->cur.text, "expected an expression");
    }
    CSN_TRY(csn_tp_node(p, N_TUPLE, line, ret));
    (*ret)->list = l.items;
    (*ret)->n_list = l.n;
    return csn_tp_close(p, *ret);
}

caisson_status csn_tp_tuple(tparser *p, unsigned flags, const char *stop, tnode **ret) {
    return tuple_of(p, flags, stop, false, false, ret);
}

static caisson_status check_target(tparser *p, tnode *n) {
    if (n->kind == N_NAME) {
        if (csn_str_is(n->name, "loop") && p->n_loops_any > 0) {
            return csn_tp_fail(p, n->line, n->name,
                               "the loop's own variable cannot be assigned to");
        }
        csn_tp_watch(p, n->name, true);
        return CAISSON_OK;
    }
    if (n->kind == N_NSREF) {
        return CAISSON_OK;
    }
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->n_list; i++) {
            CSN_TRY(check_target(p, n->list[i])); /* as deep as the parser went */
        }
        return CAISSON_OK;
    }
    return csn_tp_fail(p, n->line, CSN_STR("assignment"), "this cannot be assigned to");
}

caisson_status csn_tp_target(tparser *p, const char *stop, bool has_namespace, tnode **ret) {
    CSN_TRY(tuple_of(p, 0, stop, true, has_namespace, ret));
    return check_target(p, *ret);
}

/* ---- postfix ---- */

static caisson_status subscribed(tparser *p, tnode **ret) {
    uint32_t line = p->cur.line;
    tnode *part[3] = {NULL, NULL, NULL};
    if (p->cur.kind != TOK_COLON) {
        CSN_TRY(csn_tp_expr(p, true, &part[0]));
        if (p->cur.kind != TOK_COLON) {
            *ret = part[0];
            return CAISSON_OK;
        }
    }
    for (int i = 1; i < 3 && p->cur.kind == TOK_COLON; i++) {
        CSN_TRY(csn_tp_advance(p));
        if (p->cur.kind != TOK_COLON && p->cur.kind != TOK_RBRACKET && p->cur.kind != TOK_COMMA) {
            CSN_TRY(csn_tp_expr(p, true, &part[i]));
        }
    }
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_SLICE, line, &n));
    n->a = part[0];
    n->b = part[1];
    n->c = part[2];
    *ret = n;
    return csn_tp_close(p, n);
}

static caisson_status subscript(tparser *p, tnode *node, tnode **ret) {
    uint32_t line = p->cur.line;
    tnode *n;
    if (p->cur.kind == TOK_DOT) {
        CSN_TRY(csn_tp_advance(p));
        ttok attr = p->cur;
        if (attr.kind != TOK_NAME && attr.kind != TOK_INT) {
            return csn_tp_fail(p, attr.line, attr.text, "expected a name or number behind the dot");
        }
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(csn_tp_node(p, attr.kind == TOK_NAME ? N_GETATTR : N_GETITEM, line, &n));
        n->a = node;
        n->name = attr.text;
        if (attr.kind == TOK_INT) {
            CSN_TRY(constant(p, line, csn_tv_int(attr.i), &n->b));
        }
        *ret = n;
        return csn_tp_close(p, n);
    }
    CSN_TRY(csn_tp_advance(p));
    CSN_TRY(csn_tp_enter(p));
    tnode_list l = {0};
    while (p->cur.kind != TOK_RBRACKET) {
        tnode *item;
        if (l.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        CSN_TRY(subscribed(p, &item));
        CSN_TRY(csn_tp_push(p, &l, item));
    }
    p->depth--;
    CSN_TRY(csn_tp_advance(p));
    CSN_TRY(csn_tp_node(p, N_GETITEM, line, &n));
    n->a = node;
    if (l.n == 1) {
        n->b = l.items[0];
    } else {
        CSN_TRY(csn_tp_node(p, N_TUPLE, line, &n->b));
        n->b->list = l.items;
        n->b->n_list = l.n;
        for (uint32_t i = 0; i < l.n; i++) {
            if (l.items[i]->kind == N_SLICE) {
                return csn_tp_fail(p, line, CSN_STR("slice"),
                                   "a slice inside a tuple of subscripts");
            }
        }
        CSN_TRY(csn_tp_close(p, n->b));
    }
    *ret = n;
    return csn_tp_close(p, n);
}

static caisson_status push_name(tparser *p, csn_str **names, uint32_t n, csn_str name) {
    if ((n & (n - 1)) == 0) { /* full at each power of two */
        csn_str *grown;
        CSN_TRY(CSN_ARENA_NEW(p->arena, n == 0 ? 1 : (size_t)n * 2, &grown, p->err));
        if (n > 0) {
            memcpy(grown, *names, n * sizeof(**names));
        }
        *names = grown;
    }
    (*names)[n] = name;
    return CAISSON_OK;
}

static caisson_status call_args(tparser *p, targs **ret) {
    uint32_t line = p->cur.line;
    targs *a;
    tnode_list pos = {0};
    tnode_list kw = {0};
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &a, p->err));
    CSN_TRY(csn_tp_expect(p, TOK_LPAREN, "(", NULL));
    CSN_TRY(csn_tp_enter(p));
    bool needs_comma = false;
    while (p->cur.kind != TOK_RPAREN) {
        bool is_good = true;
        if (needs_comma) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
            if (p->cur.kind == TOK_RPAREN) {
                break;
            }
        }
        needs_comma = true;
        const ttok *ahead;
        tnode *e;
        if (p->cur.kind == TOK_MUL) {
            is_good = a->star == NULL && a->star_star == NULL;
            CSN_TRY(csn_tp_advance(p));
            CSN_TRY(csn_tp_expr(p, true, &a->star));
        } else if (p->cur.kind == TOK_POW) {
            is_good = a->star_star == NULL;
            CSN_TRY(csn_tp_advance(p));
            CSN_TRY(csn_tp_expr(p, true, &a->star_star));
        } else {
            ahead = &p->cur;
            if (p->cur.kind == TOK_NAME) {
                CSN_TRY(csn_tp_look(p, &ahead));
            }
            if (p->cur.kind == TOK_NAME && ahead->kind == TOK_ASSIGN) {
                csn_str key = p->cur.text;
                is_good = a->star_star == NULL;
                for (uint32_t i = 0; i < kw.n; i++) {
                    is_good &= !csn_str_eq(a->kw_name[i], key);
                }
                CSN_TRY(csn_tp_advance(p));
                CSN_TRY(csn_tp_advance(p));
                CSN_TRY(csn_tp_expr(p, true, &e));
                CSN_TRY(push_name(p, &a->kw_name, kw.n, key));
                CSN_TRY(csn_tp_push(p, &kw, e));
            } else {
                is_good = a->star == NULL && a->star_star == NULL && kw.n == 0;
                CSN_TRY(csn_tp_expr(p, true, &e));
                CSN_TRY(csn_tp_push(p, &pos, e));
            }
        }
        if (!is_good) {
            return csn_tp_fail(p, line, CSN_STR("call"),
                               "the arguments of a call are out of order");
        }
    }
    p->depth--;
    CSN_TRY(csn_tp_advance(p));
    a->pos = pos.items;
    a->n_pos = pos.n;
    a->kw = kw.items;
    a->n_kw = kw.n;
    *ret = a;
    return CAISSON_OK;
}

static caisson_status call(tparser *p, tnode *node, tnode **ret) {
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_CALL, p->cur.line, &n));
    n->a = node;
    CSN_TRY(call_args(p, &n->args));
    if (node->kind == N_NAME && csn_function_is_refused(node->name)) {
        return csn_tp_fail(p, n->line, node->name,
                           "this function is not supported in a chat template");
    }
    *ret = n;
    return csn_tp_close(p, n);
}

/* A dotted name, as filters and tests may have. */
static caisson_status dotted(tparser *p, csn_str *ret) {
    ttok t;
    CSN_TRY(csn_tp_expect(p, TOK_NAME, "a filter's or test's name", &t));
    while (p->cur.kind == TOK_DOT) {
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(csn_tp_expect(p, TOK_NAME, "a name", NULL));
        t.text.len = 0; /* no filter of ours has a dot */
    }
    *ret = t.text.len > 0 ? t.text : CSN_STR("a dotted name");
    return CAISSON_OK;
}

/* Finds the row; unknown names wait for the end of the parse (csn_tp_parse). */
static caisson_status resolve(tparser *p, tnode *n) {
    bool is_filter = n->kind == N_FILTER;
    n->row = is_filter ? csn_filter_find(n->name) : csn_test_find(n->name);
    if (n->row != NULL && n->row->fn == NULL) {
        return csn_tp_fail(p, n->line, n->name,
                           is_filter ? "this filter is not supported"
                                     : "this test is not supported");
    }
    if (n->row == NULL) {
        tunknown *u;
        CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &u, p->err));
        *u = (tunknown){.next = p->unknown, .node = n, .is_soft = p->is_soft};
        p->unknown = u;
    }
    return csn_tp_close(p, n);
}

caisson_status csn_tp_filters(tparser *p, tnode *node, bool is_inline, tnode **ret) {
    if (node == NULL) {
        CSN_TRY(csn_tp_node(p, N_CAPTURE, p->cur.line, &node));
    }
    while (is_inline || p->cur.kind == TOK_PIPE) {
        tnode *n;
        if (!is_inline) {
            CSN_TRY(csn_tp_advance(p));
        }
        is_inline = false;
        CSN_TRY(csn_tp_node(p, N_FILTER, p->cur.line, &n));
        n->a = node;
        CSN_TRY(dotted(p, &n->name));
        if (p->cur.kind == TOK_LPAREN) {
            CSN_TRY(call_args(p, &n->args));
        }
        CSN_TRY(resolve(p, n));
        node = n;
    }
    *ret = node;
    return CAISSON_OK;
}

static caisson_status postfix(tparser *p, tnode *node, tnode **ret) {
    while (p->cur.kind == TOK_DOT || p->cur.kind == TOK_LBRACKET || p->cur.kind == TOK_LPAREN) {
        CSN_TRY(p->cur.kind == TOK_LPAREN ? call(p, node, &node) : subscript(p, node, &node));
    }
    *ret = node;
    return CAISSON_OK;
}

static caisson_status test(tparser *p, tnode *node, tnode **ret) {
    tnode *n;
    bool is_not;
    CSN_TRY(csn_tp_node(p, N_TEST, p->cur.line, &n));
    CSN_TRY(csn_tp_advance(p)); /* is */
    CSN_TRY(csn_tp_skip_name(p, "not", &is_not));
    CSN_TRY(dotted(p, &n->name));
    n->a = node;
    ttok_kind k = p->cur.kind;
    if (k == TOK_LPAREN) {
        CSN_TRY(call_args(p, &n->args));
    } else if ((k == TOK_NAME || k == TOK_STRING || k == TOK_INT || k == TOK_FLOAT ||
                k == TOK_LBRACKET || k == TOK_LBRACE) &&
               !csn_tp_is_name(&p->cur, "else") && !csn_tp_is_name(&p->cur, "or") &&
               !csn_tp_is_name(&p->cur, "and")) {
        if (csn_tp_is_name(&p->cur, "is")) {
            return csn_tp_fail(p, p->cur.line, p->cur.text, "tests cannot be chained with `is`");
        }
        CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &n->args, p->err));
        CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &n->args->pos, p->err));
        n->args->n_pos = 1;
        CSN_TRY(csn_tp_primary(p, false, &n->args->pos[0]));
        CSN_TRY(postfix(p, n->args->pos[0], &n->args->pos[0]));
    }
    CSN_TRY(resolve(p, n));
    *ret = n;
    return is_not ? binary(p, N_NOT, TOK_EOF, n->line, n, NULL, ret) : CAISSON_OK;
}

static caisson_status filter_expr(tparser *p, tnode *node, tnode **ret) {
    for (;;) {
        if (p->cur.kind == TOK_PIPE) {
            CSN_TRY(csn_tp_filters(p, node, false, &node));
        } else if (csn_tp_is_name(&p->cur, "is")) {
            CSN_TRY(test(p, node, &node));
        } else if (p->cur.kind == TOK_LPAREN) {
            CSN_TRY(call(p, node, &node));
        } else {
            *ret = node;
            return CAISSON_OK;
        }
    }
}

/* ---- operators ---- */

static caisson_status unary(tparser *p, bool has_filters, tnode **ret) {
    tnode *n;
    ttok t = p->cur;
    CSN_TRY(csn_tp_enter(p));
    if (t.kind == TOK_SUB || t.kind == TOK_ADD) {
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(unary(p, false, &n));
        CSN_TRY(binary(p, N_UNARY, t.kind, t.line, n, NULL, &n));
    } else {
        CSN_TRY(csn_tp_primary(p, false, &n));
    }
    CSN_TRY(postfix(p, n, &n));
    p->depth--;
    if (has_filters) {
        return filter_expr(p, n, ret);
    }
    *ret = n;
    return CAISSON_OK;
}

static caisson_status power(tparser *p, tnode **ret) {
    tnode *n;
    CSN_TRY(unary(p, true, &n));
    while (p->cur.kind == TOK_POW) {
        uint32_t line = p->cur.line;
        tnode *right;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(unary(p, true, &right));
        CSN_TRY(binary(p, N_BINARY, TOK_POW, line, n, right, &n));
    }
    *ret = n;
    return CAISSON_OK;
}

static caisson_status product(tparser *p, tnode **ret) {
    tnode *n;
    CSN_TRY(power(p, &n));
    while (p->cur.kind == TOK_MUL || p->cur.kind == TOK_DIV || p->cur.kind == TOK_FLOORDIV ||
           p->cur.kind == TOK_MOD) {
        ttok op = p->cur;
        tnode *right;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(power(p, &right));
        CSN_TRY(binary(p, N_BINARY, op.kind, op.line, n, right, &n));
    }
    *ret = n;
    return CAISSON_OK;
}

static caisson_status concat(tparser *p, tnode **ret) {
    tnode_list l = {0};
    tnode *n;
    uint32_t line = p->cur.line;
    CSN_TRY(product(p, &n));
    if (p->cur.kind != TOK_TILDE) {
        *ret = n;
        return CAISSON_OK;
    }
    CSN_TRY(csn_tp_push(p, &l, n));
    while (p->cur.kind == TOK_TILDE) {
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(product(p, &n));
        CSN_TRY(csn_tp_push(p, &l, n));
    }
    CSN_TRY(csn_tp_node(p, N_CONCAT, line, ret));
    (*ret)->list = l.items;
    (*ret)->n_list = l.n;
    return csn_tp_close(p, *ret);
}

static caisson_status sum(tparser *p, tnode **ret) {
    tnode *n;
    CSN_TRY(concat(p, &n));
    while (p->cur.kind == TOK_ADD || p->cur.kind == TOK_SUB) {
        ttok op = p->cur;
        tnode *right;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(concat(p, &right));
        CSN_TRY(binary(p, N_BINARY, op.kind, op.line, n, right, &n));
    }
    *ret = n;
    return CAISSON_OK;
}

/* Is the current token a comparison? Takes it if so (`not in` is two tokens). */
static caisson_status comparison(tparser *p, ttok_kind *ret) {
    *ret = TOK_EOF;
    if (p->cur.kind >= TOK_EQ && p->cur.kind <= TOK_LE) {
        *ret = p->cur.kind;
    } else if (csn_tp_is_name(&p->cur, "in")) {
        *ret = TOK_IN;
    } else if (csn_tp_is_name(&p->cur, "not")) {
        const ttok *ahead;
        CSN_TRY(csn_tp_look(p, &ahead));
        if (csn_tp_is_name(ahead, "in")) {
            CSN_TRY(csn_tp_advance(p));
            *ret = TOK_NOTIN;
        }
    }
    return *ret != TOK_EOF ? csn_tp_advance(p) : CAISSON_OK;
}

static caisson_status compare(tparser *p, tnode **ret) {
    enum { MAX_CHAIN = 64 };
    tnode *first;
    tnode_list l = {0};
    uint8_t ops[MAX_CHAIN];
    uint32_t line = p->cur.line;
    CSN_TRY(sum(p, &first));
    for (;;) {
        ttok_kind op;
        tnode *n;
        CSN_TRY(comparison(p, &op));
        if (op == TOK_EOF) {
            break;
        }
        if (l.n == MAX_CHAIN) {
            return csn_tp_fail(p, line, CSN_STR("comparison"),
                               "a chain of comparisons is too long");
        }
        ops[l.n] = (uint8_t)op;
        CSN_TRY(sum(p, &n));
        CSN_TRY(csn_tp_push(p, &l, n));
    }
    *ret = first;
    if (l.n == 0) {
        return CAISSON_OK;
    }
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_COMPARE, line, &n));
    n->a = first;
    n->list = l.items;
    n->n_list = l.n;
    CSN_TRY(CSN_ARENA_NEW(p->arena, l.n, &n->ops, p->err));
    memcpy(n->ops, ops, l.n);
    *ret = n;
    return csn_tp_close(p, n);
}

static caisson_status tp_not(tparser *p, tnode **ret) {
    if (!csn_tp_is_name(&p->cur, "not")) {
        return compare(p, ret);
    }
    uint32_t line = p->cur.line;
    tnode *n;
    CSN_TRY(csn_tp_enter(p));
    CSN_TRY(csn_tp_advance(p));
    CSN_TRY(tp_not(p, &n));
    p->depth--;
    return binary(p, N_NOT, TOK_EOF, line, n, NULL, ret);
}

static caisson_status tp_and(tparser *p, tnode **ret) {
    tnode *n;
    CSN_TRY(tp_not(p, &n));
    while (csn_tp_is_name(&p->cur, "and")) {
        uint32_t line = p->cur.line;
        tnode *right;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(tp_not(p, &right));
        CSN_TRY(binary(p, N_AND, TOK_EOF, line, n, right, &n));
    }
    *ret = n;
    return CAISSON_OK;
}

static caisson_status tp_or(tparser *p, tnode **ret) {
    tnode *n;
    CSN_TRY(tp_and(p, &n));
    while (csn_tp_is_name(&p->cur, "or")) {
        uint32_t line = p->cur.line;
        tnode *right;
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(tp_and(p, &right));
        CSN_TRY(binary(p, N_OR, TOK_EOF, line, n, right, &n));
    }
    *ret = n;
    return CAISSON_OK;
}

/* Filters inside an inline if may be unknown until they are reached, as jinja2 has it. */
static void soften(tparser *p, const tunknown *until) {
    for (tunknown *u = p->unknown; u != until; u = u->next) {
        u->is_soft = true;
    }
}

static caisson_status condition(tparser *p, tnode **ret) {
    const tunknown *before = p->unknown;
    tnode *n;
    bool is_if;
    uint32_t line = p->cur.line;
    CSN_TRY(csn_tp_enter(p));
    CSN_TRY(tp_or(p, &n));
    CSN_TRY(csn_tp_skip_name(p, "if", &is_if));
    while (is_if) {
        tnode *cond;
        bool is_else;
        CSN_TRY(csn_tp_node(p, N_COND, line, &cond));
        cond->b = n;
        CSN_TRY(tp_or(p, &cond->a));
        CSN_TRY(csn_tp_skip_name(p, "else", &is_else));
        if (is_else) {
            CSN_TRY(condition(p, &cond->c));
        }
        CSN_TRY(csn_tp_close(p, cond));
        soften(p, before);
        n = cond;
        CSN_TRY(csn_tp_skip_name(p, "if", &is_if));
    }
    p->depth--;
    *ret = n;
    return CAISSON_OK;
}

caisson_status csn_tp_expr(tparser *p, bool has_cond, tnode **ret) {
    return has_cond ? condition(p, ret) : tp_or(p, ret);
}
