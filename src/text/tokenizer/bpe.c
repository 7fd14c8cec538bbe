/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pair encoding as the tokenizers package does it: the code points of a piece become symbols,
 * then the pair of lowest rank (leftmost on a tie) is merged until no pair has a rank.
 *
 * Short pieces are merged by looking through all pairs, long ones through a heap, so that a piece
 * of 200 kB costs n log n. A SentencePiece-style file makes one piece of a whole text: it is cut
 * between words where no merge can reach across (`cut_before`), which changes nothing but the cost.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

enum { SHORT_PIECE = 24, MERGE_BLOCK = 64 };
#define NO_MERGE UINT32_MAX
#define WORD_MARK 0x2581u /* SentencePiece's blank */

/* ---- load ---- */

static caisson_status load_vocab(csn_tok_model *m, const csn_jval *v, caisson_error *err) {
    if (csn_jval_kind(v) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.vocab", "not an object", (csn_str){0});
    }
    size_t n = csn_jval_len(v);
    CSN_TRY(csn_vocab_init(&m->vocab, n, n * 8, err));
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        uint64_t id;
        if (!csn_jval_u64(it.value, &id) || id >= CAISSON_MAX_TOKENS) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "model.vocab",
                                "token id is not a number from 0 to 2^22 - 1", it.key);
        }
        CSN_TRY(csn_vocab_add(&m->vocab, it.key, (uint32_t)id, "model.vocab", err));
    }
    return CAISSON_OK;
}

static inline uint32_t pair_hash(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 15);
}

static inline const csn_merge *find_merge(const csn_tok_model *m, int32_t left, int32_t right) {
    uint32_t i = pair_hash((uint32_t)left, (uint32_t)right) & m->merge_mask;
    for (;; i = (i + 1) & m->merge_mask) {
        const csn_merge *e = &m->merges[i];
        if (e->left == (uint32_t)left && e->right == (uint32_t)right) {
            return e;
        }
        if (e->left == NO_MERGE) {
            return NULL;
        }
    }
}

/* One merge on its way into the table: the texts of left, right and joined token. */
typedef struct pending_merge {
    csn_str text[3];
    uint64_t hash[3];
    uint32_t joined_off; /* text[2] in the block's buffer, which moves while it grows */
} pending_merge;
enum { LEFT, RIGHT, JOINED };

/* "a b" or ["a", "b"]. */
static caisson_status read_merge(const csn_jval *v, pending_merge *p, caisson_error *err) {
    csn_str s;
    if (csn_jval_str(v, &s)) {
        size_t blank = csn_str_find(s, CSN_STR(" "), 0);
        if (blank == SIZE_MAX || csn_str_find(s, CSN_STR(" "), blank + 1) != SIZE_MAX) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "model.merges",
                                "merge is not two tokens with one blank between", s);
        }
        p->text[LEFT] = csn_str_make(s.ptr, blank);
        p->text[RIGHT] = csn_str_make(s.ptr + blank + 1, s.len - blank - 1);
        return CAISSON_OK;
    }
    csn_jiter it = csn_jval_iter(v);
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || csn_jval_len(v) != 2 || !csn_jiter_next(&it) ||
        !csn_jval_str(it.value, &p->text[LEFT]) || !csn_jiter_next(&it) ||
        !csn_jval_str(it.value, &p->text[RIGHT])) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.merges", "merge is not two tokens",
                            (csn_str){0});
    }
    return CAISSON_OK;
}

static caisson_status fail_merge(caisson_error *err, csn_str token, size_t rank) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer", .tensor = CSN_STR("model.merges"),
                    .what = "merge of or into a token that is not in the vocabulary", .got = token,
                    CSN_AT(rank));
}

static void insert_merge(csn_tok_model *m, csn_merge e) {
    uint32_t i = pair_hash(e.left, e.right) & m->merge_mask;
    while (m->merges[i].left != NO_MERGE &&
           (m->merges[i].left != e.left || m->merges[i].right != e.right)) {
        i = (i + 1) & m->merge_mask;
    }
    m->merges[i] = e; /* of two equal pairs the later counts, as in the package */
}

static bool is_byte_token(csn_str s) {
    return s.len == 6 && csn_str_starts(s, CSN_STR("<0x"));
}

/* Notes which code points may stand before a word mark inside a token. Cutting is allowed only
 * where symbols are the code points themselves: a merge of <unk> or of a byte token could join what
 * stands for other text. */
