/* SPDX-License-Identifier: Apache-2.0 */
/* Statements and what the parser's two files share. The grammar is jinja2's; what we cannot run
 * (include, import, extends, block, autoescape, translations) is refused here, by name and line. */
#include "text/template/ast_internal.h"

#include <stdio.h>

#include "base/hash64.h"
#include "caisson/limits.h"

void csn_tp_say(tparser *p, uint32_t line, csn_str construct, const char *what) {
    char at[128];
    int n = snprintf(at, sizeof(at), "line %u: %.*s", line,
                     (int)(construct.len < 80 ? construct.len : 80), construct.ptr);
    (void)CSN_FAIL(p->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                   .tensor = csn_str_make(at, (size_t)n), .what = what);
}

static csn_str token_text(const ttok *t) {
    static const char *const names[] = {
        [TOK_EOF] = "end of template", [TOK_DATA] = "text",      [TOK_BLOCK_BEGIN] = "{%",
        [TOK_BLOCK_END] = "%}",        [TOK_PRINT_BEGIN] = "{{", [TOK_PRINT_END] = "}}",
        [TOK_INT] = "integer",         [TOK_FLOAT] = "float"};
    if ((size_t)t->kind < sizeof(names) / sizeof(names[0]) && names[t->kind] != NULL) {
        return csn_str_from(names[t->kind]);
    }
    return t->text;
}

caisson_status csn_tp_enter(tparser *p) {
    if (p->depth == MAX_NESTING) {
        return CSN_FAIL(p->err, CAISSON_E_LIMIT, .section = "chat_template",
                        .what = "the template is nested too deeply",
                        CSN_VALUES(MAX_NESTING, (uint64_t)p->depth + 1));
    }
    p->depth++;
    return CAISSON_OK;
}

caisson_status csn_tp_advance(tparser *p) {
    if (p->has_ahead) {
        p->cur = p->ahead;
        p->has_ahead = false;
        return CAISSON_OK;
    }
    return csn_tl_next(&p->lex, &p->cur);
}

caisson_status csn_tp_look(tparser *p, const ttok **ret) {
    if (!p->has_ahead) {
        CSN_TRY(csn_tl_next(&p->lex, &p->ahead));
        p->has_ahead = true;
    }
    *ret = &p->ahead;
    return CAISSON_OK;
}

caisson_status csn_tp_expect(tparser *p, ttok_kind kind, const char *what, ttok *ret) {
    if (p->cur.kind != kind) {
        char sentence[96];
        snprintf(sentence, sizeof(sentence), "expected %s", what);
        return csn_tp_fail(p, p->cur.line, token_text(&p->cur), sentence);
    }
    if (ret != NULL) {
        *ret = p->cur;
    }
    return csn_tp_advance(p);
}

bool csn_tp_is_name(const ttok *t, const char *name) {
    return t->kind == TOK_NAME && csn_str_is(t->text, name);
}

caisson_status csn_tp_skip_name(tparser *p, const char *name, bool *ret) {
    *ret = csn_tp_is_name(&p->cur, name);
    return *ret ? csn_tp_advance(p) : CAISSON_OK;
}

caisson_status csn_tp_node(tparser *p, tnode_kind kind, uint32_t line, tnode **ret) {
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, ret, p->err));
    (*ret)->kind = (uint8_t)kind;
    (*ret)->line = line;
    (*ret)->depth = 1;
    return CAISSON_OK;
}

static void raise_depth(tnode *n, const tnode *child) {
    if (child != NULL && child->depth >= n->depth) {
        n->depth = (uint16_t)(child->depth + 1);
    }
}

caisson_status csn_tp_close(tparser *p, tnode *n) {
    raise_depth(n, n->a);
    raise_depth(n, n->b);
    raise_depth(n, n->c);
    for (uint32_t i = 0; i < n->n_list; i++) {
        raise_depth(n, n->list[i]);
        raise_depth(n, n->list2 != NULL ? n->list2[i] : NULL);
    }
    if (n->args != NULL) {
        for (uint32_t i = 0; i < n->args->n_pos; i++) {
            raise_depth(n, n->args->pos[i]);
        }
        for (uint32_t i = 0; i < n->args->n_kw; i++) {
            raise_depth(n, n->args->kw[i]);
        }
        raise_depth(n, n->args->star);
        raise_depth(n, n->args->star_star);
    }
    if (n->depth > MAX_NESTING) {
        return CSN_FAIL(p->err, CAISSON_E_LIMIT, .section = "chat_template",
                        .what = "an expression of the template is nested too deeply",
                        CSN_VALUES(MAX_NESTING, n->depth));
    }
    return CAISSON_OK;
}

