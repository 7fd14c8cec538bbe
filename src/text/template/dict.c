/* SPDX-License-Identifier: Apache-2.0 */
/* Dicts: pairs in order of insertion, and from nine pairs on an index of open addressing. */
#include "text/template/value_internal.h"

#include "base/hash64.h"

/* ---- hashing: equal values hash equally, also 1, 1.0 and true ---- */

bool csn_tv_is_hashable(tval v) {
    if (v.kind == V_TUPLE) {
        for (size_t i = 0; i < v.u.q->n; i++) {
            tval item = v.u.q->items[i];
            if (item.kind == V_TUPLE || !csn_tv_is_hashable(item)) {
                return false; /* tuples in tuples as keys: refused, so that this never recurses deep
                               */
            }
        }
        return true;
    }
    return v.kind != V_LIST && v.kind != V_DICT && v.kind != V_VIEW;
}

static uint64_t hash_scalar(tval v) {
    uint64_t h[2] = {v.kind, 0};
    double d;
    switch ((tkind)v.kind) {
    case V_STR: return csn_hash64(v.u.s->p, v.u.s->len) ^ v.u.s->len;
    case V_BOOL:
    case V_INT:
    case V_FLOAT:
        d = csn_tv_as_double(v);
        h[0] = V_FLOAT;
        d = d == 0 ? 0.0 : d; /* -0 */
        memcpy(&h[1], &d, sizeof(d));
        break;
    case V_NONE:
    case V_UNDEF: break;
    default: h[1] = (uint64_t)(uintptr_t)v.u.q; break;
    }
    uint64_t x = (h[0] * UINT64_C(0x9e3779b97f4a7c15)) ^ h[1];
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

caisson_status csn_tv_hash(trun *r, tval v, uint64_t *ret) {
    if (!csn_tv_is_hashable(v)) {
        return csn_tr_fail(r, "unhashable type: '%s'", csn_tv_type_name(v));
    }
    if (v.kind == V_STR) {
        CSN_TRY(csn_tr_charge_bytes(r, v.u.s->len));
    }
    uint64_t h = 0;
    if (v.kind == V_TUPLE) {
        for (size_t i = 0; i < v.u.q->n; i++) {
            h = h * UINT64_C(0x100000001b3) + hash_scalar(v.u.q->items[i]);
        }
    } else {
        h = hash_scalar(v);
    }
    *ret = h;
    return CAISSON_OK;
}

/* ---- dicts ---- */

enum { SMALL_DICT = 8 };

caisson_status csn_tv_dict_new(trun *r, size_t cap, tval *ret) {
    tdict *d;
    CSN_TRY(TR_NEW(r, 1, &d));
    CSN_TRY(TR_NEW(r, cap == 0 ? 4 : cap, &d->pairs));
    d->cap = cap == 0 ? 4 : cap;
    *ret = (tval){.kind = V_DICT, .u.d = d};
    return CAISSON_OK;
}

static void index_pair(tdict *d, size_t i) {
    size_t at = d->pairs[i].hash & (d->n_index - 1);
    while (d->index[at] != 0) {
        at = (at + 1) & (d->n_index - 1);
    }
    d->index[at] = (uint32_t)i + 1;
}

static caisson_status reindex(trun *r, tdict *d) {
    size_t n = 32;
    while (n < d->cap * 2) {
        n *= 2;
    }
    CSN_TRY(TR_NEW(r, n, &d->index));
    d->n_index = n;
    for (size_t i = 0; i < d->n; i++) {
        index_pair(d, i);
    }
    return CAISSON_OK;
}

/* The pair of `key`, or NULL. Each probe is a step: keys made to collide cost what they cost. */
static caisson_status lookup(trun *r, const tdict *d, tval key, uint64_t hash, tpair **ret) {
    *ret = NULL;
    size_t at = d->index != NULL ? hash & (d->n_index - 1) : 0;
    for (size_t k = 0;; k++, at = (at + 1) & (d->n_index - 1)) {
        size_t i = d->index == NULL ? k : (size_t)d->index[at] - 1;
        if (d->index == NULL ? k == d->n : d->index[at] == 0) {
            return CAISSON_OK;
        }
        if (k >= SMALL_DICT) {
            CSN_TRY(csn_tr_charge(r, 1));
        }
        if (d->pairs[i].hash == hash) {
            bool is_same;
            CSN_TRY(csn_tv_equal(r, d->pairs[i].key, key, &is_same));
            if (is_same) {
                *ret = &d->pairs[i];
                return CAISSON_OK;
            }
        }
    }
}

caisson_status csn_tv_dict_set(trun *r, tdict *d, tval key, tval value) {
    uint64_t hash;
    tpair *pair;
    CSN_TRY(csn_tv_hash(r, key, &hash));
    CSN_TRY(lookup(r, d, key, hash, &pair));
    if (pair != NULL) {
        pair->value = value;
        return CAISSON_OK;
    }
    if (d->n == d->cap) {
        tpair *grown;
        if (d->cap >= UINT32_MAX / 4) {
            return csn_tr_limit(r, "a dict of the template has too many keys", UINT32_MAX / 4,
                                d->cap);
        }
        CSN_TRY(TR_NEW(r, d->cap * 2, &grown));
        memcpy(grown, d->pairs, d->n * sizeof(*grown));
        d->pairs = grown;
        d->cap *= 2;
        d->index = NULL;
    }
    d->pairs[d->n++] = (tpair){key, value, hash};
    if (d->index != NULL) {
        index_pair(d, d->n - 1);
    } else if (d->n > SMALL_DICT) {
        return reindex(r, d);
    }
    return CAISSON_OK;
}

caisson_status csn_tv_dict_get(trun *r, const tdict *d, tval key, bool *ret_found, tval *ret) {
    uint64_t hash;
    tpair *pair;
    CSN_TRY(csn_tv_hash(r, key, &hash));
    CSN_TRY(lookup(r, d, key, hash, &pair));
    *ret_found = pair != NULL;
    if (pair != NULL) {
        *ret = pair->value;
    }
    return CAISSON_OK;
}

bool csn_tv_dict_get_str(const tdict *d, csn_str key, tval *ret) {
    tstr s = {.p = key.ptr, .len = key.len};
    tval k = {.kind = V_STR, .u.s = &s};
    uint64_t hash = hash_scalar(k);
    size_t at = d->index != NULL ? hash & (d->n_index - 1) : 0;
    for (size_t i = 0;; i++, at = (at + 1) & (d->n_index - 1)) {
        if (d->index == NULL ? i == d->n : d->index[at] == 0) {
            return false;
        }
        const tpair *p = &d->pairs[d->index == NULL ? i : (size_t)d->index[at] - 1];
        if (p->hash == hash && p->key.kind == V_STR && csn_str_eq(csn_tv_bytes(p->key), key)) {
            *ret = p->value;
            return true;
        }
    }
}

caisson_status csn_tv_dict_equal(trun *r, const tdict *a, const tdict *b, bool *ret) {
    *ret = a->n == b->n;
    for (size_t i = 0; i < a->n && *ret; i++) {
        tpair *pair;
        CSN_TRY(lookup(r, b, a->pairs[i].key, a->pairs[i].hash, &pair));
        *ret = pair != NULL;
        if (pair != NULL) {
            CSN_TRY(csn_tv_equal(r, a->pairs[i].value, pair->value, ret));
        }
    }
    return CAISSON_OK;
}
