/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: reading (json.c, a wrapper over yyjson and the only file that includes it) and writing
 * (json_write.c).
 *
 * Reading is strict: UTF-8, no comments, no trailing bytes, no NaN, depth and number of values
 * within caisson/limits.h; with CSN_JSON_UNIQUE a key given twice in one object is refused. Values
 * and the strings they give live until csn_json_free(). Numbers keep what the text says: u64 and
 * i64 are exact, anything else is a double.
 *
 * Every getter is safe on NULL and on a value of another type: it returns NULL, false or empty.
 */
#ifndef CSN_BASE_JSON_H
#define CSN_BASE_JSON_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_json csn_json; /* a parsed document */
typedef struct csn_jval csn_jval; /* a value inside it */

enum {
    CSN_JSON_UNIQUE = 1,
    CSN_JSON_EXACT = 2 /* an integer beyond 64 bits is CAISSON_E_LIMIT, not the nearest double */
};

typedef enum csn_jkind {
    CSN_JSON_ABSENT, /* NULL pointer */
    CSN_JSON_NULL,
    CSN_JSON_BOOL,
    CSN_JSON_INT, /* fits i64 or u64 */
    CSN_JSON_REAL,
    CSN_JSON_STRING,
    CSN_JSON_ARRAY,
    CSN_JSON_OBJECT
} csn_jkind;

/* `text` is copied. Errors: CAISSON_E_PARSE (offset = byte in text), CAISSON_E_LIMIT, NOMEM. */
caisson_status csn_json_parse(csn_str text, unsigned flags, csn_json **ret, caisson_error *err);
void csn_json_free(csn_json *doc);
const csn_jval *csn_json_root(const csn_json *doc);

csn_jkind csn_jval_kind(const csn_jval *v);
const csn_jval *csn_jval_get(const csn_jval *object, const char *key); /* first match */
size_t csn_jval_len(const csn_jval *v);                                /* elements or pairs */
bool csn_jval_str(const csn_jval *v, csn_str *ret);
bool csn_jval_bool(const csn_jval *v, bool *ret);
bool csn_jval_i64(const csn_jval *v, int64_t *ret);  /* integers that fit */
bool csn_jval_u64(const csn_jval *v, uint64_t *ret); /* integers that fit */
bool csn_jval_f64(const csn_jval *v, double *ret);   /* any number */

/* A member of an object; "" and 0 where it is absent or of another kind. */
csn_str csn_jval_text_of(const csn_jval *object, const char *key);
uint64_t csn_jval_number_of(const csn_jval *object, const char *key);
double csn_jval_real_of(const csn_jval *object, const char *key);

/* Iteration in document order:
 *   for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) { it.key (objects), it.value }  */
typedef struct csn_jiter {
    csn_str key; /* empty for arrays */
    const csn_jval *value;
    size_t index; /* of value, from 0 */
    const void *priv_next;
    size_t priv_left;
    bool priv_is_object;
} csn_jiter;
csn_jiter csn_jval_iter(const csn_jval *v);
bool csn_jiter_next(csn_jiter *it);

/* ---- writing ---- appends to a csn_buf; the writer places commas, the caller balances. */
typedef struct csn_jw {
    csn_buf *out;
    bool need_comma;
    bool pretty; /* one member a line, two blanks a level */
    unsigned depth;
    caisson_status status; /* the first failure sticks; *err holds it */
    caisson_error *err;
} csn_jw;

csn_jw csn_jw_begin(csn_buf *out, caisson_error *err);
void csn_jw_object(csn_jw *w);     /* { */
void csn_jw_object_end(csn_jw *w); /* } */
void csn_jw_array(csn_jw *w);      /* [ */
void csn_jw_array_end(csn_jw *w);  /* ] */
void csn_jw_key(csn_jw *w, csn_str key);
void csn_jw_str(csn_jw *w, csn_str s); /* bytes that are not UTF-8 become U+FFFD */
void csn_jw_u64(csn_jw *w, uint64_t v);
void csn_jw_i64(csn_jw *w, int64_t v);
void csn_jw_f64(csn_jw *w, double v); /* shortest text that reads back equal; integral: "1.0" */
void csn_jw_f32(csn_jw *w, float v);  /* shortest text that reads back equal as f32 */
void csn_jw_bool(csn_jw *w, bool v);
void csn_jw_null(csn_jw *w);
void csn_jw_json(csn_jw *w, csn_str json);       /* text that is one JSON value already */
void csn_jw_value(csn_jw *w, const csn_jval *v); /* a parsed value, copied whole, key order kept */
caisson_status csn_jw_end(csn_jw *w);            /* the first failure, or OK */

/* Members of an open object: the key, then the value. */
void csn_jw_put_str(csn_jw *w, const char *key, csn_str v);
void csn_jw_put_str_or_null(csn_jw *w, const char *key, csn_str v); /* null: v.ptr is NULL */
void csn_jw_put_id(csn_jw *w, const char *key, int32_t id);         /* of a token; null: below 0 */
void csn_jw_put_u64(csn_jw *w, const char *key, uint64_t v);
void csn_jw_put_f64(csn_jw *w, const char *key, double v);
void csn_jw_put_f64s(csn_jw *w, const char *key, const double *v, size_t n); /* an array */
void csn_jw_put_f32(csn_jw *w, const char *key, float v);
void csn_jw_put_bool(csn_jw *w, const char *key, bool v);
void csn_jw_put_null(csn_jw *w, const char *key);

#endif