caisson_status csn_tp_push(tparser *p, tnode_list *l, tnode *n) {
    if (l->n == l->cap) {
        tnode **grown;
        uint32_t cap = l->cap == 0 ? 4 : l->cap * 2;
        CSN_TRY(CSN_ARENA_NEW(p->arena, cap, &grown, p->err));
        if (l->n > 0) {
            memcpy(grown, l->items, l->n * sizeof(*grown));
        }
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = n;
    return CAISSON_OK;
}

/* ---- symbols ---- */

static caisson_status grow_syms(tparser *p) {
    uint32_t cap = p->cap_syms == 0 ? 64 : p->cap_syms * 2;
    csn_str *syms;
    uint32_t *index;
    CSN_TRY(CSN_ARENA_NEW(p->arena, cap, &syms, p->err));
    CSN_TRY(CSN_ARENA_NEW(p->arena, (size_t)cap * 2, &index, p->err));
    for (uint32_t i = 0; i < p->t->n_syms; i++) {
        syms[i] = p->t->syms[i];
        uint64_t h = csn_hash64(syms[i].ptr, syms[i].len);
        while (index[h % (cap * 2)] != 0) {
            h++;
        }
        index[h % (cap * 2)] = i + 1;
    }
    p->t->syms = syms;
    p->cap_syms = cap;
    p->t->sym_index = index;
    p->t->n_sym_index = cap * 2;
    return CAISSON_OK;
}

uint32_t csn_template_sym(const struct csn_template *t, csn_str name) {
    uint64_t h = csn_hash64(name.ptr, name.len);
    for (; t->sym_index[h % t->n_sym_index] != 0; h++) {
        uint32_t i = t->sym_index[h % t->n_sym_index] - 1;
        if (csn_str_eq(t->syms[i], name)) {
            return i;
        }
    }
    return UINT32_MAX;
}

caisson_status csn_tp_sym(tparser *p, csn_str name, uint32_t *ret) {
    if (p->t->n_syms == p->cap_syms) {
        CSN_TRY(grow_syms(p));
    }
    *ret = csn_template_sym(p->t, name);
    if (*ret != UINT32_MAX) {
        return CAISSON_OK;
    }
    uint64_t h = csn_hash64(name.ptr, name.len);
    while (p->t->sym_index[h % p->t->n_sym_index] != 0) {
        h++;
    }
    p->t->syms[p->t->n_syms] = name;
    *ret = p->t->n_syms;
    p->t->sym_index[h % p->t->n_sym_index] = ++p->t->n_syms;
    return CAISSON_OK;
}

/* A macro takes `caller`, `kwargs` or `varargs` only if its body reads that name. */
void csn_tp_watch(tparser *p, csn_str name, bool is_store) {
    static const char *const special[3] = {"caller", "kwargs", "varargs"};
    for (int k = 0; k < 3; k++) {
        if (!csn_str_is(name, special[k])) {
            continue;
        }
        for (tmacro_watch *w = p->watch; w != NULL; w = w->outer) {
            if (is_store) {
                w->is_closed[k] = true;
            } else if (!w->is_closed[k]) {
                w->uses[k] = true;
            }
        }
    }
}

/* ---- statements ---- */

static caisson_status statement(tparser *p, tnode **ret);

/* Statements up to a tag whose name is in `ends` (NULL-terminated), or to the end of the template
 * (ends NULL). The end tag's name stays the current token. */
static caisson_status body(tparser *p, const char *const *ends, const char *tag, uint32_t line,
                           tbody *ret) {
    tnode_list l = {0};
    tnode *n;
    CSN_TRY(csn_tp_enter(p));
    for (;;) {
        if (p->cur.kind == TOK_EOF) {
            if (ends != NULL) {
                return csn_tp_fail(p, line, csn_str_from(tag), "a block is not closed");
            }
            break;
        }
        if (p->cur.kind == TOK_DATA) {
            CSN_TRY(csn_tp_node(p, N_DATA, p->cur.line, &n));
            n->name = p->cur.text;
            CSN_TRY(csn_tp_push(p, &l, n));
            CSN_TRY(csn_tp_advance(p));
            continue;
        }
        bool is_print = p->cur.kind == TOK_PRINT_BEGIN;
        uint32_t at = p->cur.line;
        CSN_TRY(csn_tp_advance(p));
        if (is_print) {
            CSN_TRY(csn_tp_node(p, N_PRINT, at, &n));
            CSN_TRY(csn_tp_tuple(p, TUPLE_COND, NULL, &n->a));
            CSN_TRY(csn_tp_push(p, &l, n));
            CSN_TRY(csn_tp_expect(p, TOK_PRINT_END, "}}", NULL));
            continue;
        }
        for (const char *const *e = ends; e != NULL && *e != NULL; e++) {
            if (csn_tp_is_name(&p->cur, *e)) {
                *ret = (tbody){.items = l.items, .n = l.n};
                p->depth--;
                return CAISSON_OK;
            }
        }
        n = NULL;
        CSN_TRY(statement(p, &n));
        if (n != NULL) {
            CSN_TRY(csn_tp_push(p, &l, n));
        }
        CSN_TRY(csn_tp_expect(p, TOK_BLOCK_END, "%}", NULL));
    }
    *ret = (tbody){.items = l.items, .n = l.n};
    p->depth--;
    return CAISSON_OK;
}

/* "%}", statements, an end tag of `ends`: which one in *ret_end. The end tag's name is taken. */
static caisson_status block(tparser *p, const char *const *ends, const char *tag, uint32_t line,
                            tbody *ret, int *ret_end) {
    if (p->cur.kind == TOK_COLON) {
        CSN_TRY(csn_tp_advance(p));
    }
    CSN_TRY(csn_tp_expect(p, TOK_BLOCK_END, "%}", NULL));
    CSN_TRY(body(p, ends, tag, line, ret));
    for (int i = 0; ends[i] != NULL; i++) {
        if (csn_tp_is_name(&p->cur, ends[i]) && ret_end != NULL) {
            *ret_end = i;
        }
    }
    return csn_tp_advance(p);
}

static caisson_status bodies(tparser *p, tnode *n, size_t count) {
    return CSN_ARENA_NEW(p->arena, count, &n->bodies, p->err);
}

/* A body in a frame of its own: filters must exist there even behind an `if`. */
static caisson_status hard_block(tparser *p, const char *const *ends, const char *tag,
                                 uint32_t line, tbody *ret, int *ret_end) {
    bool was_soft = p->is_soft;
    p->is_soft = false;
    CSN_TRY(block(p, ends, tag, line, ret, ret_end));
    p->is_soft = was_soft;
    return CAISSON_OK;
}

static caisson_status parse_if(tparser *p, uint32_t line, tnode **ret) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const end_else[] = {"endif", NULL};
    tnode *n;
    tnode_list tests = {0};
    tnode_list holders = {0}; /* one node a branch, only for its body */
    bool was_soft = p->is_soft;
    p->is_soft = true;
    CSN_TRY(csn_tp_node(p, N_IF, line, &n));
    int end = 0;
    do {
        tnode *test;
        tnode *h;
        CSN_TRY(csn_tp_tuple(p, 0, NULL, &test));
        CSN_TRY(csn_tp_push(p, &tests, test));
        CSN_TRY(csn_tp_node(p, N_DATA, line, &h));
        CSN_TRY(bodies(p, h, 1));
        CSN_TRY(block(p, ends, "if", line, &h->bodies[0], &end));
        CSN_TRY(csn_tp_push(p, &holders, h));
    } while (end == 0);
    n->list = tests.items;
    n->n_list = tests.n;
    CSN_TRY(bodies(p, n, (size_t)tests.n + 1));
    for (uint32_t i = 0; i < holders.n; i++) {
        n->bodies[i] = holders.items[i]->bodies[0];
    }
    if (end == 1) {
        CSN_TRY(block(p, end_else, "else", line, &n->bodies[tests.n], NULL));
    }
    p->is_soft = was_soft;
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_for(tparser *p, uint32_t line, tnode **ret) {
    static const char *const ends[] = {"endfor", "else", NULL};
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_FOR, line, &n));
    CSN_TRY(bodies(p, n, 2));
    p->n_loops_any++;
    CSN_TRY(csn_tp_target(p, "in", false, &n->a));
    bool is_in;
    CSN_TRY(csn_tp_skip_name(p, "in", &is_in));
    if (!is_in) {
        return csn_tp_fail(p, p->cur.line, token_text(&p->cur), "expected 'in'");
    }
    CSN_TRY(csn_tp_tuple(p, 0, "recursive", &n->b));
    bool has_if;
    bool was_soft = p->is_soft;
    p->is_soft = false;
    CSN_TRY(csn_tp_skip_name(p, "if", &has_if));
    if (has_if) {
        CSN_TRY(csn_tp_expr(p, true, &n->c));
    }
    CSN_TRY(csn_tp_skip_name(p, "recursive", &n->flag));
    int end = 0;
    p->n_loops++;
    CSN_TRY(block(p, ends, "for", line, &n->bodies[0], &end));
    p->n_loops--;
    if (end == 1) {
        CSN_TRY(block(p, ends, "else", line, &n->bodies[1], &end));
        if (end == 1) {
            return csn_tp_fail(p, p->cur.line, CSN_STR("else"), "a for loop has two else blocks");
        }
    }
    p->n_loops_any--;
    p->is_soft = was_soft;
    *ret = n;
    return CAISSON_OK;
}

