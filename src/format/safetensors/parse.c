/* SPDX-License-Identifier: Apache-2.0 */
/* The header of one safetensors file: u64 length, JSON, payloads. */
#include "format/safetensors/parse_internal.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/size.h"
#include "caisson/limits.h"

typedef struct parser {
    csn_file *file;
    uint64_t data_offset, data_bytes;
    csn_arena *arena;
    caisson_error *err;
} parser;

static caisson_status fail(parser *p, csn_str name, const char *what) {
    return CSN_FAIL(p->err, CAISSON_E_PARSE, .section = "header", .tensor = name, .what = what);
}

static caisson_status find_dtype(parser *p, csn_str name, csn_str text, const csn_dtype **ret) {
    *ret = csn_dtype_by_safetensors(text);
    if (*ret != NULL) {
        return CAISSON_OK;
    }
    if (text.len == 0 || text.len > 32) {
        return fail(p, name, "dtype is not a short name");
    }
    csn_dtype *d; /* a row of its own: listed, never converted */
    csn_str kept;
    CSN_TRY(CSN_ARENA_NEW(p->arena, 1, &d, p->err));
    CSN_TRY(csn_arena_str(p->arena, text, &kept, p->err));
    *d = (csn_dtype){.name = kept.ptr,
                     .cmf_id = CSN_NO_ID,
                     .gguf_id = CSN_NO_ID,
                     .warp_fmt = CSN_NO_ID,
                     .group = 1,
                     .is_reserved = true};
    *ret = d;
    return CAISSON_OK;
}

static caisson_status parse_shape(parser *p, const csn_jval *v, csn_tensor *t) {
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || csn_jval_len(v) > CSN_MAX_DIMS) {
        return fail(p, t->name, "shape is not an array of at most 6 dims");
    }
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        if (!csn_jval_u64(it.value, &t->shape.dim[it.index])) {
            return fail(p, t->name, "a dim is not a whole number");
        }
        t->shape.n_dims++;
    }
    return CAISSON_OK;
}

static caisson_status parse_tensor(parser *p, csn_str name, const csn_jval *v, csn_tensor *t) {
    csn_str dtype = {0};
    uint64_t begin = 0, end = 0, expected = 0;
    CSN_TRY(csn_arena_str(p->arena, name, &t->name, p->err));
    if (csn_jval_kind(v) != CSN_JSON_OBJECT || !csn_jval_str(csn_jval_get(v, "dtype"), &dtype)) {
        return fail(p, name, "entry is not an object with a dtype");
    }
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        if (!csn_str_is(it.key, "dtype") && !csn_str_is(it.key, "shape") &&
            !csn_str_is(it.key, "data_offsets")) {
            return fail(p, name, "entry has a key that the format does not know");
        }
    }
    CSN_TRY(find_dtype(p, name, dtype, &t->dtype));
    CSN_TRY(parse_shape(p, csn_jval_get(v, "shape"), t));
    const csn_jval *off = csn_jval_get(v, "data_offsets");
    csn_jiter it = csn_jval_iter(off);
    if (csn_jval_kind(off) != CSN_JSON_ARRAY || csn_jval_len(off) != 2 || !csn_jiter_next(&it) ||
        !csn_jval_u64(it.value, &begin) || !csn_jiter_next(&it) || !csn_jval_u64(it.value, &end)) {
        return fail(p, name, "data_offsets is not a pair of whole numbers");
    }
    if (begin > end || end > p->data_bytes) {
        return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "header", .tensor = name,
                        .what = "data_offsets leave the file", CSN_VALUES(p->data_bytes, end));
    }
    t->offset = p->data_offset + begin; /* inside the file: no overflow */
    t->nbytes = end - begin;
    if (t->dtype->nbytes == NULL) {
        return CAISSON_OK;
    }
    caisson_status status = t->dtype->nbytes(&t->shape, &expected, p->err);
    if (status != CAISSON_OK) {
        csn_error_section(p->err, "header");
        csn_error_tensor(p->err, name);
        return status;
    }
    if (expected != t->nbytes) {
        return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "header", .tensor = name,
                        .what = "data_offsets differ from shape x dtype",
                        CSN_VALUES(expected, t->nbytes));
    }
    return CAISSON_OK;
}

static int by_offset(const void *a, const void *b) {
    const csn_tensor *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->nbytes != y->nbytes) {
        return x->nbytes < y->nbytes ? -1 : 1;
    }
    return csn_str_cmp(x->name, y->name);
}

