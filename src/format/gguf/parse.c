/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF header grammar: magic, version, counts, metadata pairs, tensor infos. */
#include "format/gguf/parse_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/utf8.h"
#include "caisson/limits.h"

const char *const csn_gguf_type_names[CSN_GGUF_N_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64",
};
/* Bytes of one value; 0 = it carries its own length. */
static const uint8_t type_bytes[CSN_GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum {
    MIN_PAIR_BYTES = 8 + 4 + 1,           /* empty key, type, u8 */
    MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* empty name, n_dims, one dim, type, offset */
    MAX_NAME_BYTES = 65535,
    MAX_DIMS = 4, /* of GGUF */
    DEFAULT_ALIGNMENT = 32
};

typedef struct reader {
    csn_str bytes;
    uint64_t file_bytes;
    uint64_t pos;
    bool is_short;
    const char *section;
    caisson_error *err;
} reader;

/* n more bytes must exist. Past the window but inside the file: is_short. */
static caisson_status need(reader *r, uint64_t n) {
    if (csn_range_fits(r->pos, n, r->bytes.len)) {
        return CAISSON_OK;
    }
    r->is_short = csn_range_fits(r->pos, n, r->file_bytes);
    return CSN_FAIL(r->err, CAISSON_E_BOUNDS, .section = r->section, CSN_AT(r->pos),
                    .what = "file ends inside the header", CSN_VALUES(n, r->file_bytes - r->pos));
}

static uint64_t load(const char *p, unsigned n) {
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        v |= (uint64_t)(uint8_t)p[i] << (8 * i);
    }
    return v;
}

static caisson_status take(reader *r, unsigned n, uint64_t *ret) {
    CSN_TRY(need(r, n));
    *ret = load(r->bytes.ptr + r->pos, n);
    r->pos += n;
    return CAISSON_OK;
}

static caisson_status take_str(reader *r, csn_str *ret) {
    uint64_t len;
    CSN_TRY(take(r, 8, &len));
    CSN_TRY(need(r, len));
    *ret = csn_str_make(r->bytes.ptr + r->pos, (size_t)len);
    r->pos += len;
    return CAISSON_OK;
}

static caisson_status take_type(reader *r, csn_str key, csn_gguf_type *ret) {
    uint64_t t;
    CSN_TRY(take(r, 4, &t));
    if (t >= CSN_GGUF_N_TYPES) {
        return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = key,
                        CSN_AT(r->pos - 4), .what = "unknown type of a value",
                        CSN_VALUES(CSN_GGUF_N_TYPES - 1, t));
    }
    *ret = (csn_gguf_type)t;
    return CAISSON_OK;
}

static caisson_status skip_array(reader *r, csn_str key, csn_gguf_type item, uint64_t n,
                                 unsigned depth);

/* Steps over one array: type and count of its items, then the items. */
static caisson_status take_array(reader *r, csn_str key, csn_gguf_type *ret_item, uint64_t *ret_n,
                                 unsigned depth) {
    if (depth > CSN_GGUF_MAX_DEPTH) {
        return CSN_FAIL(r->err, CAISSON_E_LIMIT, .section = r->section, .tensor = key,
                        CSN_AT(r->pos), .what = "arrays are nested too deeply",
                        CSN_VALUES(CSN_GGUF_MAX_DEPTH, depth));
    }
    CSN_TRY(take_type(r, key, ret_item));
    CSN_TRY(take(r, 8, ret_n));
    uint64_t at_least = type_bytes[*ret_item], bytes;
    if (at_least == 0) {
        at_least = *ret_item == CSN_GGUF_STRING ? 8 : 12;
    }
    if (!csn_mul(*ret_n, at_least, &bytes) || bytes > r->file_bytes - r->pos) {
        return CSN_FAIL(r->err, CAISSON_E_BOUNDS, .section = r->section, .tensor = key,
                        CSN_AT(r->pos - 8), .what = "array is longer than the rest of the file",
                        CSN_VALUES((r->file_bytes - r->pos) / at_least, *ret_n));
    }
    return skip_array(r, key, *ret_item, *ret_n, depth);
}

static caisson_status skip_array(reader *r, csn_str key, csn_gguf_type item, uint64_t n,
                                 unsigned depth) {
    if (type_bytes[item] != 0) {
        CSN_TRY(need(r, n * type_bytes[item])); /* product checked by the caller */
        if (item == CSN_GGUF_BOOL) {
            for (uint64_t i = 0; i < n; i++) {
                if ((uint8_t)r->bytes.ptr[r->pos + i] > 1) {
                    return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = key,
                                    CSN_AT(r->pos + i), .what = "a bool is neither 0 nor 1");
                }
            }
        }
        r->pos += n * type_bytes[item];
        return CAISSON_OK;
    }
    for (uint64_t i = 0; i < n; i++) {
        csn_str s;
        csn_gguf_type inner;
        uint64_t inner_n;
        CSN_TRY(item == CSN_GGUF_STRING ? take_str(r, &s)
                                        : take_array(r, key, &inner, &inner_n, depth + 1));
    }
    return CAISSON_OK;
}