static caisson_status note_cut(csn_tok_model *m, csn_cps *inside, csn_str unk,
                               const pending_merge *p, caisson_error *err) {
    uint32_t cp;
    if (is_byte_token(p->text[LEFT]) || is_byte_token(p->text[RIGHT]) ||
        csn_str_eq(p->text[LEFT], unk) || csn_str_eq(p->text[RIGHT], unk)) {
        m->may_cut = false;
    }
    if (csn_utf8_decode(p->text[RIGHT], 0, &cp) == 0 || cp != WORD_MARK || p->text[LEFT].len == 0) {
        return CAISSON_OK;
    }
    size_t i = p->text[LEFT].len - 1;
    while (i > 0 && ((unsigned char)p->text[LEFT].ptr[i] & 0xc0) == 0x80) {
        i--;
    }
    if (csn_utf8_decode(p->text[LEFT], i, &cp) == 0) {
        return CAISSON_OK;
    }
    for (size_t k = 0; k < inside->n; k++) {
        if (inside->cp[k] == (int32_t)cp) {
            return CAISSON_OK;
        }
    }
    if (inside->n >= 64) { /* such a vocabulary joins words: do not cut */
        m->may_cut = false;
        return CAISSON_OK;
    }
    return csn_cps_push(inside, (int32_t)cp, err);
}

/* Looks the parts of a block up and inserts it, in passes that fetch for the next one, so that the
 * memory accesses of many merges overlap: the 514,906 merges of Gemma 3 wait for little else. */
static caisson_status flush_merges(csn_tok_model *m, pending_merge *p, size_t n, size_t rank,
                                   const csn_buf *joined, caisson_error *err) {
    const csn_vocab *v = &m->vocab;
    csn_merge ready[MERGE_BLOCK];
    for (size_t i = 0; i < n; i++) {
        p[i].text[JOINED].ptr = joined->ptr + p[i].joined_off;
        for (int k = 0; k < 3; k++) {
            p[i].hash[k] = csn_tok_hash(p[i].text[k].ptr, p[i].text[k].len);
            __builtin_prefetch(&v->slot[(uint32_t)p[i].hash[k] & v->mask]);
        }
    }
    for (size_t i = 0; i < 3 * n; i++) {
        uint64_t s = v->slot[(uint32_t)p[i / 3].hash[i % 3] & v->mask];
        if (s != 0) {
            __builtin_prefetch(&v->entry[(uint32_t)s - 1]);
        }
    }
    for (size_t i = 0; i < 3 * n; i++) {
        uint64_t s = v->slot[(uint32_t)p[i / 3].hash[i % 3] & v->mask];
        if (s != 0) {
            __builtin_prefetch(v->bytes + v->entry[(uint32_t)s - 1].off);
        }
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id[3];
        for (int k = 0; k < 3; k++) {
            id[k] = csn_vocab_find_hashed(v, p[i].text[k].ptr, p[i].text[k].len, p[i].hash[k]);
            if (id[k] < 0) {
                return fail_merge(err, p[i].text[k], rank + i);
            }
        }
        ready[i] = (csn_merge){(uint32_t)id[LEFT], (uint32_t)id[RIGHT], (uint32_t)(rank + i),
                               (uint32_t)id[JOINED]};
        __builtin_prefetch(&m->merges[pair_hash(ready[i].left, ready[i].right) & m->merge_mask], 1);
    }
    for (size_t i = 0; i < n; i++) {
        insert_merge(m, ready[i]);
    }
    return CAISSON_OK;
}

/* Appends the joined text to the block's buffer. */
static caisson_status join(const csn_tok_model *m, pending_merge *p, csn_buf *joined,
                           caisson_error *err) {
    csn_str l = p->text[LEFT];
    csn_str r = p->text[RIGHT];
    if (r.len < m->prefix.len) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.merges",
                            "right token is shorter than continuing_subword_prefix", r);
    }
    r = csn_str_make(r.ptr + m->prefix.len, r.len - m->prefix.len);
    p->joined_off = (uint32_t)joined->len;
    p->text[JOINED].len = l.len + r.len;
    CSN_TRY(csn_buf_str(joined, l, err));
    return csn_buf_str(joined, r, err);
}

