/* SPDX-License-Identifier: Apache-2.0 */
/* The name index: positions sorted into buckets by hash, and by name inside a bucket. Buckets hold
 * one or two names, so a look-up costs one hash and one compare; when a hostile file puts all names
 * into one bucket, sorting and binary search keep the cost at n log n. */
#include "format/directory.h"

#include <stdlib.h>

#include "base/hash64.h"

static uint32_t bucket_of(const csn_directory *dir, csn_str name) {
    return (uint32_t)csn_hash64(name.ptr, name.len) & (dir->n_buckets - 1);
}

/* qsort has no context argument in C11, so what is sorted carries the name. */
struct named {
    csn_str name;
    uint32_t i;
};

static int compare(const void *a, const void *b) {
    const struct named *x = a;
    const struct named *y = b;
    int c = csn_str_cmp(x->name, y->name);
    return c != 0 ? c : (x->i > y->i) - (x->i < y->i);
}

static caisson_status sort_bucket(csn_directory *dir, uint32_t first, uint32_t end,
                                  caisson_error *err) {
    enum { SMALL = 16 };
    uint32_t *at = dir->index + first;
    uint32_t n = end - first;
    if (n <= SMALL) { /* insertion sort */
        for (uint32_t k = 1; k < n; k++) {
            uint32_t i = at[k];
            uint32_t j = k;
            while (j > 0 && csn_str_cmp(dir->tensors[at[j - 1]].name, dir->tensors[i].name) > 0) {
                at[j] = at[j - 1];
                j--;
            }
            at[j] = i;
        }
    } else {
        struct named *list;
        CSN_TRY(CSN_NEW(n, &list, err));
        for (uint32_t k = 0; k < n; k++) {
            list[k] = (struct named){dir->tensors[at[k]].name, at[k]};
        }
        qsort(list, n, sizeof(*list), compare);
        for (uint32_t k = 0; k < n; k++) {
            at[k] = list[k].i;
        }
        csn_free(list);
    }
    for (uint32_t k = 1; k < n; k++) {
        if (csn_str_eq(dir->tensors[at[k - 1]].name, dir->tensors[at[k]].name)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory",
                            .tensor = dir->tensors[at[k]].name, .what = "tensor name given twice",
                            CSN_VALUES(at[k - 1], at[k]));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_directory_index(csn_directory *dir, csn_arena *arena, caisson_error *err) {
    dir->n_buckets = 1;
    while (dir->n_buckets < dir->n && dir->n_buckets < UINT32_C(1) << 31) {
        dir->n_buckets *= 2;
    }
    uint32_t *of; /* [n] bucket of each tensor */
    CSN_TRY(CSN_ARENA_NEW(arena, dir->n, &dir->index, err));
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)dir->n_buckets + 1, &dir->buckets, err));
    CSN_TRY(CSN_NEW(dir->n, &of, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        of[i] = bucket_of(dir, dir->tensors[i].name);
        dir->buckets[of[i] + 1]++;
    }
    for (uint32_t b = 0; b < dir->n_buckets; b++) {
        dir->buckets[b + 1] += dir->buckets[b];
    }
    for (uint32_t i = dir->n; i-- > 0;) { /* fills each bucket from its end: order is kept */
        dir->index[--dir->buckets[of[i] + 1]] = i;
    }
    csn_free(of);
    /* buckets[b + 1] now holds the begin of b: move down by one and close the list */
    for (uint32_t b = 0; b < dir->n_buckets; b++) {
        dir->buckets[b] = dir->buckets[b + 1];
    }
    dir->buckets[dir->n_buckets] = dir->n;
    for (uint32_t b = 0; b < dir->n_buckets; b++) {
        if (dir->buckets[b + 1] - dir->buckets[b] > 1) {
            CSN_TRY(sort_bucket(dir, dir->buckets[b], dir->buckets[b + 1], err));
        }
    }
    return CAISSON_OK;
}

const csn_tensor *csn_directory_find(const csn_directory *dir, csn_str name) {
    if (dir->n == 0) {
        return NULL;
    }
    uint32_t b = bucket_of(dir, name);
    uint32_t lo = dir->buckets[b];
    uint32_t hi = dir->buckets[b + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const csn_tensor *t = &dir->tensors[dir->index[mid]];
        int c = csn_str_cmp(t->name, name);
        if (c == 0) {
            return t;
        }
        if (c < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}