static caisson_status take_pair(reader *r, csn_gguf_pair *p) {
    CSN_TRY(take_str(r, &p->key));
    if (p->key.len > MAX_NAME_BYTES || !csn_utf8_valid(p->key, NULL)) {
        return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = p->key,
                        CSN_AT(r->pos), .what = "key is not UTF-8 or longer than the limit",
                        CSN_VALUES(MAX_NAME_BYTES, p->key.len));
    }
    CSN_TRY(take_type(r, p->key, &p->type));
    p->item = p->type;
    p->n = 1;
    if (p->type == CSN_GGUF_STRING) {
        return take_str(r, &p->bytes);
    }
    uint64_t begin = r->pos;
    if (p->type == CSN_GGUF_ARRAY) {
        CSN_TRY(take_array(r, p->key, &p->item, &p->n, 1));
        begin += 12;
    } else {
        CSN_TRY(skip_array(r, p->key, p->type, 1, 1));
    }
    p->bytes = csn_str_make(r->bytes.ptr + begin, (size_t)(r->pos - begin));
    return CAISSON_OK;
}

static int pair_cmp(const void *a, const void *b) {
    return csn_str_cmp(((const csn_gguf_pair *)a)->key, ((const csn_gguf_pair *)b)->key);
}

static caisson_status take_pairs(reader *r, uint64_t n, csn_arena *arena, csn_gguf_head *h) {
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)n, &h->pairs, r->err));
    for (uint64_t i = 0; i < n; i++) {
        CSN_TRY(take_pair(r, &h->pairs[i]));
    }
    h->n_pairs = (uint32_t)n;
    if (n > 0) {
        qsort(h->pairs, (size_t)n, sizeof(*h->pairs), pair_cmp);
    }
    for (uint64_t i = 1; i < n; i++) {
        if (csn_str_eq(h->pairs[i].key, h->pairs[i - 1].key)) {
            return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section,
                            .tensor = h->pairs[i].key, .what = "key given twice");
        }
    }
    return CAISSON_OK;
}

/* The row of a ggml type; a row of its own for a number that we have never heard of. */
static caisson_status dtype_of(uint64_t id, csn_arena *arena, const csn_dtype **ret,
                               caisson_error *err) {
    *ret = id <= INT32_MAX ? csn_dtype_by_gguf((unsigned)id) : NULL;
    if (*ret != NULL) {
        return CAISSON_OK;
    }
    char name[32];
    csn_dtype *d;
    csn_str kept;
    int len = snprintf(name, sizeof(name), "ggml type %u", (unsigned)id);
    CSN_TRY(CSN_ARENA_NEW(arena, 1, &d, err));
    CSN_TRY(csn_arena_str(arena, csn_str_make(name, (size_t)len), &kept, err));
    *d = (csn_dtype){.name = kept.ptr,
                     .cmf_id = CSN_NO_ID,
                     .gguf_id = CSN_NO_ID,
                     .warp_fmt = CSN_NO_ID,
                     .group = 1,
                     .is_reserved = true};
    *ret = d;
    return CAISSON_OK;
}

static caisson_status take_tensor(reader *r, csn_arena *arena, csn_tensor *t) {
    uint64_t n_dims, id;
    CSN_TRY(take_str(r, &t->name));
    if (t->name.len == 0 || t->name.len > MAX_NAME_BYTES || !csn_utf8_valid(t->name, NULL)) {
        return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = t->name,
                        CSN_AT(r->pos), .what = "tensor name is empty, not UTF-8 or too long",
                        CSN_VALUES(MAX_NAME_BYTES, t->name.len));
    }
    CSN_TRY(take(r, 4, &n_dims));
    if (n_dims == 0 || n_dims > MAX_DIMS) {
        return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = t->name,
                        CSN_AT(r->pos - 4), .what = "number of dims is not in 1..4",
                        CSN_VALUES(MAX_DIMS, n_dims));
    }
    t->shape.n_dims = (uint32_t)n_dims;
    for (uint64_t i = 0; i < n_dims; i++) { /* innermost first in the file */
        uint64_t *dim = &t->shape.dim[n_dims - 1 - i];
        CSN_TRY(take(r, 8, dim));
        if (*dim == 0) {
            return CSN_FAIL(r->err, CAISSON_E_PARSE, .section = r->section, .tensor = t->name,
                            CSN_AT(r->pos - 8), .what = "a dim is 0");
        }
    }
    CSN_TRY(take(r, 4, &id));
    CSN_TRY(take(r, 8, &t->offset));
    CSN_TRY(dtype_of(id, arena, &t->dtype, r->err));
    if (t->dtype->nbytes == NULL) {
        t->nbytes = 0; /* unknown: only its name and shape are told */
        return CAISSON_OK;
    }
    caisson_status status = t->dtype->nbytes(&t->shape, &t->nbytes, r->err);
    if (status != CAISSON_OK) {
        csn_error_section(r->err, r->section);
        csn_error_tensor(r->err, t->name);
    }
    return status;
}