static caisson_status load_merges(csn_tok_model *m, const csn_jval *v, csn_str unk, csn_cps *inside,
                                  csn_buf *joined, caisson_error *err) {
    size_t n = csn_jval_len(v);
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || n > 4 * (size_t)CAISSON_MAX_TOKENS) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.merges", "not an array, or too long",
                            (csn_str){0});
    }
    uint32_t slots = 64;
    while (slots < n + n / 2) {
        slots *= 2;
    }
    CSN_TRY(csn_alloc_aligned((size_t)slots * sizeof(csn_merge), (void **)&m->merges, err));
    memset(m->merges, 0xff, (size_t)slots * sizeof(csn_merge)); /* left == NO_MERGE */
    m->merge_mask = slots - 1;
    pending_merge block[MERGE_BLOCK];
    size_t n_block = 0;
    size_t rank = 0;
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        pending_merge *p = &block[n_block];
        *p = (pending_merge){0};
        CSN_TRY(read_merge(it.value, p, err));
        CSN_TRY(note_cut(m, inside, unk, p, err));
        CSN_TRY(join(m, p, joined, err));
        if (++n_block == MERGE_BLOCK) {
            CSN_TRY(flush_merges(m, block, n_block, rank, joined, err));
            rank += n_block;
            n_block = 0;
            joined->len = 0;
        }
    }
    return flush_merges(m, block, n_block, rank, joined, err);
}

caisson_status csn_bpe_load(csn_tok_model *m, csn_arena *arena, const csn_jval *model,
                            caisson_error *err) {
    double dropout = 0;
    const csn_jval *d = csn_jval_get(model, "dropout");
    csn_jkind kind = csn_jval_kind(d);
    if (kind != CSN_JSON_ABSENT && kind != CSN_JSON_NULL &&
        (!csn_jval_f64(d, &dropout) || dropout != 0)) {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "model.dropout",
                            "BPE dropout draws at random", (csn_str){0});
    }
    csn_str s;
    bool has_unk;
    bool is_present;
    CSN_TRY(csn_tok_opt_str(model, "model", "continuing_subword_prefix", &s, &is_present, err));
    CSN_TRY(csn_arena_str(arena, s, &m->prefix, err));
    CSN_TRY(csn_tok_opt_str(model, "model", "end_of_word_suffix", &s, &is_present, err));
    CSN_TRY(csn_arena_str(arena, s, &m->suffix, err));
    CSN_TRY(csn_tok_bool(model, "model", "fuse_unk", false, &m->fuse_unk, err));
    CSN_TRY(csn_tok_bool(model, "model", "byte_fallback", false, &m->byte_fallback, err));
    CSN_TRY(csn_tok_bool(model, "model", "ignore_merges", false, &m->ignore_merges, err));
    CSN_TRY(load_vocab(m, csn_jval_get(model, "vocab"), err));
    CSN_TRY(csn_tok_opt_str(model, "model", "unk_token", &s, &has_unk, err));
    if (has_unk) {
        m->unk_id = csn_vocab_find(&m->vocab, s.ptr, s.len);
        m->unk_is_missing = m->unk_id < 0; /* an error when it is first needed */
    }
    csn_cps inside = {0};
    csn_buf joined = CSN_BUF_INIT((size_t)MERGE_BLOCK * 2 * CSN_TOK_MAX_TOKEN_BYTES);
    /* Without an unknown token, code points vanish: what stands before a mark is not what joins. */
    m->may_cut = m->prefix.len == 0 && m->suffix.len == 0 && has_unk;
    caisson_status status = load_merges(m, csn_jval_get(model, "merges"), s, &inside, &joined, err);
    if (status == CAISSON_OK && inside.n > 0) {
        status = csn_arena_alloc(arena, inside.n, sizeof(uint32_t), (void **)&m->cut_before, err);
        if (status == CAISSON_OK) {
            memcpy(m->cut_before, inside.cp, inside.n * sizeof(uint32_t));
            m->n_cut_before = inside.n;
        }
    }
    csn_cps_free(&inside);
    csn_buf_free(&joined);
    CSN_TRY(status);
    for (uint32_t cp = 0; cp < 0x400; cp++) {
        char utf8[4];
        size_t n = csn_utf8_encode(cp, utf8);
        m->char_id[cp] = csn_vocab_find(&m->vocab, utf8, n);
    }
    m->may_cut = m->may_cut && csn_vocab_find(&m->vocab, "\xe2\x96\x81", 3) >= 0;
    return CAISSON_OK;
}

/* ---- encode ---- */

static caisson_status need_symbols(csn_model_scratch *s, size_t n, caisson_error *err) {
    if (s->cap_symbols < n) {
        size_t cap = n < 256 ? 256 : n + n / 2;
        CSN_TRY(CSN_GROW(&s->symbol, cap, err));
        s->cap_symbols = cap;
    }
    return CAISSON_OK;
}

/* Symbols under construction: the unknown one is held back so that fuse_unk can widen it. */
typedef struct symbols {
    csn_bpe_symbol *at;
    size_t n;
    bool has_unk;
} symbols;

