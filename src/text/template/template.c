/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling and rendering: the arenas, the limits, the variables, the result. */
#include "text/template/ast_internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/number.h"
#include "base/utf8.h"
#include "caisson/limits.h"

enum { MAX_FRAMES = 8 * CAISSON_MAX_TEMPLATE_DEPTH };

/* ---- failures and limits ---- */

caisson_status csn_tr_say(trun *r, const char *format, ...) {
    char what[sizeof(((caisson_error *)0)->what)];
    char at[32];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof(what), format, ap);
    va_end(ap);
    int n = r->line == 0 ? snprintf(at, sizeof(at), "the variables") /* before the first node */
                         : snprintf(at, sizeof(at), "line %u", r->line);
    return CSN_FAIL(r->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                    .tensor = csn_str_make(at, (size_t)n), .what = what);
}

caisson_status csn_tr_limit(trun *r, const char *what, uint64_t limit, uint64_t got) {
    char at[32];
    int n = snprintf(at, sizeof(at), "line %u", r->line);
    return CSN_FAIL(r->err, CAISSON_E_LIMIT, .section = "chat_template",
                    .tensor = csn_str_make(at, (size_t)n), .what = what, CSN_VALUES(limit, got));
}

caisson_status csn_tr_charge(trun *r, uint64_t n) {
    r->n_steps += n;
    if (r->n_steps > CAISSON_MAX_TEMPLATE_STEPS) {
        return csn_tr_limit(r, "the template takes too many steps", CAISSON_MAX_TEMPLATE_STEPS,
                            r->n_steps);
    }
    return CAISSON_OK;
}

/* A search goes through some 64 bytes in the time of a step. */
enum { BYTES_OF_STEP = 64 };

caisson_status csn_tr_charge_bytes(trun *r, size_t n) {
    return n < BYTES_OF_STEP ? CAISSON_OK : csn_tr_charge(r, n / BYTES_OF_STEP);
}

caisson_status csn_tr_enter(trun *r) {
    if (r->depth == MAX_FRAMES) {
        return csn_tr_limit(r, "the template is nested too deeply", MAX_FRAMES,
                            (uint64_t)r->depth + 1);
    }
    r->depth++;
    return CAISSON_OK;
}

caisson_status csn_tr_alloc(trun *r, size_t count, size_t size, void **ret) {
    if (size > 0 && (count > CAISSON_MAX_TEMPLATE_MEMORY / size ||
                     count * size > CAISSON_MAX_TEMPLATE_MEMORY - r->arena.used_bytes)) {
        return csn_tr_limit(r, "the template takes too much memory", CAISSON_MAX_TEMPLATE_MEMORY,
                            (uint64_t)r->arena.used_bytes + (uint64_t)count * size);
    }
    return csn_arena_alloc(&r->arena, count, size, ret, r->err);
}

/* ---- compiling ---- */

caisson_status csn_template_compile(csn_str source, csn_template **ret, caisson_error *err) {
    csn_template *t;
    csn_c_numbers numbers; /* lexer and filters use printf and strtod */
    CSN_TRY(csn_c_numbers_begin(&numbers, err));
    caisson_status s = CSN_NEW(1, &t, err);
    if (s != CAISSON_OK) {
        csn_c_numbers_end(&numbers);
        return s;
    }
    s = csn_tp_parse(t, source, err);
    csn_c_numbers_end(&numbers);
    if (s != CAISSON_OK) {
        csn_template_free(t);
        return s;
    }
    *ret = t;
    return CAISSON_OK;
}

void csn_template_free(csn_template *t) {
    if (t != NULL) {
        csn_arena_done(&t->arena);
        csn_free(t);
    }
}

/* ---- rendering ---- */

void csn_rendering_free(csn_rendering *r) {
    csn_buf_free(&r->text);
    csn_buf_free(&r->trusted);
}