static caisson_status parse_split_keys(csn_gguf_head *h, caisson_error *err) {
    static const char *const names[] = {"split.no", "split.count", "split.tensors.count"};
    uint64_t *const to[] = {&h->split_no, &h->split_count, &h->split_tensors};
    for (int i = 0; i < 3; i++) {
        csn_gguf g = {.pairs = h->pairs, .n_pairs = h->n_pairs};
        const csn_gguf_pair *p = csn_gguf_find(&g, csn_str_from(names[i]));
        if (p != NULL && !csn_gguf_u64(p, to[i])) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                            .what = "value must be an integer that is not negative");
        }
    }
    return CAISSON_OK;
}

static caisson_status parse_alignment(csn_gguf_head *h, caisson_error *err) {
    csn_gguf g = {.pairs = h->pairs, .n_pairs = h->n_pairs};
    const csn_gguf_pair *p = csn_gguf_find(&g, CSN_STR("general.alignment"));
    h->alignment = DEFAULT_ALIGNMENT;
    if (p == NULL) {
        return CAISSON_OK;
    }
    if (p->type != CSN_GGUF_U32 || !csn_gguf_u64(p, &h->alignment) || h->alignment == 0 ||
        h->alignment > 1u << 20 || (h->alignment & (h->alignment - 1)) != 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                        .what = "alignment must be a u32, a power of two up to 2^20",
                        CSN_VALUES(DEFAULT_ALIGNMENT, h->alignment));
    }
    return CAISSON_OK;
}

static caisson_status check_count(reader *r, const char *what, uint64_t n, uint64_t min_bytes,
                                  uint64_t limit) {
    uint64_t most = (r->file_bytes - r->pos) / min_bytes;
    if (n <= most && n <= limit) {
        return CAISSON_OK;
    }
    return CSN_FAIL(r->err, n > most ? CAISSON_E_BOUNDS : CAISSON_E_LIMIT, .section = "header",
                    .what = what, CSN_VALUES(most < limit ? most : limit, n));
}

static caisson_status parse_all(reader *r, csn_arena *arena, csn_gguf_head *h) {
    uint64_t magic, version, n_tensors, n_pairs;
    if (r->file_bytes < 4 || load(r->bytes.ptr, 4) != 0x46554747u) { /* "GGUF" */
        return CSN_FAIL(r->err, CAISSON_E_MAGIC, .section = "header",
                        .what = "not a GGUF file (the first four bytes differ)");
    }
    CSN_TRY(take(r, 4, &magic));
    CSN_TRY(take(r, 4, &version));
    if (version != 2 && version != 3) {
        bool is_big_endian = version != 0 && (version & 0xffff) == 0;
        return CSN_FAIL(r->err, CAISSON_E_VERSION, .section = "header", CSN_AT(4),
                        .what = is_big_endian ? "big-endian GGUF files are not supported"
                                              : "GGUF version is not 2 or 3",
                        CSN_VALUES(3, version));
    }
    h->version = (uint32_t)version;
    CSN_TRY(take(r, 8, &n_tensors));
    CSN_TRY(take(r, 8, &n_pairs));
    CSN_TRY(check_count(r, "more metadata pairs than the file can hold", n_pairs, MIN_PAIR_BYTES,
                        1u << 20));
    CSN_TRY(check_count(r, "more tensors than the file can hold", n_tensors, MIN_TENSOR_BYTES,
                        CAISSON_MAX_TENSORS));
    r->section = "metadata";
    CSN_TRY(take_pairs(r, n_pairs, arena, h));
    CSN_TRY(parse_alignment(h, r->err));
    CSN_TRY(parse_split_keys(h, r->err));
    r->section = "directory";
    CSN_TRY(check_count(r, "more tensors than the file can hold", n_tensors, MIN_TENSOR_BYTES,
                        CAISSON_MAX_TENSORS));
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)n_tensors, &h->tensors, r->err));
    for (uint64_t i = 0; i < n_tensors; i++) {
        CSN_TRY(take_tensor(r, arena, &h->tensors[i]));
    }
    h->n_tensors = (uint32_t)n_tensors;
    if (!csn_align_up(r->pos, h->alignment, &h->data_offset)) {
        return CSN_FAIL(r->err, CAISSON_E_BOUNDS, .section = "header",
                        .what = "start of the data overflows");
    }
    return CAISSON_OK;
}

caisson_status csn_gguf_parse(csn_str bytes, uint64_t file_bytes, csn_arena *arena,
                              csn_gguf_head *ret, bool *ret_is_short, caisson_error *err) {
    reader r = {.bytes = bytes, .file_bytes = file_bytes, .section = "header", .err = err};
    csn_gguf_head head = {0};
    caisson_status status = parse_all(&r, arena, &head);
    *ret_is_short = r.is_short;
    if (status == CAISSON_OK) {
        *ret = head;
    }
    return status;
}