static void add_symbol(symbols *w, int32_t id) {
    int32_t i = (int32_t)w->n;
    w->at[w->n++] = (csn_bpe_symbol){id, i - 1, i + 1};
}

/* A code point that is no token: its bytes, or the unknown token, or nothing at all. */
static caisson_status add_unknown(const csn_tok_model *m, symbols *w, csn_str s,
                                  caisson_error *err) {
    if (m->byte_fallback) {
        bool all = true;
        for (size_t i = 0; i < s.len && all; i++) {
            all = m->byte_id[(unsigned char)s.ptr[i]] >= 0;
        }
        if (all) { /* a pending unknown token stays pending: so does the package's */
            for (size_t i = 0; i < s.len; i++) {
                add_symbol(w, m->byte_id[(unsigned char)s.ptr[i]]);
            }
            return CAISSON_OK;
        }
    }
    if (m->unk_is_missing) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.unk_token",
                            "the unknown token is not in the vocabulary", s);
    }
    if (m->unk_id >= 0) {
        if (w->has_unk && !m->fuse_unk) {
            add_symbol(w, m->unk_id);
        }
        w->has_unk = true;
    }
    return CAISSON_OK;
}

static caisson_status make_symbols(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                   symbols *w, caisson_error *err) {
    bool plain = m->prefix.len == 0 && m->suffix.len == 0;
    size_t widest = plain ? piece.len : piece.len * (m->prefix.len + 1) + m->suffix.len;
    CSN_TRY(need_symbols(s, widest + 1, err));
    w->at = s->symbol;
    for (size_t i = 0; i < piece.len;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(piece, i, &cp);
        k = k == 0 ? 1 : k;
        csn_str c = csn_str_make(piece.ptr + i, k);
        int32_t id;
        if (plain) {
            id = cp < 0x400 ? m->char_id[cp] : csn_vocab_find(&m->vocab, c.ptr, c.len);
        } else {
            s->text.len = 0;
            CSN_TRY(csn_buf_str(&s->text, i > 0 ? m->prefix : CSN_STR(""), err));
            CSN_TRY(csn_buf_str(&s->text, c, err));
            CSN_TRY(csn_buf_str(&s->text, i + k == piece.len ? m->suffix : CSN_STR(""), err));
            c = csn_buf_view(&s->text);
            id = csn_vocab_find(&m->vocab, c.ptr, c.len);
        }
        if (id >= 0) {
            if (w->has_unk) {
                add_symbol(w, m->unk_id);
                w->has_unk = false;
            }
            add_symbol(w, id);
        } else {
            CSN_TRY(add_unknown(m, w, c, err));
        }
        i += k;
    }
    if (w->has_unk) {
        add_symbol(w, m->unk_id);
    }
    return CAISSON_OK;
}

static inline const csn_merge *may_merge(const csn_tok_model *m, const csn_model_scratch *s,
                                         int32_t left, int32_t right) {
    const csn_merge *e = find_merge(m, left, right);
    return e != NULL && csn_tok_is_banned(s, (int32_t)e->id) ? NULL : e;
}

/* Merges n <= SHORT_PIECE symbols in place; returns how many are left. */
static size_t merge_short(const csn_tok_model *m, const csn_model_scratch *s, csn_bpe_symbol *w,
                          size_t n) {
    const csn_merge *pair[SHORT_PIECE]; /* of symbols i and i + 1 */
    for (size_t i = 0; i + 1 < n; i++) {
        pair[i] = may_merge(m, s, w[i].id, w[i + 1].id);
    }
    while (n > 1) {
        size_t best = n;
        uint32_t best_rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] != NULL && pair[i]->rank < best_rank) {
                best_rank = pair[i]->rank;
                best = i;
            }
        }
        if (best == n) {
            break;
        }
        w[best].id = (int32_t)pair[best]->id;
        for (size_t i = best + 1; i + 1 < n; i++) {
            w[i].id = w[i + 1].id;
            pair[i - 1] = pair[i]; /* pair[best] is set below */
        }
        n--;
        if (best > 0) {
            pair[best - 1] = may_merge(m, s, w[best - 1].id, w[best].id);
        }
        if (best + 1 < n) {
            pair[best] = may_merge(m, s, w[best].id, w[best + 1].id);
        }
    }
    return n;
}

