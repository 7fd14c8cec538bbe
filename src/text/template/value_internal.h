/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the template language, with Python's semantics, and the state of one rendering.
 *
 * Everything that a rendering makes lies in its arena and is freed at once. Strings, lists and
 * dicts never change after they were made (the sandbox of transformers refuses the methods that
 * would change them), so they are shared freely; only namespaces change.
 *
 * Marks: each byte of a string is trusted (written by the template) or not (came with a message). A
 * string whose bytes all have one mark has no array (`marks` NULL, `is_trusted` tells). Numbers,
 * booleans and none carry one mark, which their text inherits.
 */
#ifndef CSN_TEXT_TEMPLATE_VALUE_INTERNAL_H
#define CSN_TEXT_TEMPLATE_VALUE_INTERNAL_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

typedef enum tkind {
    V_MISSING, /* no value: an argument not given; never seen by a template */
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW, /* dict.keys(), .values(), .items() */
    V_RANGE,
    V_ITER, /* what Python calls a generator: is consumed once */
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_METHOD,  /* a method bound to its object */
    V_FUNCTION /* range, namespace, dict, raise_exception, strftime_now */
} tkind;

typedef struct tstr {
    const char *p;
    const uint8_t *marks; /* [len], 1 = trusted; NULL: all bytes as is_trusted says */
    size_t len;           /* bytes, valid UTF-8 */
    size_t n_cp;          /* code points; SIZE_MAX = not counted yet */
    bool is_trusted;
    bool is_markup; /* the Markup type of `safe` and `escape` */
} tstr;

typedef struct tval tval;
typedef struct tseq tseq;
typedef struct tdict tdict;
typedef struct trange trange;
typedef struct tundef tundef;
typedef struct tbound tbound;
typedef struct tloop tloop;
typedef struct tmacro_value tmacro_value;
typedef struct tfunction tfunction;
typedef struct tnode tnode;
typedef struct tscope tscope;
typedef struct trun trun;
struct tbody;
struct tmacro;

struct tval {
    uint8_t kind;
    bool is_tainted; /* scalars: the value came with a message */
    union {
        bool b;
        int64_t i;
        double f;
        tstr *s;
        tseq *q;  /* V_LIST, V_TUPLE, V_ITER, V_VIEW */
        tdict *d; /* V_DICT, V_NAMESPACE */
        const trange *r;
        const tundef *u;
        const tbound *m;
        tloop *loop;
        const tmacro_value *macro;
        const tfunction *fn;
    } u;
};

struct tseq {
    tval *items;
    size_t n;
    size_t pos;         /* V_ITER: items before it are consumed */
    const char *origin; /* V_VIEW: "dict_keys", ...; V_ITER: its type's name; V_TUPLE: "group" */
    const caisson_error
        *fault;      /* V_ITER: what went wrong behind the last item, told when reached */
    bool is_tainted; /* came with a message: so is its length */
};

typedef struct tpair {
    tval key, value;
    uint64_t hash;
} tpair;

struct tdict {
    tpair *pairs; /* in order of insertion */
    size_t n, cap;
    uint32_t *index; /* [n_index] power of two, 0 = empty, else pair + 1; NULL while n is small */
    size_t n_index;
    bool is_tainted;
};

struct trange {
    int64_t start, stop, step;
    int64_t n;
};

struct tundef {
    const char *hint;  /* the whole sentence, or NULL */
    csn_str name;      /* what was looked up */
    const char *owner; /* type it was looked up on, NULL = a variable */
};

/* Arguments as the template wrote them. */
typedef struct targv {
    tval *pos;
    size_t n_pos;
    csn_str *kw_name;
    tval *kw_key; /* names that came from a mapping, with their marks; or NULL */
    tval *kw;
    size_t n_kw;
} targv;

enum { MAX_PARAMS = 6 };

/* The name of keyword i as a value: one that a mapping brought keeps its marks. */
caisson_status csn_tx_keyword(trun *r, const targv *a, size_t i, tval *ret);

/* One call of a built-in function, filter, test or method. */
typedef struct tcall {
    tval self;            /* the filtered value or the method's object */
    tval arg[MAX_PARAMS]; /* by tbuiltin.params; V_MISSING where not given */
    const targv *argv;    /* all of them: for built-ins that take any number */
} tcall;

typedef caisson_status (*tbuiltin_fn)(trun *r, const tcall *c, tval *ret);

/* A row of the tables of filters, tests, methods and functions. */
typedef struct tbuiltin {
    const char *name;
    tbuiltin_fn fn;     /* NULL: known to jinja2, refused by us when the template is compiled */
    const char *params; /* names, comma separated; NULL = takes any arguments (argv) */
    uint8_t n_required;
    bool is_positional; /* takes no keyword arguments */
} tbuiltin;

