/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the metadata values of an open GGUF file. */
#include <stdlib.h>

#include "format/gguf/gguf.h"

static int key_cmp(const void *key, const void *pair) {
    return csn_str_cmp(*(const csn_str *)key, ((const csn_gguf_pair *)pair)->key);
}

const csn_gguf_pair *csn_gguf_find(const csn_gguf *g, csn_str key) {
    if (g->n_pairs == 0) {
        return NULL;
    }
    return bsearch(&key, g->pairs, g->n_pairs, sizeof(*g->pairs), key_cmp);
}

static uint64_t load(const char *p, unsigned n) {
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        v |= (uint64_t)(uint8_t)p[i] << (8 * i);
    }
    return v;
}

typedef struct number {
    enum { NOT_A_NUMBER, UNSIGNED, SIGNED, REAL } kind;
    uint64_t u;
    int64_t i;
    double f;
} number;

static number number_at(csn_gguf_type type, const char *p) {
    static const uint8_t width[CSN_GGUF_N_TYPES] = {
        [CSN_GGUF_U8] = 1,  [CSN_GGUF_I8] = 1,  [CSN_GGUF_U16] = 2, [CSN_GGUF_I16] = 2,
        [CSN_GGUF_U32] = 4, [CSN_GGUF_I32] = 4, [CSN_GGUF_F32] = 4, [CSN_GGUF_U64] = 8,
        [CSN_GGUF_I64] = 8, [CSN_GGUF_F64] = 8,
    };
    uint64_t bits = load(p, width[type]);
    switch (type) {
    case CSN_GGUF_U8:
    case CSN_GGUF_U16:
    case CSN_GGUF_U32:
    case CSN_GGUF_U64: return (number){UNSIGNED, .u = bits};
    case CSN_GGUF_I8: return (number){SIGNED, .i = (int8_t)bits};
    case CSN_GGUF_I16: return (number){SIGNED, .i = (int16_t)bits};
    case CSN_GGUF_I32: return (number){SIGNED, .i = (int32_t)bits};
    case CSN_GGUF_I64: return (number){SIGNED, .i = (int64_t)bits};
    case CSN_GGUF_F32: {
        uint32_t low = (uint32_t)bits;
        float f;
        memcpy(&f, &low, sizeof(f));
        return (number){REAL, .f = (double)f};
    }
    case CSN_GGUF_F64: {
        double f;
        memcpy(&f, &bits, sizeof(f));
        return (number){REAL, .f = f};
    }
    default: return (number){NOT_A_NUMBER, .u = 0};
    }
}

static unsigned item_bytes(csn_gguf_type type) {
    static const uint8_t bytes[CSN_GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

static bool to_i64(number v, int64_t *ret) {
    if (v.kind == SIGNED) {
        *ret = v.i;
        return true;
    }
    if (v.kind == UNSIGNED && v.u <= INT64_MAX) {
        *ret = (int64_t)v.u;
        return true;
    }
    return false;
}

static bool to_f64(number v, double *ret) {
    switch (v.kind) {
    case UNSIGNED: *ret = (double)v.u; return true;
    case SIGNED: *ret = (double)v.i; return true;
    case REAL: *ret = v.f; return true;
    default: return false;
    }
}

static bool is_number(csn_gguf_type t) {
    return t != CSN_GGUF_BOOL && t != CSN_GGUF_STRING && t != CSN_GGUF_ARRAY;
}

bool csn_gguf_u64(const csn_gguf_pair *p, uint64_t *ret) {
    if (p == NULL || !is_number(p->type)) {
        return false;
    }
    number v = number_at(p->type, p->bytes.ptr);
    if (v.kind == UNSIGNED) {
        *ret = v.u;
        return true;
    }
    if (v.kind == SIGNED && v.i >= 0) {
        *ret = (uint64_t)v.i;
        return true;
    }
    return false;
}

bool csn_gguf_i64(const csn_gguf_pair *p, int64_t *ret) {
    return p != NULL && is_number(p->type) && to_i64(number_at(p->type, p->bytes.ptr), ret);
}

bool csn_gguf_f64(const csn_gguf_pair *p, double *ret) {
    return p != NULL && is_number(p->type) && to_f64(number_at(p->type, p->bytes.ptr), ret);
}

bool csn_gguf_bool(const csn_gguf_pair *p, bool *ret) {
    if (p == NULL || p->type != CSN_GGUF_BOOL) {
        return false;
    }
    *ret = p->bytes.ptr[0] != 0;
    return true;
}

bool csn_gguf_str(const csn_gguf_pair *p, csn_str *ret) {
    if (p == NULL || p->type != CSN_GGUF_STRING) {
        return false;
    }
    *ret = p->bytes;
    return true;
}

static bool item_at(const csn_gguf_pair *p, uint64_t i, number *ret) {
    if (p == NULL || p->type != CSN_GGUF_ARRAY || !is_number(p->item) || i >= p->n) {
        return false;
    }
    *ret = number_at(p->item, p->bytes.ptr + i * item_bytes(p->item));
    return true;
}

bool csn_gguf_item_i64(const csn_gguf_pair *p, uint64_t i, int64_t *ret) {
    number v;
    return item_at(p, i, &v) && to_i64(v, ret);
}

bool csn_gguf_item_f64(const csn_gguf_pair *p, uint64_t i, double *ret) {
    number v;
    return item_at(p, i, &v) && to_f64(v, ret);
}

caisson_status csn_gguf_strings(const csn_gguf_pair *p, csn_arena *arena, csn_str **ret,
                                caisson_error *err) {
    if (p->type != CSN_GGUF_ARRAY || p->item != CSN_GGUF_STRING) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                        .what = "value must be an array of strings",
                        CSN_TEXTS(CSN_STR("string"), csn_str_from(csn_gguf_type_names[p->item])));
    }
    csn_str *out;
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)p->n, &out, err)); /* n <= bytes / 8: checked at open */
    size_t pos = 0;
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t len = load(p->bytes.ptr + pos, 8); /* lengths were walked at open */
        out[i] = csn_str_make(p->bytes.ptr + pos + 8, (size_t)len);
        pos += 8 + (size_t)len;
    }
    *ret = out;
    return CAISSON_OK;
}