/* The member `now` of the variables, if there is one. */
static caisson_status read_now(trun *r, const csn_jval *vars) {
    const csn_jval *now = csn_jval_get(vars, "now");
    csn_str text;
    double d;
    if (now == NULL || csn_jval_kind(now) == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    r->utc_offset_s = 0;
    if (csn_jval_i64(now, &r->now_unix)) {
        return CAISSON_OK;
    }
    if (csn_jval_f64(now, &d) && d > -1e15 && d < 1e15) {
        r->now_unix = (int64_t)d;
        return CAISSON_OK;
    }
    if (csn_jval_str(now, &text) && csn_tf_parse_time(text, &r->now_unix)) {
        return CAISSON_OK;
    }
    return CSN_FAIL(r->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                    .tensor = CSN_STR("now"),
                    .what = "`now` is neither a number of seconds nor YYYY-MM-DD[ HH:MM:SS]");
}

static caisson_status bind_variables(trun *r, const csn_template_input *in) {
    const csn_template *t = r->t;
    CSN_TRY(TR_NEW(r, t->n_syms, &r->globals));
    for (uint32_t i = 0; i < t->n_syms; i++) {
        const tfunction *fn = csn_function_find(t->syms[i]);
        if (fn != NULL) {
            r->globals[i] = (tval){.kind = V_FUNCTION, .u.fn = fn};
        }
    }
    for (size_t i = 0; i < in->n_trusted_vars; i++) {
        uint32_t sym = csn_template_sym(t, in->trusted_vars[i][0]);
        if (sym != UINT32_MAX && !csn_utf8_valid(in->trusted_vars[i][1], NULL)) {
            return CSN_FAIL(r->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                            .tensor = in->trusted_vars[i][0],
                            .what = "a variable is not valid UTF-8");
        }
        if (sym != UINT32_MAX) {
            CSN_TRY(csn_ts_view(r, in->trusted_vars[i][1], true, &r->globals[sym]));
        }
    }
    for (csn_jiter it = csn_jval_iter(in->vars); csn_jiter_next(&it);) {
        uint32_t sym = csn_template_sym(t, it.key);
        if (sym != UINT32_MAX) {
            CSN_TRY(csn_tv_from_json(r, it.value, &r->globals[sym]));
        }
    }
    return read_now(r, in->vars);
}

static caisson_status take_result(trun *r, const tbuf *b, csn_rendering *ret) {
    csn_rendering out = {.text = CSN_BUF_INIT(CAISSON_MAX_TEMPLATE_OUTPUT),
                         .trusted = CSN_BUF_INIT(CAISSON_MAX_TEMPLATE_OUTPUT)};
    caisson_status s = csn_buf_append(&out.text, b->p != NULL ? b->p : "", b->len, r->err);
    if (s == CAISSON_OK) {
        s = csn_buf_reserve(&out.trusted, b->len, r->err);
    }
    if (s != CAISSON_OK) {
        csn_rendering_free(&out);
        return s;
    }
    if (b->marks != NULL) {
        memcpy(out.trusted.ptr, b->marks, b->len);
    } else if (b->len > 0) {
        memset(out.trusted.ptr, b->is_trusted, b->len);
    }
    out.trusted.len = b->len;
    out.trusted.ptr[b->len] = '\0';
    *ret = out;
    return CAISSON_OK;
}

caisson_status csn_template_render(const csn_template *t, const csn_template_input *in,
                                   csn_rendering *ret, caisson_error *err) {
    tbuf out = {0};
    csn_c_numbers numbers;
    CSN_TRY(csn_c_numbers_begin(&numbers, err));
    trun r = {.t = t,
              .err = err,
              .out = &out,
              .now_unix = in->now_unix,
              .utc_offset_s = in->utc_offset_s};
    caisson_status s = bind_variables(&r, in);
    if (s == CAISSON_OK) {
        s = csn_tx_body(&r, &t->body);
    }
    if (s == CAISSON_OK) {
        s = take_result(&r, &out, ret);
    }
    csn_arena_done(&r.arena);
    csn_c_numbers_end(&numbers);
    return s;
}