struct tbound {
    tval self;
    const tbuiltin *row;
};

struct tfunction {
    tbuiltin row;
};

struct tloop { /* a `for` that runs: what `loop` shows */
    const tnode *node;
    tscope *outer;
    tscope *test_scope; /* of the loop's filter */
    tval *items;
    size_t n, pos;    /* items fetched so far, also by looking ahead */
    bool is_filtered; /* items still have to pass the filter */
    bool has_next;    /* `next` was fetched */
    tval next, current, before;
    int64_t index0;
    int64_t length; /* -1 = not known yet */
    uint32_t depth0;
    bool has_changed; /* changed() was called with `changed` */
    tval changed;
};

struct tmacro_value {
    const struct tmacro *macro;
    tscope *scope; /* where it was defined */
};

/* ---- the state of one rendering ---- */

typedef struct tbuf { /* text in the making */
    char *p;
    uint8_t *marks; /* NULL while uniform */
    size_t len, cap;
    bool is_trusted; /* of all bytes while marks is NULL */
} tbuf;

struct tscope {
    tscope *parent;
    uint32_t *syms;
    tval *values;
    uint32_t n, cap;
};

typedef enum tflow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } tflow;

struct trun {
    const struct csn_template *t;
    csn_arena arena;
    caisson_error *err;
    uint32_t line; /* of the node being evaluated */
    uint64_t n_steps;
    uint32_t depth;   /* nested evaluator calls: the C stack */
    uint32_t n_calls; /* nested macro calls */
    tval *globals;    /* [n_syms] variables of the outermost scope */
    tscope *scope;    /* innermost; NULL = outermost */
    tbuf *out;
    tflow flow;
    tval capture; /* text of the block that a filter chain is applied to */
    int64_t now_unix;
    int32_t utc_offset_s;
    struct { /* the string that was appended to last: it may grow in place */
        tbuf buf;
    } tail;
};

/* A failure in line r->line; printf-like. Gives CAISSON_E_TEMPLATE, where compiler and analyser can
 * see that it is never CAISSON_OK. */
