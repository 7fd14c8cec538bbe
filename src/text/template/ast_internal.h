/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and the syntax tree. The tree lies in the template's arena, is never changed after
 * compilation and is shared by all threads that render it.
 */
#ifndef CSN_TEXT_TEMPLATE_AST_INTERNAL_H
#define CSN_TEXT_TEMPLATE_AST_INTERNAL_H

#include "text/template/template.h"
#include "text/template/value_internal.h"

typedef enum ttok_kind {
    TOK_EOF,
    TOK_DATA,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_PRINT_BEGIN,
    TOK_PRINT_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_ADD,
    TOK_SUB,
    TOK_MUL,
    TOK_DIV,
    TOK_FLOORDIV,
    TOK_MOD,
    TOK_POW,
    TOK_TILDE,
    TOK_LBRACKET,
    TOK_RBRACKET,
    TOK_LPAREN,
    TOK_RPAREN,
    TOK_LBRACE,
    TOK_RBRACE,
    TOK_EQ,
    TOK_NE,
    TOK_GT,
    TOK_GE,
    TOK_LT,
    TOK_LE,
    TOK_IN, /* made by the parser: `in`, `not in` */
    TOK_NOTIN,
    TOK_ASSIGN,
    TOK_DOT,
    TOK_COLON,
    TOK_PIPE,
    TOK_COMMA,
    TOK_SEMICOLON
} ttok_kind;

typedef struct ttok {
    ttok_kind kind;
    uint32_t line;
    csn_str text; /* name, data, or the string's value */
    int64_t i;
    double f;
} ttok;

typedef enum tlex_state { LEX_ROOT, LEX_BLOCK, LEX_PRINT } tlex_state;

enum { MAX_NESTING = 256 }; /* CAISSON_MAX_TEMPLATE_DEPTH */

typedef struct tlexer {
    csn_arena *arena;
    caisson_error *err;
    csn_str src; /* line breaks are \n */
    size_t pos;
    uint32_t line;
    tlex_state state;
    bool is_line_start; /* the last tag ended with a line break */
    bool has_pending;   /* a tag was found behind text that is now delivered */
    ttok pending;
    char open[MAX_NESTING]; /* closing brackets that are expected */
    size_t n_open;
} tlexer;

caisson_status csn_tl_init(tlexer *l, csn_arena *arena, csn_str source, caisson_error *err);
caisson_status csn_tl_next(tlexer *l, ttok *ret);

typedef enum tnode_kind {
    /* statements */
    N_DATA,  /* value */
    N_PRINT, /* a */
    N_IF,    /* list: tests; bodies: one each and one more for else (may be empty) */
    N_FOR,   /* a target, b iterable, c test; bodies[0] body, bodies[1] else; flag: recursive */
    N_MACRO, /* sym, macro */
    N_CALL_BLOCK,   /* a the call, macro */
    N_FILTER_BLOCK, /* a: chain of filters over N_CAPTURE; bodies[0] */
    N_WITH,         /* list targets, list2 values; bodies[0] */
    N_SET,          /* a target, b value */
    N_SET_BLOCK,    /* a target, b: chain of filters over N_CAPTURE or NULL; bodies[0] */
    N_GENERATION,   /* bodies[0]: rendered in a scope of its own */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST, /* value */
    N_NAME,  /* sym, name */
    N_NSREF, /* sym, name: attribute; target only */
    N_TUPLE, /* list */
    N_LIST,  /* list */
    N_DICT,  /* list keys, list2 values */
    N_COND,  /* a test, b then, c else or NULL */
    N_OR,    /* a, b */
    N_AND,
    N_NOT,     /* a */
    N_UNARY,   /* op, a */
    N_BINARY,  /* op, a, b */
    N_CONCAT,  /* list */
    N_COMPARE, /* a; list operands, ops */
    N_GETATTR, /* a, name */
    N_GETITEM, /* a, b */
    N_SLICE,   /* only inside N_GETITEM: a start, b stop, c step, each may be NULL */
    N_CALL,    /* a callee, args */
    N_FILTER,  /* a value, name, args, row (NULL: unknown, fails when reached) */
    N_TEST,    /* a value, name, args, row */
    N_CAPTURE  /* the text of the block that a filter chain ends in */
} tnode_kind;

typedef struct targs { /* arguments of a call as written */
    tnode **pos;
    uint32_t n_pos;
    csn_str *kw_name;
    tnode **kw;
    uint32_t n_kw;
    tnode *star, *star_star;
} targs;

typedef struct tbody {
    tnode **items;
    uint32_t n;
    uint32_t *unset; /* [n_unset] symbols that are undefined at its start (scope.c) */
    uint32_t n_unset;
} tbody;

