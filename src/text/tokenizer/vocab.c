/* SPDX-License-Identifier: Apache-2.0 */
/* Token texts in one block, found by an open-addressing table. No memory a token: a vocabulary of
 * 262,144 tokens is loaded in the time that one allocation each would take. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/tokenizer/tok_internal.h"

caisson_status csn_vocab_init(csn_vocab *v, size_t n_tokens, size_t n_bytes, caisson_error *err) {
    if (n_tokens > CAISSON_MAX_TOKENS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer",
                        .tensor = CSN_STR("model.vocab"), .what = "too many tokens",
                        CSN_VALUES(CAISSON_MAX_TOKENS, n_tokens));
    }
    uint32_t slots = 64;
    while (slots < n_tokens * 2) {
        slots *= 2;
    }
    /* Aligned memory comes in huge pages: the table is read at random. */
    CSN_TRY(csn_alloc_aligned(slots * sizeof(*v->slot), (void **)&v->slot, err));
    memset(v->slot, 0, slots * sizeof(*v->slot));
    v->mask = slots - 1;
    v->cap_ids = n_tokens < 16 ? 16 : (uint32_t)n_tokens;
    CSN_TRY(CSN_GROW(&v->entry, v->cap_ids, err));
    v->cap_bytes = n_bytes < 64 ? 64 : n_bytes;
    return CSN_GROW(&v->bytes, v->cap_bytes, err);
}

int32_t csn_vocab_find_hashed(const csn_vocab *v, const char *p, size_t n, uint64_t hash) {
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & v->mask; v->slot[i] != 0; i = (i + 1) & v->mask) {
        uint64_t s = v->slot[i];
        uint32_t id = (uint32_t)s - 1;
        if ((uint32_t)(s >> 32) == tag && (size_t)v->entry[id].len == n &&
            memcmp(v->bytes + v->entry[id].off, p, n) == 0) {
            return (int32_t)id;
        }
    }
    return -1;
}

int32_t csn_vocab_find(const csn_vocab *v, const char *p, size_t n) {
    return csn_vocab_find_hashed(v, p, n, csn_tok_hash(p, n));
}

static caisson_status grow_ids(csn_vocab *v, uint32_t id, caisson_error *err) {
    if (id >= v->cap_ids) {
        uint32_t cap = v->cap_ids * 2 > id + 1 ? v->cap_ids * 2 : id + 1;
        CSN_TRY(CSN_GROW(&v->entry, cap, err));
        v->cap_ids = cap;
    }
    while (v->n_ids <= id) {
        v->entry[v->n_ids++] = (struct csn_vocab_entry){0, -1};
    }
    return CAISSON_OK;
}

caisson_status csn_vocab_add(csn_vocab *v, csn_str text, uint32_t id, const char *path,
                             caisson_error *err) {
    if (text.len > CSN_TOK_MAX_TOKEN_BYTES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer", .tensor = csn_str_from(path),
                        .what = "token is too long", CSN_VALUES(CSN_TOK_MAX_TOKEN_BYTES, text.len));
    }
    if (id >= CAISSON_MAX_TOKENS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer", .tensor = csn_str_from(path),
                        .what = "token id is too large", CSN_VALUES(CAISSON_MAX_TOKENS - 1, id));
    }
    CSN_TRY(grow_ids(v, id, err));
    if (v->entry[id].len >= 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer", .tensor = csn_str_from(path),
                        .what = "two tokens have one id", CSN_TEXTS(csn_vocab_text(v, id), text));
    }
    uint64_t hash = csn_tok_hash(text.ptr, text.len);
    uint32_t tag = (uint32_t)(hash >> 32);
    uint32_t i = (uint32_t)hash & v->mask;
    for (; v->slot[i] != 0; i = (i + 1) & v->mask) {
        uint32_t other = (uint32_t)v->slot[i] - 1;
        if ((uint32_t)(v->slot[i] >> 32) == tag && csn_str_eq(csn_vocab_text(v, other), text)) {
            return csn_tok_fail(err, CAISSON_E_PARSE, path, "token is given twice", text);
        }
    }
    if (v->cap_bytes - v->n_bytes < text.len) {
        size_t cap = v->cap_bytes * 2 + text.len;
        if (cap > UINT32_MAX) {
            return csn_fail_nomem(err, cap);
        }
        CSN_TRY(CSN_GROW(&v->bytes, cap, err));
        v->cap_bytes = cap;
    }
    if (text.len > 0) {
        memcpy(v->bytes + v->n_bytes, text.ptr, text.len);
    }
    v->entry[id] = (struct csn_vocab_entry){(uint32_t)v->n_bytes, (int32_t)text.len};
    v->n_bytes += text.len;
    v->n_tokens++;
    v->slot[i] = (uint64_t)tag << 32 | (id + 1);
    return CAISSON_OK;
}

void csn_vocab_done(csn_vocab *v) {
    csn_free(v->bytes);
    csn_free(v->entry);
    csn_free_aligned(v->slot);
    *v = (csn_vocab){0};
}
