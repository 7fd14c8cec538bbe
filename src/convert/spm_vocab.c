/* SPDX-License-Identifier: Apache-2.0 */
/* Texts are hashed by a polynomial over their bytes, so that the hash of a token's rest follows
 * from those of its start and of the whole: all cuts of a long token cost one step each. */
#include "convert/spm_vocab.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"

static const uint64_t BASE = 0x9e3779b97f4a7c15u; /* odd: invertible, no zero divisor */

static uint64_t hash(csn_str s) {
    uint64_t h = 0;
    for (size_t i = 0; i < s.len; i++) {
        h = h * BASE + (uint8_t)s.ptr[i] + 1;
    }
    return h;
}

static uint32_t slot(uint64_t h, uint32_t n_index) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32) & (n_index - 1);
}

static int64_t find_hashed(const csn_spm_vocab *v, csn_str text, uint64_t h) {
    for (uint32_t at = slot(h, v->n_index); v->index[at] != 0; at = (at + 1) & (v->n_index - 1)) {
        uint32_t id = v->index[at] - 1;
        if (csn_str_eq(v->text[id], text)) {
            return id;
        }
    }
    return -1;
}

static caisson_status fail_token(uint32_t id, csn_str text, const char *what, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer.ggml.tokens", .tensor = text,
                    .what = what, .has_numbers = true, .got_u = id);
}

caisson_status csn_spm_vocab_init(csn_spm_vocab *v, csn_str *text, uint32_t n, csn_arena *arena,
                                  caisson_error *err) {
    *v = (csn_spm_vocab){.text = text, .n = n, .n_index = 2};
    while (v->n_index < (uint64_t)n * 2) {
        v->n_index *= 2;
    }
    CSN_TRY(CSN_ARENA_NEW(arena, v->n_index, &v->index, err));
    for (uint32_t i = 0; i < n; i++) {
        if (!csn_utf8_valid(text[i], NULL)) {
            return fail_token(i, text[i], "a token is not UTF-8 (number given)", err);
        }
        uint32_t at = slot(hash(text[i]), v->n_index);
        for (; v->index[at] != 0; at = (at + 1) & (v->n_index - 1)) {
            if (csn_str_eq(v->text[v->index[at] - 1], text[i])) {
                return fail_token(i, text[i], "a token is given twice (number given)", err);
            }
        }
        v->index[at] = i + 1;
    }
    return CAISSON_OK;
}

static int by_rank(const void *a, const void *b) {
    const csn_spm_vocab_merge *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->left_chars != y->left_chars) {
        return x->left_chars > y->left_chars ? -1 : 1;
    }
    if (x->right_chars != y->right_chars) {
        return x->right_chars > y->right_chars ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

typedef struct list {
    csn_spm_vocab_merge *at;
    size_t n, cap;
} list;

static caisson_status push(list *l, csn_spm_vocab_merge m, caisson_error *err) {
    if (l->n == CSN_SPM_VOCAB_MAX_MERGES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer.ggml.tokens",
                        .what = "the vocabulary implies too many merges",
                        CSN_VALUES(CSN_SPM_VOCAB_MAX_MERGES, l->n + 1));
    }
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 4096 : l->cap * 2;
        CSN_TRY(CSN_GROW(&l->at, cap, err));
        l->cap = cap;
    }
    l->at[l->n++] = m;
    return CAISSON_OK;
}

static caisson_status cut(const csn_spm_vocab *v, uint32_t id, double rank, list *l,
                          caisson_error *err) {
    csn_str t = v->text[id];
    uint64_t whole = hash(t), left = 0, power = 1; /* BASE^(bytes that are left) */
    uint32_t chars = 0, all_chars = 0;
    for (size_t i = 0; i < t.len; i++) {
        all_chars += ((uint8_t)t.ptr[i] & 0xc0) != 0x80;
        power *= BASE;
    }
    /* BASE is odd: its inverse mod 2^64 by Newton's iteration. */
    uint64_t inverse = BASE;
    for (int i = 0; i < 6; i++) {
        inverse *= 2 - BASE * inverse;
    }
    for (size_t i = 0; i + 1 < t.len; i++) {
        left = left * BASE + (uint8_t)t.ptr[i] + 1;
        power *= inverse;
        chars += ((uint8_t)t.ptr[i] & 0xc0) != 0x80;
        if (((uint8_t)t.ptr[i + 1] & 0xc0) == 0x80) {
            continue; /* inside a code point */
        }
        csn_str a = csn_str_make(t.ptr, i + 1), b = csn_str_make(t.ptr + i + 1, t.len - i - 1);
        if (find_hashed(v, a, left) >= 0 && find_hashed(v, b, whole - left * power) >= 0) {
            CSN_TRY(push(l,
                         (csn_spm_vocab_merge){rank, id, (uint32_t)i + 1, chars, all_chars - chars},
                         err));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_spm_vocab_merges(const csn_spm_vocab *v, const double *rank,
                                    csn_spm_vocab_merge **ret, size_t *ret_n, caisson_error *err) {
    list l = {0};
    for (uint32_t i = 0; i < v->n; i++) {
        caisson_status status = cut(v, i, rank[i], &l, err);
        if (status != CAISSON_OK) {
            csn_free(l.at);
            return status;
        }
    }
    if (l.n > 0) {
        qsort(l.at, l.n, sizeof(*l.at), by_rank);
    }
    *ret = l.at;
    *ret_n = l.n;
    return CAISSON_OK;
}
