/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the object; each key is looked up in the table. Tables are short, but an object may
 * be long: a key's first byte and length rule most rows out. */
#include "base/json_fields.h"

#include <math.h>
#include <stdio.h>

enum { MAX_SHOWN = 40 }; /* bytes of a string */

csn_str csn_jval_brief(const csn_jval *v, char buf[CSN_BRIEF]) {
    csn_str s = {0};
    int64_t i;
    uint64_t u;
    bool b;
    double d = 0;
    switch (csn_jval_kind(v)) {
    case CSN_JSON_ABSENT: return s;
    case CSN_JSON_STRING:
        (void)csn_jval_str(v, &s);
        if (s.len > MAX_SHOWN) {
            s.len = MAX_SHOWN;
            while (s.len > 0 && ((uint8_t)s.ptr[s.len] & 0xC0) == 0x80) { /* not inside a letter */
                s.len--;
            }
        }
        (void)snprintf(buf, CSN_BRIEF, "\"%.*s\"", CSN_STR_ARGS(s));
        break;
    case CSN_JSON_BOOL: return csn_jval_bool(v, &b) && b ? CSN_STR("true") : CSN_STR("false");
    case CSN_JSON_NULL: return CSN_STR("null");
    case CSN_JSON_ARRAY: return CSN_STR("an array");
    case CSN_JSON_OBJECT: return CSN_STR("an object");
    default:
        if (csn_jval_i64(v, &i)) {
            (void)snprintf(buf, CSN_BRIEF, "%" PRId64, i);
        } else if (csn_jval_u64(v, &u)) {
            (void)snprintf(buf, CSN_BRIEF, "%" PRIu64, u);
        } else {
            (void)csn_jval_f64(v, &d);
            (void)csn_number_text(d, false, buf);
        }
    }
    return csn_str_from(buf);
}

caisson_status csn_jfields_fail(caisson_error *err, const char *where, csn_str key,
                                const char *what, csn_str want, const csn_jval *got) {
    char path[160];
    char text[CSN_BRIEF];
    int n =
        snprintf(path, sizeof(path), "%s%s%.*s", where, where[0] != '\0' && key.len > 0 ? "." : "",
                 key.len < 100 ? (int)key.len : 100, key.ptr != NULL ? key.ptr : "");
    size_t len = n < 0 ? 0 : (size_t)n < sizeof(path) ? (size_t)n : sizeof(path) - 1;
    return CSN_FAIL(err, CAISSON_E_PARSE, .what = what, .tensor = csn_str_make(path, len),
                    CSN_TEXTS(want, csn_jval_brief(got, text)));
}

static size_t find(const csn_jfield *fields, size_t n, csn_str key) {
    for (size_t i = 0; i < n; i++) {
        if (key.len > 0 && fields[i].key[0] == key.ptr[0] && csn_str_is(key, fields[i].key)) {
            return i;
        }
    }
    return n;
}

bool csn_jfields_know(const csn_jfield *fields, size_t n, csn_str key) {
    return find(fields, n, key) < n;
}

static const char *const type_names[] = {
    [CSN_JT_ANY] = "any value",
    [CSN_JT_STR] = "a string",
    [CSN_JT_BOOL] = "true or false",
    [CSN_JT_U32] = "an integer from 0 to 2147483647",
    [CSN_JT_ID] = "an integer from 0 to 4294967295",
    [CSN_JT_U64] = "an integer from 0 to 18446744073709551615",
    [CSN_JT_F32] = "a number that f32 can hold",
    [CSN_JT_F64] = "a number",
    [CSN_JT_F64_AS_F32] = "a number that f32 can hold",
    [CSN_JT_OBJECT] = "an object",
    [CSN_JT_ARRAY] = "an array",
};

/* The value in the form of the field's type, copied to `to` (NULL: only checked). */
static bool store(csn_jtype type, const csn_jval *v, void *to) {
    union {
        csn_str s;
        bool b;
        uint32_t u32;
        uint64_t u64;
        float f32;
        double f64;
        const csn_jval *v;
    } x;
    size_t size = 0;
    bool is_right = true;
    uint64_t u = 0;
    double d = 0;
    switch (type) {
    case CSN_JT_STR:
        is_right = csn_jval_str(v, &x.s);
        size = sizeof(x.s);
        break;
    case CSN_JT_BOOL:
        is_right = csn_jval_bool(v, &x.b);
        size = sizeof(x.b);
        break;
    case CSN_JT_U32:
    case CSN_JT_ID:
        is_right = csn_jval_u64(v, &u) && u <= (type == CSN_JT_ID ? UINT32_MAX : INT32_MAX);
        x.u32 = (uint32_t)u;
        size = sizeof(x.u32);
        break;
    case CSN_JT_U64:
        is_right = csn_jval_u64(v, &x.u64);
        size = sizeof(x.u64);
        break;
    case CSN_JT_F32:
        is_right = csn_jval_f64(v, &d) && isfinite((float)d);
        x.f32 = (float)d;
        size = sizeof(x.f32);
        break;
    case CSN_JT_F64:
    case CSN_JT_F64_AS_F32:
        is_right = csn_jval_f64(v, &d) && (type == CSN_JT_F64 ? isfinite(d) : isfinite((float)d));
        x.f64 = d;
        size = sizeof(x.f64);
        break;
    case CSN_JT_OBJECT:
    case CSN_JT_ARRAY:
    case CSN_JT_ANY:
        is_right = type == CSN_JT_ANY ||
                   csn_jval_kind(v) == (type == CSN_JT_OBJECT ? CSN_JSON_OBJECT : CSN_JSON_ARRAY);
        x.v = v;
        size = sizeof(x.v);
        break;
    }
    if (is_right && to != NULL) {
        memcpy(to, &x, size);
    }
    return is_right;
}

caisson_status csn_jfields_read(const csn_jval *object, const csn_jfield *fields, size_t n,
                                const char *where, void *ret, uint64_t *ret_seen,
                                caisson_error *err) {
    if (csn_jval_kind(object) != CSN_JSON_OBJECT) {
        return csn_jfields_fail(err, where, (csn_str){0}, "not a JSON object", CSN_STR("an object"),
                                object);
    }
    uint64_t given = 0;
    uint64_t seen = 0;
    for (csn_jiter it = csn_jval_iter(object); csn_jiter_next(&it);) {
        size_t i = find(fields, n, it.key);
        if (i == n) {
            continue;
        }
        if ((given >> i & 1) != 0) {
            return csn_jfields_fail(err, where, it.key, "key given twice", CSN_STR("once"), NULL);
        }
        given |= UINT64_C(1) << i;
        if ((fields[i].flags & CSN_JF_NULLABLE) != 0 && csn_jval_kind(it.value) == CSN_JSON_NULL) {
            continue;
        }
        void *to = fields[i].offset == CSN_JF_UNSTORED ? NULL : (char *)ret + fields[i].offset;
        if (!store(fields[i].type, it.value, to)) {
            return csn_jfields_fail(err, where, it.key, "value has the wrong type or range",
                                    csn_str_from(type_names[fields[i].type]), it.value);
        }
        seen |= UINT64_C(1) << i;
    }
    for (size_t i = 0; i < n; i++) {
        if ((fields[i].flags & CSN_JF_REQUIRED) != 0 && (given >> i & 1) == 0) {
            return csn_jfields_fail(err, where, csn_str_from(fields[i].key),
                                    "required key is missing",
                                    csn_str_from(type_names[fields[i].type]), NULL);
        }
    }
    if (ret_seen != NULL) {
        *ret_seen = seen;
    }
    return CAISSON_OK;
}
