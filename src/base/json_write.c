/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text, written value by value. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "base/utf8.h"

csn_jw csn_jw_begin(csn_buf *out, caisson_error *err) {
    return (csn_jw){.out = out, .err = err, .status = CAISSON_OK};
}

static void put(csn_jw *w, const char *bytes, size_t n) {
    if (w->status == CAISSON_OK) {
        w->status = csn_buf_append(w->out, bytes, n, w->err);
    }
}

static void put_line(csn_jw *w) {
    if (!w->pretty) {
        return;
    }
    put(w, "\n", 1);
    for (unsigned i = 0; i < w->depth; i++) {
        put(w, "  ", 2);
    }
}

/* What stands before a value or key: the comma, and in pretty form the line break. */
static void separate(csn_jw *w) {
    if (w->need_comma) {
        put(w, ",", 1);
    }
    if (w->depth > 0 && w->out->len > 0 && w->out->ptr[w->out->len - 1] != ':' &&
        !(w->pretty && w->out->ptr[w->out->len - 1] == ' ')) {
        put_line(w);
    }
}

static void open_container(csn_jw *w, char c) {
    separate(w);
    put(w, &c, 1);
    w->need_comma = false;
    w->depth++;
}

static void close_container(csn_jw *w, char c) {
    w->depth--;
    if (w->need_comma) { /* not empty */
        put_line(w);
    }
    put(w, &c, 1);
    w->need_comma = true;
}

void csn_jw_object(csn_jw *w) {
    open_container(w, '{');
}
void csn_jw_object_end(csn_jw *w) {
    close_container(w, '}');
}
void csn_jw_array(csn_jw *w) {
    open_container(w, '[');
}
void csn_jw_array_end(csn_jw *w) {
    close_container(w, ']');
}

static void put_quoted(csn_jw *w, csn_str s) {
    put(w, "\"", 1);
    size_t i = 0;
    size_t clean = 0; /* start of the run that needs no escape */
    while (i < s.len) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            i++;
            continue;
        }
        uint32_t cp;
        size_t k = csn_utf8_decode(s, i, &cp);
        if (k > 1) {
            i += k;
            continue;
        }
        put(w, s.ptr + clean, i - clean);
        char esc[8];
        int n;
        switch (c) {
        case '"': n = snprintf(esc, sizeof(esc), "\\\""); break;
        case '\\': n = snprintf(esc, sizeof(esc), "\\\\"); break;
        case '\n': n = snprintf(esc, sizeof(esc), "\\n"); break;
        case '\r': n = snprintf(esc, sizeof(esc), "\\r"); break;
        case '\t': n = snprintf(esc, sizeof(esc), "\\t"); break;
        default:
            n = c < 0x80 ? snprintf(esc, sizeof(esc), "\\u%04x", c)
                         : snprintf(esc, sizeof(esc), "\xef\xbf\xbd"); /* U+FFFD */
            break;
        }
        put(w, esc, (size_t)n);
        i++;
        clean = i;
    }
    put(w, s.ptr + clean, s.len - clean);
    put(w, "\"", 1);
}

void csn_jw_key(csn_jw *w, csn_str key) {
    separate(w);
    put_quoted(w, key);
    put(w, w->pretty ? ": " : ":", w->pretty ? 2 : 1);
    w->need_comma = false;
}

static void put_scalar(csn_jw *w, const char *text, int n) {
    separate(w);
    put(w, text, (size_t)n);
    w->need_comma = true;
}

void csn_jw_str(csn_jw *w, csn_str s) {
    separate(w);
    put_quoted(w, s);
    w->need_comma = true;
}

void csn_jw_u64(csn_jw *w, uint64_t v) {
    char t[24];
    put_scalar(w, t, snprintf(t, sizeof(t), "%" PRIu64, v));
}

void csn_jw_i64(csn_jw *w, int64_t v) {
    char t[24];
    put_scalar(w, t, snprintf(t, sizeof(t), "%" PRId64, v));
}