caisson_status csn_tr_say(trun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline caisson_status csn_tr_failed(caisson_status status) {
    (void)status;
    return CAISSON_E_TEMPLATE;
}
#define csn_tr_fail(...) csn_tr_failed(csn_tr_say(__VA_ARGS__))
caisson_status csn_tr_limit(trun *r, const char *what, uint64_t limit, uint64_t got);
/* Counts n steps of work. */
caisson_status csn_tr_charge(trun *r, uint64_t n);
/* Work over n bytes: a step each 64. */
caisson_status csn_tr_charge_bytes(trun *r, size_t n);
/* Brackets around each function that recurses over values or nodes. */
caisson_status csn_tr_enter(trun *r);
static inline void csn_tr_leave(trun *r) {
    r->depth--;
}
caisson_status csn_tr_alloc(trun *r, size_t count, size_t size, void **ret);
#define TR_NEW(r, count, ret) csn_tr_alloc((r), (count), sizeof(**(ret)), (void **)(ret))

/* ---- strings (string.c) ---- */
caisson_status csn_tb_put(trun *r, tbuf *b, const char *p, size_t n, bool is_trusted);
caisson_status csn_tb_put_sub(trun *r, tbuf *b, const tstr *s, size_t off, size_t n);
caisson_status csn_tb_put_str(trun *r, tbuf *b, const tstr *s);
/* n copies of the code point at p (k bytes). */
caisson_status csn_tb_fill(trun *r, tbuf *b, const tstr *unit, int64_t n);
caisson_status csn_tb_finish(trun *r, tbuf *b, tval *ret); /* -> V_STR */
/* A string of bytes that outlive the rendering. */
caisson_status csn_ts_view(trun *r, csn_str s, bool is_trusted, tval *ret);
caisson_status csn_ts_copy(trun *r, csn_str s, bool is_trusted, tval *ret);
/* Bytes [off, off + n) of s, shared. */
caisson_status csn_ts_sub(trun *r, const tstr *s, size_t off, size_t n, tval *ret);
/* a + b; amortised O(len b) when a is what the last call made. */
caisson_status csn_ts_concat(trun *r, const tstr *a, const tstr *b, tval *ret);
bool csn_ts_any_untrusted(const tstr *s);
size_t csn_ts_count(const tstr *s);                         /* code points */
size_t csn_ts_offset(const tstr *s, size_t i_cp);           /* byte offset of a code point */
size_t csn_ts_find(csn_str s, csn_str needle, size_t from); /* linear; SIZE_MAX = none */
caisson_status csn_ts_rfind(trun *r, csn_str s, csn_str needle, size_t *ret); /* the last one */
static inline csn_str csn_ts_bytes(const tstr *s) {
    return csn_str_make(s->p, s->len);
}
static inline csn_str csn_tv_bytes(tval v) { /* V_STR */
    return csn_str_make(v.u.s->p, v.u.s->len);
}

/* ---- values (value.c) ---- */
static inline tval csn_tv_none(void) {
    return (tval){.kind = V_NONE};
}
static inline tval csn_tv_bool(bool b) {
    return (tval){.kind = V_BOOL, .u.b = b};
}
static inline tval csn_tv_int(int64_t i) {
    return (tval){.kind = V_INT, .u.i = i};
}
static inline tval csn_tv_float(double f) {
    return (tval){.kind = V_FLOAT, .u.f = f};
}
static inline bool csn_tv_is_number(tval v) { /* Python: bool is an int */
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}
static inline bool csn_tv_is_int(tval v) {
    return v.kind == V_BOOL || v.kind == V_INT;
}
static inline int64_t csn_tv_as_int(tval v) {
    return v.kind == V_BOOL ? (int64_t)v.u.b : v.u.i;
}
static inline double csn_tv_as_double(tval v) {
    return v.kind == V_FLOAT ? v.u.f : (double)csn_tv_as_int(v);
}
const char *csn_tv_type_name(tval v); /* as Python spells it */
/* The value or any part of it that decides its text came with a message (not into containers). */
bool csn_tv_is_tainted(tval v);
caisson_status csn_tv_undef(trun *r, csn_str name, const char *owner, const char *hint, tval *ret);
/* What happens when an undefined value is used. */
caisson_status csn_tv_undef_say(trun *r, tval v);
#define csn_tv_undef_fail(r, v) csn_tr_failed(csn_tv_undef_say((r), (v)))
caisson_status csn_tv_list(trun *r, size_t n, tkind kind, tval *ret); /* items to be filled in */
typedef struct tlist {                                                /* a list in the making */
    tval *items;
    size_t n, cap;
} tlist;
caisson_status csn_tv_push(trun *r, tlist *l, tval v);
caisson_status csn_tv_finish(trun *r, const tlist *l, tkind kind, bool is_tainted, tval *ret);
caisson_status csn_tv_dict_new(trun *r, size_t cap, tval *ret);
caisson_status csn_tv_dict_set(trun *r, tdict *d, tval key, tval value);
/* *ret_found false: no such key. Fails on a key that cannot be hashed. */
caisson_status csn_tv_dict_get(trun *r, const tdict *d, tval key, bool *ret_found, tval *ret);
bool csn_tv_dict_get_str(const tdict *d, csn_str key, tval *ret);
caisson_status csn_tv_dict_equal(trun *r, const tdict *a, const tdict *b, bool *ret);
caisson_status csn_tv_hash(trun *r, tval v, uint64_t *ret);
bool csn_tv_is_hashable(tval v);
caisson_status csn_tv_truth(trun *r, tval v, bool *ret);
caisson_status csn_tv_equal(trun *r, tval a, tval b, bool *ret);
/* Python's < <= > >= by the sign of *ret; fails on kinds that have no order. */
caisson_status csn_tv_compare(trun *r, tval a, tval b, const char *op, int *ret, bool *ret_nan);
caisson_status csn_tv_len(trun *r, tval v, int64_t *ret);
caisson_status csn_tv_contains(trun *r, tval container, tval item, bool *ret);
/* list(v): consumes generators. *ret_n items, shared with v where v is a list. */
caisson_status csn_tv_items(trun *r, tval v, tval **ret_items, size_t *ret_n);
bool csn_tv_is_iterable(tval v);
/* A generator of the items of l. `status` is what ended it: a fault of the template (r->err) is
 * kept until a consumer reaches it, as Python would meet it then; anything else is returned. */
caisson_status csn_tv_generator(trun *r, const tlist *l, bool is_tainted, caisson_status status,
                                tval *ret);
caisson_status csn_tv_from_json(trun *r, const csn_jval *j, tval *ret);

/* ---- text (repr.c) ---- */
caisson_status csn_tv_str(trun *r, tval v, tval *ret); /* str(v), a V_STR, not Markup */
caisson_status csn_tv_put(trun *r, tbuf *b, tval v);   /* appends str(v) */
caisson_status csn_tv_repr(trun *r, tbuf *b, tval v);
typedef struct tjson_options {
    bool ensure_ascii, sort_keys;
    csn_str indent; /* one level */
    bool has_indent;
    csn_str item_sep, key_sep;
} tjson_options;
caisson_status csn_tv_json(trun *r, tbuf *b, tval v, const tjson_options *o, unsigned level);
enum { FLOAT_TEXT = 400 };
/* repr(float) of Python; returns the length. */
int csn_float_repr(double f, char out[FLOAT_TEXT]);

/* ---- operators (ops.c) ---- */
caisson_status csn_tv_arith(trun *r, int op, tval a, tval b, tval *ret);
caisson_status csn_tv_negate(trun *r, int op, tval a, tval *ret);
caisson_status csn_tv_getattr(trun *r, tval v, csn_str name, tval *ret);
caisson_status csn_tv_getitem(trun *r, tval v, tval key, tval *ret);
caisson_status csn_tv_slice(trun *r, tval v, tval start, tval stop, tval step, tval *ret);
caisson_status csn_tv_escape(trun *r, tval v, tval *ret); /* markupsafe.escape */
/* Path of attributes of map(attribute=), sort(attribute=), ...: "a.b.0" or an integer. */
caisson_status csn_tv_attr_path(trun *r, tval v, tval path, tval deflt, tval *ret);

/* ---- formats (format.c) ---- */
caisson_status csn_tf_percent(trun *r, const tstr *format, tval args, tval *ret);
caisson_status csn_tf_format(trun *r, const tstr *format, const targv *a, tval *ret);
caisson_status csn_tf_strftime(trun *r, const tstr *format, tval *ret); /* strftime.c */
/* "YYYY-MM-DD[ HH:MM:SS]" (or with 'T') -> seconds since 1970, UTC. */
bool csn_tf_parse_time(csn_str s, int64_t *ret);

/* ---- str methods that filters use too (strmeth.c, strcase.c) ---- */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* chars V_MISSING or V_NONE: white space. */
caisson_status csn_sm_strip(trun *r, const tstr *s, tval chars, unsigned sides, tval *ret);
caisson_status csn_sm_lines(trun *r, const tstr *s, bool keeps_ends, tval *ret);
caisson_status csn_sm_replace(trun *r, const tstr *s, const tstr *from, const tstr *to,
                              int64_t count, tval *ret);
caisson_status csn_sm_center(trun *r, const tstr *s, int64_t width, const tstr *fill, tval *ret);
typedef enum tcase_op {
    OP_UPPER,
    OP_LOWER,
    OP_FOLD,
    OP_SWAP,
    OP_CAPITALIZE,
    OP_TITLE,       /* str.title: a letter behind a letter is lower */
    OP_TITLE_FILTER /* the filter: words begin behind white space, - ( { [ < */
} tcase_op;
caisson_status csn_sm_case(trun *r, const tstr *s, tcase_op op, tval *ret);
bool csn_sm_is_case(const tstr *s, bool is_upper); /* str.isupper, str.islower */
extern const tbuiltin csn_str_case_methods[];      /* strcase.c; ends with name NULL */
extern const tbuiltin csn_str_methods[];

/* ---- sorting (sort.c) ---- */
/* Stable; keys[i] belongs to items[i]; both are reordered. */
caisson_status csn_tv_sort(trun *r, tval *items, tval *keys, size_t n, bool is_reverse);

/* ---- tables ---- */
const tbuiltin *csn_filter_find(csn_str name);
const tbuiltin *csn_test_find(csn_str name);
const tbuiltin *csn_method_find(tval self, csn_str name, bool *ret_is_unsafe);
const tfunction *csn_function_find(csn_str name);
bool csn_function_is_refused(csn_str name); /* cycler, joiner, lipsum */

/* ---- evaluation (eval.c, call.c) ---- */
caisson_status csn_tx_eval(trun *r, const tnode *n, tval *ret);
caisson_status csn_tx_call(trun *r, tval callee, const targv *a, tval *ret);
/* The call of a call block: its body goes along as the keyword `caller`. */
caisson_status csn_tx_call_with_caller(trun *r, const tnode *n, tval caller, tval *ret);
/* Calls a row with its parameters bound. */
caisson_status csn_tx_builtin(trun *r, const tbuiltin *row, tval self, const targv *a, tval *ret);
caisson_status csn_tx_body(trun *r, const struct tbody *body);
/* Runs a body into a text of its own. */
caisson_status csn_tx_capture(trun *r, const struct tbody *body, tval *ret);
caisson_status csn_tx_scope(trun *r, tscope *parent, tscope **ret);
caisson_status csn_tx_store(trun *r, uint32_t sym, tval v);
caisson_status csn_tx_assign(trun *r, const tnode *target, tval v);
caisson_status csn_tx_loop(trun *r, const tnode *n, tval iterable, uint32_t depth0);
caisson_status csn_tx_loop_attr(trun *r, tloop *loop, csn_str name, bool *ret_found, tval *ret);

#endif