static caisson_status signature(tparser *p, tmacro *m) {
    tnode_list params = {0};
    tnode_list defaults = {0};
    CSN_TRY(csn_tp_expect(p, TOK_LPAREN, "(", NULL));
    while (p->cur.kind != TOK_RPAREN) {
        ttok name;
        tnode *n;
        tnode *deflt = NULL;
        if (params.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        CSN_TRY(csn_tp_expect(p, TOK_NAME, "a parameter's name", &name));
        CSN_TRY(csn_tp_node(p, N_NAME, name.line, &n));
        n->name = name.text;
        CSN_TRY(csn_tp_sym(p, name.text, &n->sym));
        if (p->cur.kind == TOK_ASSIGN) {
            CSN_TRY(csn_tp_advance(p));
            CSN_TRY(csn_tp_expr(p, true, &deflt));
        } else if (defaults.n > 0 && defaults.items[defaults.n - 1] != NULL) {
            return csn_tp_fail(p, name.line, name.text,
                               "a parameter without default follows one with");
        }
        CSN_TRY(csn_tp_push(p, &params, n));
        CSN_TRY(csn_tp_push(p, &defaults, deflt));
    }
    CSN_TRY(csn_tp_advance(p));
    m->n_params = params.n;
    m->defaults = defaults.items;
    CSN_TRY(CSN_ARENA_NEW(p->arena, (size_t)params.n + 1, &m->params, p->err));
    CSN_TRY(CSN_ARENA_NEW(p->arena, (size_t)params.n + 1, &m->param_names, p->err));
    for (uint32_t i = 0; i < params.n; i++) {
        m->params[i] = params.items[i]->sym;
        m->param_names[i] = params.items[i]->name;
        for (uint32_t k = 0; k < i; k++) {
            if (m->params[k] == m->params[i]) {
                return csn_tp_fail(p, params.items[i]->line, params.items[i]->name,
                                   "a parameter is named twice");
            }
        }
    }
    return CAISSON_OK;
}

/* The body of a macro or call block: a function of its own. */
static caisson_status macro_body(tparser *p, tmacro *m, const char *end, const char *tag,
                                 uint32_t line) {
    const char *const ends[] = {end, NULL};
    tmacro_watch w = {.outer = p->watch};
    uint32_t loops = p->n_loops;
    p->watch = &w;
    p->n_loops = 0;
    bool is_param[3] = {false, false, false};
    for (uint32_t i = 0; i < m->n_params; i++) {
        is_param[0] |= csn_str_is(m->param_names[i], "caller");
        is_param[1] |= csn_str_is(m->param_names[i], "kwargs");
        is_param[2] |= csn_str_is(m->param_names[i], "varargs");
        m->has_caller_param |= is_param[0];
        if (csn_str_is(m->param_names[i], "caller") && m->defaults[i] == NULL) {
            return csn_tp_fail(p, line, CSN_STR("caller"),
                               "the parameter `caller` needs a default");
        }
    }
    CSN_TRY(hard_block(p, ends, tag, line, &m->body, NULL));
    m->uses_caller = w.uses[0] && !is_param[0];
    m->uses_kwargs = w.uses[1] && !is_param[1];
    m->uses_varargs = w.uses[2] && !is_param[2];
    p->n_loops = loops;
    p->watch = w.outer;
    return CAISSON_OK;
}

static caisson_status parse_macro(tparser *p, uint32_t line, tnode **ret) {
    tnode *n;
    ttok name;
    CSN_TRY(csn_tp_node(p, N_MACRO, line, &n));
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &n->macro, p->err));
    CSN_TRY(csn_tp_expect(p, TOK_NAME, "the macro's name", &name));
    n->macro->name = name.text;
    CSN_TRY(csn_tp_sym(p, name.text, &n->sym));
    CSN_TRY(signature(p, n->macro));
    CSN_TRY(macro_body(p, n->macro, "endmacro", "macro", line));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_call_block(tparser *p, uint32_t line, tnode **ret) {
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_CALL_BLOCK, line, &n));
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &n->macro, p->err));
    n->macro->name = CSN_STR("caller");
    n->macro->is_anonymous = true;
    if (p->cur.kind == TOK_LPAREN) {
        CSN_TRY(signature(p, n->macro));
    }
    CSN_TRY(csn_tp_expr(p, true, &n->a));
    if (n->a->kind != N_CALL) {
        return csn_tp_fail(p, line, CSN_STR("call"), "a call block needs a call");
    }
    CSN_TRY(macro_body(p, n->macro, "endcall", "call", line));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_set(tparser *p, uint32_t line, tnode **ret) {
    static const char *const ends[] = {"endset", NULL};
    tnode *n;
    tnode *target;
    CSN_TRY(csn_tp_target(p, NULL, true, &target));
    if (p->cur.kind == TOK_ASSIGN) {
        CSN_TRY(csn_tp_advance(p));
        CSN_TRY(csn_tp_node(p, N_SET, line, &n));
        n->a = target;
        CSN_TRY(csn_tp_tuple(p, TUPLE_COND, NULL, &n->b));
        *ret = n;
        return CAISSON_OK;
    }
    CSN_TRY(csn_tp_node(p, N_SET_BLOCK, line, &n));
    CSN_TRY(bodies(p, n, 1));
    n->a = target;
    if (p->cur.kind == TOK_PIPE) {
        CSN_TRY(csn_tp_filters(p, NULL, false, &n->b));
    }
    CSN_TRY(hard_block(p, ends, "set", line, &n->bodies[0], NULL));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_filter_block(tparser *p, uint32_t line, tnode **ret) {
    static const char *const ends[] = {"endfilter", NULL};
    tnode *n;
    CSN_TRY(csn_tp_node(p, N_FILTER_BLOCK, line, &n));
    CSN_TRY(bodies(p, n, 1));
    CSN_TRY(csn_tp_filters(p, NULL, true, &n->a));
    CSN_TRY(hard_block(p, ends, "filter", line, &n->bodies[0], NULL));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_with(tparser *p, uint32_t line, tnode **ret) {
    static const char *const ends[] = {"endwith", NULL};
    tnode *n;
    tnode_list targets = {0};
    tnode_list values = {0};
    CSN_TRY(csn_tp_node(p, N_WITH, line, &n));
    CSN_TRY(bodies(p, n, 1));
    while (p->cur.kind != TOK_BLOCK_END) {
        tnode *target;
        tnode *value;
        if (targets.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        CSN_TRY(csn_tp_target(p, NULL, false, &target));
        CSN_TRY(csn_tp_expect(p, TOK_ASSIGN, "=", NULL));
        CSN_TRY(csn_tp_expr(p, true, &value));
        CSN_TRY(csn_tp_push(p, &targets, target));
        CSN_TRY(csn_tp_push(p, &values, value));
    }
    n->list = targets.items;
    n->list2 = values.items;
    n->n_list = targets.n;
    CSN_TRY(hard_block(p, ends, "with", line, &n->bodies[0], NULL));
    *ret = n;
    return CAISSON_OK;
}

/* `{% generation %}`: transformers marks what the assistant said with it; its body is a call block.
 */
static caisson_status parse_generation(tparser *p, uint32_t line, tnode **ret) {
    CSN_TRY(csn_tp_node(p, N_GENERATION, line, ret));
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &(*ret)->macro, p->err));
    return macro_body(p, (*ret)->macro, "endgeneration", "generation", line);
}

static caisson_status parse_print(tparser *p, uint32_t line, tnode **ret) {
    tnode *n;
    tnode_list l = {0};
    CSN_TRY(csn_tp_node(p, N_PRINT, line, &n));
    while (p->cur.kind != TOK_BLOCK_END) {
        tnode *e;
        if (l.n > 0) {
            CSN_TRY(csn_tp_expect(p, TOK_COMMA, ",", NULL));
        }
        CSN_TRY(csn_tp_expr(p, true, &e));
        CSN_TRY(csn_tp_push(p, &l, e));
    }
    CSN_TRY(csn_tp_node(p, N_CONCAT, line, &n->a));
    n->a->list = l.items;
    n->a->n_list = l.n;
    CSN_TRY(csn_tp_close(p, n->a));
    *ret = n;
    return CAISSON_OK;
}

static caisson_status parse_jump(tparser *p, tnode_kind kind, const char *tag, uint32_t line,
                                 tnode **ret) {
    if (p->n_loops == 0) {
        return csn_tp_fail(p, line, csn_str_from(tag), "outside of a loop");
    }
    return csn_tp_node(p, kind, line, ret);
}

static caisson_status statement(tparser *p, tnode **ret) {
    static const char *const refused[] = {"include",    "import", "from", "extends", "block",
                                          "autoescape", "trans",  "do",   "debug"};
    uint32_t line = p->cur.line;
    if (p->cur.kind != TOK_NAME) {
        return csn_tp_fail(p, line, token_text(&p->cur), "expected a tag's name");
    }
    csn_str tag = p->cur.text;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (csn_str_is(tag, refused[i])) {
            return csn_tp_fail(p, line, tag, "this tag is not supported in a chat template");
        }
    }
    CSN_TRY(csn_tp_advance(p));
    if (csn_str_is(tag, "if")) {
        return parse_if(p, line, ret);
    }
    if (csn_str_is(tag, "for")) {
        return parse_for(p, line, ret);
    }
    if (csn_str_is(tag, "set")) {
        return parse_set(p, line, ret);
    }
    if (csn_str_is(tag, "macro")) {
        return parse_macro(p, line, ret);
    }
    if (csn_str_is(tag, "call")) {
        return parse_call_block(p, line, ret);
    }
    if (csn_str_is(tag, "filter")) {
        return parse_filter_block(p, line, ret);
    }
    if (csn_str_is(tag, "with")) {
        return parse_with(p, line, ret);
    }
    if (csn_str_is(tag, "generation")) {
        return parse_generation(p, line, ret);
    }
    if (csn_str_is(tag, "print")) {
        return parse_print(p, line, ret);
    }
    if (csn_str_is(tag, "break")) {
        return parse_jump(p, N_BREAK, "break", line, ret);
    }
    if (csn_str_is(tag, "continue")) {
        return parse_jump(p, N_CONTINUE, "continue", line, ret);
    }
    return csn_tp_fail(p, line, tag, "an unknown tag, or an end tag without its block");
}

caisson_status csn_tp_parse(struct csn_template *t, csn_str source, caisson_error *err) {
    tparser p = {.t = t, .arena = &t->arena, .err = err};
    CSN_TRY(csn_tl_init(&p.lex, &t->arena, source, err));
    CSN_TRY(csn_tp_sym(&p, CSN_STR("loop"), &t->sym_loop));
    CSN_TRY(csn_tp_sym(&p, CSN_STR("caller"), &t->sym_caller));
    CSN_TRY(csn_tp_sym(&p, CSN_STR("kwargs"), &t->sym_kwargs));
    CSN_TRY(csn_tp_sym(&p, CSN_STR("varargs"), &t->sym_varargs));
    CSN_TRY(csn_tp_advance(&p));
    CSN_TRY(body(&p, NULL, "", 1, &t->body));
    for (const tunknown *u = p.unknown; u != NULL; u = u->next) {
        if (!u->is_soft) {
            return csn_tp_fail(&p, u->node->line, u->node->name,
                               u->node->kind == N_FILTER ? "no filter of this name"
                                                         : "no test of this name");
        }
    }
    return csn_tp_scopes(t, err);
}