static void heap_up(csn_bpe_candidate *h, size_t i) {
    csn_bpe_candidate c = h[i];
    while (i > 0 && h[(i - 1) / 4].key > c.key) {
        h[i] = h[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h[i] = c;
}

static void heap_down(csn_bpe_candidate *h, size_t n, size_t i) {
    csn_bpe_candidate c = h[i];
    for (;;) {
        size_t first = 4 * i + 1;
        if (first >= n) {
            break;
        }
        size_t best = first;
        for (size_t k = first + 1; k < first + 4 && k < n; k++) {
            best = h[k].key < h[best].key ? k : best;
        }
        if (h[best].key >= c.key) {
            break;
        }
        h[i] = h[best];
        i = best;
    }
    h[i] = c;
}

static void offer(const csn_tok_model *m, csn_model_scratch *s, size_t left, size_t right) {
    const csn_merge *e = may_merge(m, s, s->symbol[left].id, s->symbol[right].id);
    if (e != NULL) {
        s->heap[s->n_heap] = (csn_bpe_candidate){(uint64_t)e->rank << 32 | left, e->id};
        heap_up(s->heap, s->n_heap++);
    }
}

/* Merges n symbols of s->symbol, linked by prev and next; merged ones get the id -1. */
static caisson_status merge_long(const csn_tok_model *m, csn_model_scratch *s, size_t n,
                                 caisson_error *err) {
    /* Each merge adds at most two candidates and removes one: n + 2 n is never passed. */
    if (s->cap_heap < 3 * n) {
        CSN_TRY(CSN_GROW(&s->heap, 3 * n, err));
        s->cap_heap = 3 * n;
    }
    s->n_heap = 0;
    csn_bpe_symbol *w = s->symbol;
    for (size_t i = 0; i + 1 < n; i++) {
        offer(m, s, i, i + 1);
    }
    while (s->n_heap > 0) {
        csn_bpe_candidate top = s->heap[0];
        s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap > 0) {
            heap_down(s->heap, s->n_heap, 0);
        }
        size_t pos = (uint32_t)top.key;
        if (w[pos].id < 0 || (size_t)w[pos].next >= n) {
            continue;
        }
        size_t right = (size_t)w[pos].next;
        const csn_merge *e = may_merge(m, s, w[pos].id, w[right].id);
        if (e == NULL || e->id != top.id) {
            continue; /* one of the two has changed since */
        }
        w[pos].id = (int32_t)e->id;
        w[pos].next = w[right].next;
        w[right].id = -1;
        if ((size_t)w[pos].next < n) {
            w[w[pos].next].prev = (int32_t)pos;
            offer(m, s, pos, (size_t)w[pos].next);
        }
        if (w[pos].prev >= 0) {
            offer(m, s, (size_t)w[pos].prev, pos);
        }
    }
    return CAISSON_OK;
}

static caisson_status encode_word(const csn_tok_model *m, csn_model_scratch *s, csn_str word,
                                  csn_ids *out, caisson_error *err) {
    symbols w = {0};
    CSN_TRY(make_symbols(m, s, word, &w, err));
    if (w.n <= SHORT_PIECE) {
        w.n = merge_short(m, s, w.at, w.n);
    } else {
        CSN_TRY(merge_long(m, s, w.n, err));
    }
    for (size_t i = 0; i < w.n; i++) {
        if (w.at[i].id >= 0) {
            CSN_TRY(csn_ids_push(out, w.at[i].id, err));
        }
    }
    return CAISSON_OK;
}

/* True if no token holds the code point that ends at `end`, followed by a word mark. */
static bool may_cut_at(const csn_tok_model *m, csn_str piece, size_t end) {
    size_t i = end - 1;
    while (i > 0 && ((unsigned char)piece.ptr[i] & 0xc0) == 0x80) {
        i--;
    }
    uint32_t cp = 0;
    csn_utf8_decode(piece, i, &cp);
    for (size_t k = 0; k < m->n_cut_before; k++) {
        if (m->cut_before[k] == cp) {
            return false;
        }
    }
    return true;
}

caisson_status csn_bpe_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                              csn_ids *out, caisson_error *err) {
    if (m->ignore_merges) {
        int32_t id = csn_vocab_find(&m->vocab, piece.ptr, piece.len);
        if (id >= 0 && !csn_tok_is_banned(s, id)) {
            return csn_ids_push(out, id, err);
        }
    }
    if (!m->may_cut) {
        return encode_word(m, s, piece, out, err);
    }
    size_t from = 0;
    size_t at = 1;
    for (;;) {
        at = csn_str_find(piece, CSN_STR("\xe2\x96\x81"), at);
        if (at == SIZE_MAX) {
            break;
        }
        if (may_cut_at(m, piece, at)) {
            CSN_TRY(encode_word(m, s, csn_str_make(piece.ptr + from, at - from), out, err));
            from = at;
        }
        at += 3;
    }
    return encode_word(m, s, csn_str_make(piece.ptr + from, piece.len - from), out, err);
}
