/* SPDX-License-Identifier: Apache-2.0 */
/* JSON by yyjson: this is the one file that includes it. yyjson parses iteratively, so hostile
 * depth cannot overflow the stack; the limits are checked on the finished document, whose values
 * lie in one array. The text is copied and parsed in place. */
#include "base/json.h"

#include <stdlib.h>
#include <yyjson.h>

#include "base/alloc.h"
#include "caisson/limits.h"

struct csn_json {
    yyjson_doc *doc;
    char *text;
};

/* yyjson's allocator, led through ours so that tests can fail it. */
static void *mem_malloc(void *ctx, size_t n) {
    (void)ctx;
    caisson_error err;
    void *p = NULL;
    /* csn_realloc does not zero: the document is large and yyjson writes all of it. */
    return csn_realloc(&p, n, 1, &err) == CAISSON_OK ? p : NULL;
}
static void *mem_realloc(void *ctx, void *p, size_t old, size_t n) {
    (void)ctx;
    (void)old;
    caisson_error err;
    return csn_realloc(&p, n, 1, &err) == CAISSON_OK ? p : NULL;
}
static void mem_free(void *ctx, void *p) {
    (void)ctx;
    csn_free(p);
}
static const yyjson_alc allocator = {mem_malloc, mem_realloc, mem_free, NULL};

static const yyjson_val *val(const csn_jval *v) {
    return (const yyjson_val *)(const void *)v;
}
static const csn_jval *wrap(const yyjson_val *v) {
    return (const csn_jval *)(const void *)v;
}

/* Depth of nesting, found in the text; brackets inside strings do not count. */
static caisson_status check_depth(csn_str text, caisson_error *err) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > CAISSON_MAX_JSON_DEPTH) {
                return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "JSON is nested too deeply",
                                CSN_AT(i), CSN_VALUES(CAISSON_MAX_JSON_DEPTH, depth));
            }
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        }
    }
    return CAISSON_OK;
}

static int compare_keys(const void *a, const void *b) {
    const yyjson_val *ka = *(yyjson_val *const *)a;
    const yyjson_val *kb = *(yyjson_val *const *)b;
    return csn_str_cmp(
        csn_str_make(unsafe_yyjson_get_str((void *)ka), unsafe_yyjson_get_len((void *)ka)),
        csn_str_make(unsafe_yyjson_get_str((void *)kb), unsafe_yyjson_get_len((void *)kb)));
}

/* Sorts the keys of one object: n log n, so a million keys do not become a trillion compares. */
static caisson_status check_unique(yyjson_val *object, caisson_error *err) {
    size_t n = unsafe_yyjson_get_len(object);
    if (n < 2) {
        return CAISSON_OK;
    }
    yyjson_val **keys;
    CSN_TRY(CSN_NEW(n, &keys, err));
    yyjson_obj_iter it = yyjson_obj_iter_with(object);
    for (size_t i = 0; i < n; i++) {
        keys[i] = yyjson_obj_iter_next(&it);
    }
    qsort(keys, n, sizeof(yyjson_val *), compare_keys);
    caisson_status status = CAISSON_OK;
    for (size_t i = 1; i < n && status == CAISSON_OK; i++) {
        if (compare_keys(&keys[i - 1], &keys[i]) == 0) {
            status = CSN_FAIL(err, CAISSON_E_PARSE, .what = "key given twice in one JSON object",
                              .tensor = csn_str_make(unsafe_yyjson_get_str(keys[i]),
                                                     unsafe_yyjson_get_len(keys[i])));
        }
    }
    csn_free(keys);
    return status;
}

/* The same of a parsed document, whose values lie in one array in the order of the text: a tenth of
 * the time of the scan (33 MB tokenizer.json: 60 ms). */
static bool is_too_deep(yyjson_doc *doc) {
    const yyjson_val *end[CAISSON_MAX_JSON_DEPTH]; /* of the containers around v */
    size_t depth = 0;
    yyjson_val *v = yyjson_doc_get_root(doc);
    const yyjson_val *stop = v + yyjson_doc_get_val_count(doc);
    for (; v < stop; v++) {
        if (!unsafe_yyjson_is_ctn(v)) {
            continue;
        }
        while (depth > 0 && v >= end[depth - 1]) {
            depth--;
        }
        if (depth == CAISSON_MAX_JSON_DEPTH) {
            return true;
        }
        end[depth++] = unsafe_yyjson_get_next(v);
    }
    return false;
}

