/* SPDX-License-Identifier: Apache-2.0 */
/* Names that start out undefined. jinja2 decides once for each scope where a name is looked up: one
 * that the scope assigns (not in an `if` alone), that it does not read before and that no scope
 * around mentions is its own from the start. What the scope encloses finds it undefined until it is
 * assigned, whatever the variables of the rendering hold. */
#include "text/template/ast_internal.h"

typedef struct mention {
    uint32_t sym;
    bool is_unset;
} mention;

typedef struct scoper {
    struct csn_template *t;
    caisson_error *err;
    bool *is_seen;     /* [n_syms] an open scope mentions it */
    mention *mentions; /* [n_syms] of the open scopes, innermost last */
    uint32_t n;
} scoper;

static void note(scoper *s, uint32_t sym, bool is_unset) {
    if (!s->is_seen[sym]) {
        s->is_seen[sym] = true;
        s->mentions[s->n++] = (mention){sym, is_unset};
    }
}

static void reads(scoper *s, const tnode *n) {
    if (n == NULL) {
        return;
    }
    if (n->kind == N_NAME) {
        note(s, n->sym, false);
    }
    reads(s, n->a);
    reads(s, n->b);
    reads(s, n->c);
    for (uint32_t i = 0; i < n->n_list; i++) {
        reads(s, n->list[i]);
        reads(s, n->list2 != NULL ? n->list2[i] : NULL);
    }
    const targs *a = n->args;
    for (uint32_t i = 0; a != NULL && i < a->n_pos; i++) {
        reads(s, a->pos[i]);
    }
    for (uint32_t i = 0; a != NULL && i < a->n_kw; i++) {
        reads(s, a->kw[i]);
    }
    if (a != NULL) {
        reads(s, a->star);
        reads(s, a->star_star);
    }
}

static void stores(scoper *s, const tnode *target, bool is_unset) {
    if (target->kind == N_NAME) {
        note(s, target->sym, is_unset);
    } else if (target->kind == N_NSREF) {
        note(s, target->sym, false);
    }
    for (uint32_t i = 0; i < target->n_list; i++) {
        stores(s, target->list[i], is_unset);
    }
}

/* What a scope itself mentions, in order. */
static void mentions_of(scoper *s, const tbody *body, bool is_certain) {
    for (uint32_t i = 0; i < body->n; i++) {
        const tnode *n = body->items[i];
        switch ((tnode_kind)n->kind) {
        case N_PRINT:
        case N_CALL_BLOCK:
        case N_FILTER_BLOCK: reads(s, n->a); break;
        case N_FOR: reads(s, n->b); break;
        case N_MACRO: note(s, n->sym, is_certain); break;
        case N_SET:
            reads(s, n->b);
            stores(s, n->a, is_certain);
            break;
        case N_SET_BLOCK: stores(s, n->a, is_certain); break;
        case N_WITH:
            for (uint32_t k = 0; k < n->n_list; k++) {
                reads(s, n->list2[k]);
            }
            break;
        case N_IF:
            for (uint32_t k = 0; k < n->n_list; k++) {
                reads(s, n->list[k]);
                mentions_of(s, &n->bodies[k], false);
            }
            mentions_of(s, &n->bodies[n->n_list], false);
            break;
        default: break;
        }
    }
}

static caisson_status inner_scopes(scoper *s, const tbody *body);

/* `from`: how many mentions stood before this scope's parameters. */
static caisson_status scope(scoper *s, tbody *body, uint32_t from) {
    uint32_t n_unset = 0;
    mentions_of(s, body, true);
    for (uint32_t i = from; i < s->n; i++) {
        n_unset += s->mentions[i].is_unset;
    }
    CSN_TRY(CSN_ARENA_NEW(&s->t->arena, n_unset, &body->unset, s->err));
    for (uint32_t i = from; i < s->n; i++) {
        if (s->mentions[i].is_unset) {
            body->unset[body->n_unset++] = s->mentions[i].sym;
        }
    }
    CSN_TRY(inner_scopes(s, body));
    while (s->n > from) {
        s->is_seen[s->mentions[--s->n].sym] = false;
    }
    return CAISSON_OK;
}

static caisson_status macro_scope(scoper *s, tmacro *m) {
    uint32_t from = s->n;
    for (uint32_t i = 0; i < m->n_params; i++) {
        note(s, m->params[i], false);
    }
    if (m->uses_caller) {
        note(s, s->t->sym_caller, false);
    }
    if (m->uses_kwargs) {
        note(s, s->t->sym_kwargs, false);
    }
    if (m->uses_varargs) {
        note(s, s->t->sym_varargs, false);
    }
    for (uint32_t i = 0; i < m->n_params; i++) {
        reads(s, m->defaults[i]);
    }
    return scope(s, &m->body, from);
}

static caisson_status inner_scopes(scoper *s, const tbody *body) {
    for (uint32_t i = 0; i < body->n; i++) {
        const tnode *n = body->items[i];
        uint32_t from = s->n;
        switch ((tnode_kind)n->kind) {
        case N_MACRO:
        case N_CALL_BLOCK:
        case N_GENERATION: CSN_TRY(macro_scope(s, n->macro)); break;
        case N_FOR:
            stores(s, n->a, false);
            note(s, s->t->sym_loop, false);
            CSN_TRY(scope(s, &n->bodies[0], from));
            CSN_TRY(scope(s, &n->bodies[1], from));
            break;
        case N_WITH:
            for (uint32_t k = 0; k < n->n_list; k++) {
                stores(s, n->list[k], false);
            }
            CSN_TRY(scope(s, &n->bodies[0], from));
            break;
        case N_FILTER_BLOCK:
        case N_SET_BLOCK: CSN_TRY(scope(s, &n->bodies[0], from)); break;
        case N_IF:
            for (uint32_t k = 0; k <= n->n_list; k++) {
                CSN_TRY(inner_scopes(s, &n->bodies[k]));
            }
            break;
        default: break;
        }
    }
    return CAISSON_OK;
}

caisson_status csn_tp_scopes(struct csn_template *t, caisson_error *err) {
    scoper s = {.t = t, .err = err};
    CSN_TRY(CSN_ARENA_NEW(&t->arena, t->n_syms, &s.is_seen, err));
    CSN_TRY(CSN_ARENA_NEW(&t->arena, t->n_syms, &s.mentions, err));
    return scope(&s, &t->body, 0);
}
