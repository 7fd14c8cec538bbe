/* SPDX-License-Identifier: Apache-2.0 */
/* No byte of a file has two meanings: envelope, sections and payloads are pairwise disjoint. The
 * blob counts by its payloads, because a grown file's blob spans older sections; what lies behind
 * its last payload must be free. Two names may share one identical payload. */
#include "format/cmf/cmf_internal.h"

#include <stdlib.h>

struct range {
    uint64_t first, end;
    uint32_t i; /* tensor; from dir.n on: envelope, sections, tail of the blob */
};

static int compare(const void *a, const void *b) {
    const struct range *x = a;
    const struct range *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return (x->i > y->i) - (x->i < y->i);
}

static const char *range_name(const csn_cmf *c, uint32_t i) {
    if (i < c->dir.n) {
        return "data";
    }
    i -= c->dir.n;
    return i < CSN_CMF_N_SECTIONS ? csn_cmf_section_names[i] : "envelope";
}

static csn_str range_tensor(const csn_cmf *c, uint32_t i) {
    return i < c->dir.n ? c->dir.tensors[i].name : (csn_str){0};
}

/* Ranges in file order; returns how many. Payloads mostly come in that order already, so they are
 * merged with the handful of sections, and sorted only when they are not. */
static size_t collect(const csn_cmf *c, struct range *list) {
    const csn_cmf_envelope *e = &c->envelope;
    size_t n = 0;
    uint64_t data_end = e->off[CSN_CMF_DATA] + e->len[CSN_CMF_DATA];
    uint64_t tail = e->off[CSN_CMF_DATA];
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        if (t->nbytes > 0) {
            list[n++] = (struct range){t->offset, t->offset + t->nbytes, i};
            tail = t->offset + t->nbytes > tail ? t->offset + t->nbytes : tail;
        }
    }
    for (uint32_t s = 0; s < CSN_CMF_N_SECTIONS; s++) {
        if (s != CSN_CMF_DATA && e->len[s] > 0) {
            list[n++] = (struct range){e->off[s], e->off[s] + e->len[s], c->dir.n + s};
        }
    }
    if (e->len[CSN_CMF_DATA] > 0 && tail < data_end) {
        list[n++] = (struct range){tail, data_end, c->dir.n + CSN_CMF_DATA};
    }
    list[n++] = (struct range){0, CSN_CMF_ENVELOPE_BYTES, c->dir.n + CSN_CMF_N_SECTIONS};
    return n;
}

/* Sorts the last few, which are sections, into a prefix that is already in order. */
static void sort_ranges(struct range *list, size_t n) {
    enum { N_SECTIONS = CSN_CMF_N_SECTIONS + 2 };
    size_t ordered = 1;
    while (ordered < n && compare(&list[ordered - 1], &list[ordered]) <= 0) {
        ordered++;
    }
    if (n - ordered > N_SECTIONS) {
        qsort(list, n, sizeof(*list), compare);
        return;
    }
    for (; ordered < n; ordered++) { /* insertion: at most N_SECTIONS moves of the list */
        struct range r = list[ordered];
        size_t lo = 0;
        size_t hi = ordered;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (compare(&list[mid], &r) <= 0) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        memmove(&list[lo + 1], &list[lo], (ordered - lo) * sizeof(r));
        list[lo] = r;
    }
}

/* Sorted ranges of everything in use. */
static caisson_status make_ranges(const csn_cmf *c, struct range **ret, size_t *ret_n,
                                  caisson_error *err) {
    CSN_TRY(CSN_NEW((size_t)c->dir.n + CSN_CMF_N_SECTIONS + 2, ret, err));
    *ret_n = collect(c, *ret);
    sort_ranges(*ret, *ret_n);
    return CAISSON_OK;
}

/* True for zeros up to the next boundary of a payload (CMF 1: alignment), and for those, however
 * many, that a streaming writer left between its head and the blob. */
static bool is_padding(const csn_cmf *c, uint64_t first, uint64_t end, const struct range *next) {
    uint8_t bytes[CSN_CMF_PAGE];
    caisson_error ignored; /* what cannot be read is not zero */
    bool is_before_blob = next->i < c->dir.n || next->i == c->dir.n + CSN_CMF_DATA;
    bool is_gap = next->first == c->envelope.off[CSN_CMF_DATA];
    if (!is_before_blob || (!is_gap && end - first >= sizeof(bytes))) {
        return false;
    }
    while (first < end) {
        size_t n = end - first < sizeof(bytes) ? (size_t)(end - first) : sizeof(bytes);
        if (csn_file_read_at(c->file, first, bytes, n, &ignored) != CAISSON_OK) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            if (bytes[i] != 0) {
                return false;
            }
        }
        first += n;
    }
    return true;
}

caisson_status csn_cmf_find_stray(const csn_cmf *c, csn_cmf_stray *ret, caisson_error *err) {
    struct range *list;
    size_t n;
    CSN_TRY(make_ranges(c, &list, &n, err));
    csn_cmf_stray s = {0};
    uint64_t used = 0; /* bytes up to here belong to something, or were counted */
    const struct range last = {c->envelope.file_bytes, c->envelope.file_bytes, UINT32_MAX};
    for (size_t k = 0; k <= n; k++) {
        const struct range *r = k < n ? &list[k] : &last;
        bool is_tail = r->i == c->dir.n + CSN_CMF_DATA; /* of the blob, behind its last payload */
        if (r->first > used && !is_padding(c, used, r->first, r)) {
            s.first = s.n_places++ == 0 ? used : s.first;
            s.nbytes += r->first - used;
        }
        if (is_tail) {
            s.first = s.n_places++ == 0 ? r->first : s.first;
            s.nbytes += r->end - r->first;
        }
        used = r->end > used ? r->end : used;
    }
    csn_free(list);
    *ret = s;
    return CAISSON_OK;
}

caisson_status csn_cmf_check_ranges(const csn_cmf *c, caisson_error *err) {
    struct range *list;
    size_t n;
    CSN_TRY(make_ranges(c, &list, &n, err));
    caisson_status status = CAISSON_OK;
    for (size_t k = 1; k < n && status == CAISSON_OK; k++) {
        const struct range *a = &list[k - 1];
        const struct range *b = &list[k];
        bool is_shared =
            a->first == b->first && a->end == b->end && a->i < c->dir.n && b->i < c->dir.n;
        if (b->first < a->end && !is_shared) {
            csn_str other = range_tensor(c, a->i);
            if (other.len == 0) {
                other = csn_str_from(range_name(c, a->i));
            }
            status = CSN_FAIL(err, CAISSON_E_BOUNDS, .section = range_name(c, b->i),
                              .tensor = range_tensor(c, b->i), CSN_AT(b->first),
                              .what = "bytes are used twice", .want = CSN_STR("a range of its own"),
                              .got = other);
        }
    }
    csn_free(list);
    return status;
}