/* The symbol of a name, or UINT32_MAX. */
uint32_t csn_template_sym(const struct csn_template *t, csn_str name);

typedef struct tmacro {
    csn_str name;
    uint32_t *params; /* symbols */
    csn_str *param_names;
    uint32_t n_params;
    tnode **defaults; /* [n_params], NULL = none */
    tbody body;
    bool is_anonymous; /* of a call block */
    bool uses_caller, uses_kwargs, uses_varargs, has_caller_param;
} tmacro;

struct tnode {
    uint8_t kind; /* tnode_kind */
    uint8_t op;   /* ttok_kind */
    bool flag;
    uint16_t depth; /* height of the expression tree */
    uint32_t line;
    uint32_t sym;
    tnode *a, *b, *c;
    tnode **list, **list2;
    uint32_t n_list;
    uint8_t *ops;
    tbody *bodies;
    csn_str name;
    tval value;
    targs *args;
    tmacro *macro;
    const tbuiltin *row;
};

struct csn_template {
    csn_arena arena;
    tbody body;
    csn_str *syms; /* names of variables */
    uint32_t n_syms;
    uint32_t *sym_index; /* open addressing over names: symbol + 1, 0 = empty */
    uint32_t n_sym_index;
    uint32_t sym_loop, sym_caller, sym_kwargs, sym_varargs;
};

/* Fills t->body and t->syms. */
caisson_status csn_tp_parse(struct csn_template *t, csn_str source, caisson_error *err);

/* Fills tbody.unset of every scope. */
caisson_status csn_tp_scopes(struct csn_template *t, caisson_error *err);

/* ---- shared by parse.c and parse_expr.c ---- */
typedef struct tparser {
    struct csn_template *t;
    csn_arena *arena;
    caisson_error *err;
    tlexer lex;
    ttok cur, ahead;
    bool has_ahead;
    uint32_t depth;
    uint32_t cap_syms;
    bool is_soft;               /* inside an `if`: jinja2 lets unknown filters pass until reached */
    uint32_t n_loops;           /* loops of this function that `break` may leave */
    uint32_t n_loops_any;       /* loops around, whatever the function */
    struct tmacro_watch *watch; /* macros around: which special names do they read? */
    struct tunknown *unknown;   /* filters and tests that are in no table */
} tparser;

typedef struct tmacro_watch {
    struct tmacro_watch *outer;
    bool uses[3], is_closed[3]; /* caller, kwargs, varargs; closed: assigned before it was read */
} tmacro_watch;

typedef struct tunknown {
    struct tunknown *next;
    const tnode *node;
    bool is_soft;
} tunknown;

caisson_status csn_tp_advance(tparser *p);
caisson_status csn_tp_look(tparser *p, const ttok **ret);
caisson_status csn_tp_expect(tparser *p, ttok_kind kind, const char *what, ttok *ret);
bool csn_tp_is_name(const ttok *t, const char *name);
/* Takes the token if it is this name. */
caisson_status csn_tp_skip_name(tparser *p, const char *name, bool *ret);
caisson_status csn_tp_node(tparser *p, tnode_kind kind, uint32_t line, tnode **ret);
/* Sets node->depth from its children; fails past MAX_NESTING. */
caisson_status csn_tp_close(tparser *p, tnode *n);
caisson_status csn_tp_sym(tparser *p, csn_str name, uint32_t *ret);
void csn_tp_watch(tparser *p, csn_str name, bool is_store);
void csn_tp_say(tparser *p, uint32_t line, csn_str construct, const char *what);
static inline caisson_status csn_tp_fail(tparser *p, uint32_t line, csn_str construct,
                                         const char *what) {
    csn_tp_say(p, line, construct, what);
    return CAISSON_E_TEMPLATE;
}
caisson_status csn_tp_enter(tparser *p);

typedef struct tnode_list {
    tnode **items;
    uint32_t n, cap;
} tnode_list;
caisson_status csn_tp_push(tparser *p, tnode_list *l, tnode *n);

enum { TUPLE_COND = 1, TUPLE_PARENS = 2 };
/* stop: a name that ends the tuple, or NULL. */
caisson_status csn_tp_tuple(tparser *p, unsigned flags, const char *stop, tnode **ret);
caisson_status csn_tp_expr(tparser *p, bool has_cond, tnode **ret);
caisson_status csn_tp_primary(tparser *p, bool is_target, tnode **ret);
/* A chain of filters over node (NULL: over N_CAPTURE); is_inline: the first has no bar. */
caisson_status csn_tp_filters(tparser *p, tnode *node, bool is_inline, tnode **ret);
/* An assignment target; names become stores. */
caisson_status csn_tp_target(tparser *p, const char *stop, bool has_namespace, tnode **ret);

#endif