/* Payloads follow each other and end at the end of the file. */
static caisson_status check_cover(parser *p, csn_tensor *t, uint32_t n) {
    uint64_t at = p->data_offset;
    if (n > 0) {
        qsort(t, n, sizeof(*t), by_offset);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].offset != at) {
            return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "header", .tensor = t[i].name,
                            .what = t[i].offset < at ? "payload overlaps another one"
                                                     : "payloads leave a gap",
                            CSN_VALUES(at, t[i].offset));
        }
        at += t[i].nbytes;
    }
    if (at != p->data_offset + p->data_bytes) {
        return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "data",
                        .what = "file has bytes behind the last payload", CSN_AT(at),
                        CSN_VALUES(at, p->data_offset + p->data_bytes));
    }
    return CAISSON_OK;
}

/* Texts by name, or null. */
static caisson_status check_metadata(parser *p, const csn_jval *v) {
    csn_jkind kind = csn_jval_kind(v);
    bool is_right = kind == CSN_JSON_OBJECT || kind == CSN_JSON_NULL;
    csn_str ignored;
    for (csn_jiter it = csn_jval_iter(v); is_right && csn_jiter_next(&it);) {
        is_right = csn_jval_str(it.value, &ignored);
    }
    return is_right ? CAISSON_OK
                    : fail(p, CSN_STR("__metadata__"), "not an object of strings alone");
}

static caisson_status parse_entries(parser *p, const csn_jval *root, csn_tensor **ret,
                                    uint32_t *ret_n) {
    if (csn_jval_kind(root) != CSN_JSON_OBJECT) {
        return fail(p, (csn_str){0}, "header is not an object");
    }
    size_t n = csn_jval_len(root), k = 0;
    if (n > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(p->err, CAISSON_E_LIMIT, .section = "header", .what = "too many tensors",
                        CSN_VALUES(CAISSON_MAX_TENSORS, n));
    }
    csn_tensor *t;
    CSN_TRY(CSN_ARENA_NEW(p->arena, n, &t, p->err));
    for (csn_jiter it = csn_jval_iter(root); csn_jiter_next(&it);) {
        if (csn_str_is(it.key, "__metadata__")) {
            CSN_TRY(check_metadata(p, it.value));
        } else {
            CSN_TRY(parse_tensor(p, it.key, it.value, &t[k++]));
        }
    }
    CSN_TRY(check_cover(p, t, (uint32_t)k));
    *ret = t;
    *ret_n = (uint32_t)k;
    return CAISSON_OK;
}

static caisson_status read_header(parser *p, csn_buf *text) {
    uint64_t size, len = 0;
    uint8_t head[8];
    CSN_TRY(csn_file_size(p->file, &size, p->err));
    if (size < sizeof(head)) {
        return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "header",
                        .what = "file is too short for safetensors",
                        CSN_VALUES(sizeof(head), size));
    }
    CSN_TRY(csn_file_read_at(p->file, 0, head, sizeof(head), p->err));
    for (int i = 0; i < 8; i++) {
        len |= (uint64_t)head[i] << (8 * i);
    }
    if (len > size - sizeof(head)) {
        return CSN_FAIL(p->err, CAISSON_E_BOUNDS, .section = "header", CSN_AT(0),
                        .what = "header length leaves the file",
                        CSN_VALUES(size - sizeof(head), len));
    }
    if (len > CAISSON_MAX_HEADER_BYTES) {
        return CSN_FAIL(p->err, CAISSON_E_LIMIT, .section = "header", CSN_AT(0),
                        .what = "header is longer than the limit",
                        CSN_VALUES(CAISSON_MAX_HEADER_BYTES, len));
    }
    CSN_TRY(csn_buf_reserve(text, (size_t)len, p->err));
    CSN_TRY(csn_file_read_at(p->file, sizeof(head), text->ptr, (size_t)len, p->err));
    text->len = (size_t)len;
    if (len > 0 && text->ptr[0] != '{') { /* blanks may follow the object, not precede it */
        return CSN_FAIL(p->err, CAISSON_E_PARSE, .section = "header", CSN_AT(sizeof(head)),
                        .what = "header does not begin with {",
                        CSN_VALUES('{', (uint8_t)text->ptr[0]));
    }
    p->data_offset = sizeof(head) + len;
    p->data_bytes = size - p->data_offset;
    return CAISSON_OK;
}

caisson_status csn_safetensors_parse(csn_file *file, uint32_t i_file, csn_arena *arena,
                                     csn_tensor **ret, uint32_t *ret_n, caisson_error *err) {
    parser p = {.file = file, .arena = arena, .err = err};
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_json *doc = NULL;
    csn_tensor *t = NULL;
    uint32_t n = 0;
    caisson_status status = read_header(&p, &text);
    if (status == CAISSON_OK) {
        status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, err);
        if (status != CAISSON_OK) {
            csn_error_section(err, "header");
        }
    }
    csn_buf_free(&text);
    if (status == CAISSON_OK) {
        status = parse_entries(&p, csn_json_root(doc), &t, &n);
    }
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_error_file(err, file->path);
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        t[i].i_file = i_file;
    }
    *ret = t;
    *ret_n = n;
    return CAISSON_OK;
}