/* Numbers that neither 64 bits nor a double can hold; with CSN_JSON_EXACT they are left as text. */
static caisson_status check_numbers(const csn_json *j, caisson_error *err) {
    size_t n = yyjson_doc_get_val_count(j->doc);
    yyjson_val *v = yyjson_doc_get_root(j->doc);
    for (size_t i = 0; i < n; i++) {
        if (!yyjson_is_raw(v + i)) {
            continue;
        }
        csn_str text = csn_str_make(unsafe_yyjson_get_raw(v + i), unsafe_yyjson_get_len(v + i));
        return CSN_FAIL(err, CAISSON_E_LIMIT, CSN_AT((uint64_t)(text.ptr - j->text)),
                        .what = "a number does not fit into 64 bits", .got = text);
    }
    return CAISSON_OK;
}

static caisson_status check_document(yyjson_doc *doc, unsigned flags, caisson_error *err) {
    size_t n = yyjson_doc_get_val_count(doc);
    if (n > CAISSON_MAX_JSON_VALUES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too many JSON values",
                        CSN_VALUES(CAISSON_MAX_JSON_VALUES, n));
    }
    if ((flags & CSN_JSON_UNIQUE) == 0) {
        return CAISSON_OK;
    }
    yyjson_val *v = yyjson_doc_get_root(doc); /* all values lie behind the root, in order */
    for (size_t i = 0; i < n; i++) {
        if (yyjson_is_obj(v + i)) {
            CSN_TRY(check_unique(v + i, err));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_json_parse(csn_str text, unsigned flags, csn_json **ret, caisson_error *err) {
    /* Small texts, and the start of large ones, are scanned before anything is allocated for them;
     * the rest of a large one is checked when it is parsed. */
    const size_t scan_bytes = 1 << 20;
    bool is_large = text.len > scan_bytes;
    CSN_TRY(check_depth(csn_str_make(text.ptr, is_large ? scan_bytes : text.len), err));
    if (text.len > UINT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "JSON text is too long",
                        CSN_VALUES(UINT32_MAX, text.len));
    }
    csn_json *j;
    CSN_TRY(CSN_NEW(1, &j, err));
    caisson_status status = csn_realloc((void **)&j->text, text.len + YYJSON_PADDING_SIZE, 1, err);
    if (status != CAISSON_OK) {
        csn_json_free(j);
        return status;
    }
    if (text.len > 0) {
        memcpy(j->text, text.ptr, text.len);
    }
    memset(j->text + text.len, 0, YYJSON_PADDING_SIZE);
    yyjson_read_err read_err = {0};
    j->doc = yyjson_read_opts(j->text, text.len,
                              YYJSON_READ_INSITU |
                                  ((flags & CSN_JSON_EXACT) != 0 ? YYJSON_READ_BIGNUM_AS_RAW : 0),
                              &allocator, &read_err);
    if (is_large && (j->doc == NULL || is_too_deep(j->doc))) {
        status = check_depth(text, err);
    }
    if (status != CAISSON_OK) {
        csn_json_free(j);
        return status;
    }
    if (j->doc == NULL) {
        if (read_err.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) {
            status = csn_fail_nomem(err, text.len);
        } else {
            const char *why = read_err.msg != NULL ? read_err.msg : "not JSON";
            status = CSN_FAIL(err, CAISSON_E_PARSE, .what = "not valid JSON", CSN_AT(read_err.pos),
                              .want = csn_str_from(why));
        }
    } else {
        status = check_document(j->doc, flags, err);
        if (status == CAISSON_OK && (flags & CSN_JSON_EXACT) != 0) {
            status = check_numbers(j, err);
        }
    }
    if (status != CAISSON_OK) {
        csn_json_free(j);
        return status;
    }
    *ret = j;
    return CAISSON_OK;
}

void csn_json_free(csn_json *doc) {
    if (doc == NULL) {
        return;
    }
    yyjson_doc_free(doc->doc);
    csn_free(doc->text);
    csn_free(doc);
}

const csn_jval *csn_json_root(const csn_json *doc) {
    return doc == NULL ? NULL : wrap(yyjson_doc_get_root(doc->doc));
}

csn_jkind csn_jval_kind(const csn_jval *v) {
    yyjson_val *y = (yyjson_val *)val(v);
    switch (yyjson_get_type(y)) {
    case YYJSON_TYPE_NULL: return CSN_JSON_NULL;
    case YYJSON_TYPE_BOOL: return CSN_JSON_BOOL;
    case YYJSON_TYPE_NUM: return yyjson_is_real(y) ? CSN_JSON_REAL : CSN_JSON_INT;
    case YYJSON_TYPE_STR: return CSN_JSON_STRING;
    case YYJSON_TYPE_ARR: return CSN_JSON_ARRAY;
    case YYJSON_TYPE_OBJ: return CSN_JSON_OBJECT;
    default: return CSN_JSON_ABSENT;
    }
}

const csn_jval *csn_jval_get(const csn_jval *object, const char *key) {
    return wrap(yyjson_obj_get((yyjson_val *)val(object), key));
}

size_t csn_jval_len(const csn_jval *v) {
    yyjson_val *y = (yyjson_val *)val(v);
    return yyjson_is_ctn(y) ? unsafe_yyjson_get_len(y) : 0;
}

bool csn_jval_str(const csn_jval *v, csn_str *ret) {
    yyjson_val *y = (yyjson_val *)val(v);
    if (!yyjson_is_str(y)) {
        return false;
    }
    *ret = csn_str_make(unsafe_yyjson_get_str(y), unsafe_yyjson_get_len(y));
    return true;
}

bool csn_jval_bool(const csn_jval *v, bool *ret) {
    yyjson_val *y = (yyjson_val *)val(v);
    if (!yyjson_is_bool(y)) {
        return false;
    }
    *ret = unsafe_yyjson_get_bool(y);
    return true;
}

bool csn_jval_i64(const csn_jval *v, int64_t *ret) {
    yyjson_val *y = (yyjson_val *)val(v);
    if (yyjson_is_sint(y)) {
        *ret = unsafe_yyjson_get_sint(y);
        return true;
    }
    if (yyjson_is_uint(y) && unsafe_yyjson_get_uint(y) <= INT64_MAX) {
        *ret = (int64_t)unsafe_yyjson_get_uint(y);
        return true;
    }
    return false;
}

bool csn_jval_u64(const csn_jval *v, uint64_t *ret) {
    yyjson_val *y = (yyjson_val *)val(v);
    if (yyjson_is_uint(y)) {
        *ret = unsafe_yyjson_get_uint(y);
        return true;
    }
    if (yyjson_is_sint(y) && unsafe_yyjson_get_sint(y) >= 0) {
        *ret = (uint64_t)unsafe_yyjson_get_sint(y);
        return true;
    }
    return false;
}

bool csn_jval_f64(const csn_jval *v, double *ret) {
    yyjson_val *y = (yyjson_val *)val(v);
    if (!yyjson_is_num(y)) {
        return false;
    }
    *ret = yyjson_get_num(y);
    return true;
}

csn_str csn_jval_text_of(const csn_jval *object, const char *key) {
    csn_str s = {"", 0};
    (void)csn_jval_str(csn_jval_get(object, key), &s);
    return s;
}

uint64_t csn_jval_number_of(const csn_jval *object, const char *key) {
    uint64_t v = 0;
    (void)csn_jval_u64(csn_jval_get(object, key), &v);
    return v;
}

double csn_jval_real_of(const csn_jval *object, const char *key) {
    double v = 0;
    (void)csn_jval_f64(csn_jval_get(object, key), &v);
    return v;
}

csn_jiter csn_jval_iter(const csn_jval *v) {
    yyjson_val *y = (yyjson_val *)val(v);
    csn_jiter it = {.index = SIZE_MAX};
    if (yyjson_is_ctn(y)) {
        it.priv_next = y + 1;
        it.priv_left = unsafe_yyjson_get_len(y);
        it.priv_is_object = yyjson_is_obj(y);
    }
    return it;
}

bool csn_jiter_next(csn_jiter *it) {
    if (it->priv_left == 0) {
        return false;
    }
    const yyjson_val *v = it->priv_next;
    if (it->priv_is_object) {
        it->key = csn_str_make(unsafe_yyjson_get_str((void *)v), unsafe_yyjson_get_len((void *)v));
        v++;
    }
    it->value = wrap(v);
    it->index++;
    it->priv_left--;
    it->priv_next = unsafe_yyjson_get_next((yyjson_val *)v);
    return true;
}