/* As the format's reference prints numbers: 10000.0, 0.25, 1e-6. */
static void put_real(csn_jw *w, double v, bool is_f32) {
    char t[CSN_NUMBER_TEXT];
    if (!isfinite(v)) {
        csn_jw_null(w); /* JSON has no infinity; callers check before */
        return;
    }
    put_scalar(w, t, csn_number_text(v, is_f32, t));
}

void csn_jw_f64(csn_jw *w, double v) {
    put_real(w, v, false);
}
void csn_jw_f32(csn_jw *w, float v) {
    put_real(w, (double)v, true);
}

void csn_jw_bool(csn_jw *w, bool v) {
    put_scalar(w, v ? "true" : "false", v ? 4 : 5);
}

void csn_jw_null(csn_jw *w) {
    put_scalar(w, "null", 4);
}

void csn_jw_json(csn_jw *w, csn_str json) {
    separate(w);
    put(w, json.ptr, json.len);
    w->need_comma = true;
}

void csn_jw_value(csn_jw *w, const csn_jval *v) {
    switch (csn_jval_kind(v)) {
    case CSN_JSON_STRING: {
        csn_str s = {0};
        csn_jval_str(v, &s);
        csn_jw_str(w, s);
        break;
    }
    case CSN_JSON_BOOL: {
        bool b = false;
        csn_jval_bool(v, &b);
        csn_jw_bool(w, b);
        break;
    }
    case CSN_JSON_INT: {
        uint64_t u;
        int64_t i;
        if (csn_jval_u64(v, &u)) {
            csn_jw_u64(w, u);
        } else if (csn_jval_i64(v, &i)) {
            csn_jw_i64(w, i);
        }
        break;
    }
    case CSN_JSON_REAL: {
        double d = 0;
        csn_jval_f64(v, &d);
        csn_jw_f64(w, d);
        break;
    }
    case CSN_JSON_ARRAY:
        csn_jw_array(w);
        for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
            csn_jw_value(w, it.value); /* depth is bounded by CAISSON_MAX_JSON_DEPTH */
        }
        csn_jw_array_end(w);
        break;
    case CSN_JSON_OBJECT:
        csn_jw_object(w);
        for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
            csn_jw_key(w, it.key);
            csn_jw_value(w, it.value);
        }
        csn_jw_object_end(w);
        break;
    case CSN_JSON_NULL:
    case CSN_JSON_ABSENT: csn_jw_null(w); break;
    }
}

caisson_status csn_jw_end(csn_jw *w) {
    return w->status;
}

/* ---- members ---- */

void csn_jw_put_str(csn_jw *w, const char *key, csn_str v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_str(w, v);
}

void csn_jw_put_str_or_null(csn_jw *w, const char *key, csn_str v) {
    csn_jw_key(w, csn_str_from(key));
    if (v.ptr != NULL) {
        csn_jw_str(w, v);
    } else {
        csn_jw_null(w);
    }
}

void csn_jw_put_id(csn_jw *w, const char *key, int32_t id) {
    csn_jw_key(w, csn_str_from(key));
    if (id >= 0) {
        csn_jw_i64(w, id);
    } else {
        csn_jw_null(w);
    }
}

void csn_jw_put_u64(csn_jw *w, const char *key, uint64_t v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_u64(w, v);
}

void csn_jw_put_f64(csn_jw *w, const char *key, double v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_f64(w, v);
}

void csn_jw_put_f64s(csn_jw *w, const char *key, const double *v, size_t n) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_array(w);
    for (size_t i = 0; i < n; i++) {
        csn_jw_f64(w, v[i]);
    }
    csn_jw_array_end(w);
}

void csn_jw_put_f32(csn_jw *w, const char *key, float v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_f32(w, v);
}

void csn_jw_put_bool(csn_jw *w, const char *key, bool v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_bool(w, v);
}

void csn_jw_put_null(csn_jw *w, const char *key) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_null(w);
}
