/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: which ids they have, and finding them in a text.
 *
 * Ids follow the package: a token that the model knows keeps the model's id, the others are
 * numbered on from the size of the vocabulary; the file's own `id` says nothing. Matching is
 * leftmost, then longest, through a byte trie that most positions leave at the root. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"
#include "text/tokenizer/unicode_tables.h"

enum { MAX_ADDED_BYTES = 1024 }; /* bounds the steps per byte of text */

/* ---- matcher ---- */

static void matcher_done(csn_matcher *m) {
    csn_free(m->first_edge);
    csn_free(m->token);
    csn_free(m->label);
    csn_free(m->target);
    *m = (csn_matcher){0};
}

typedef struct entry {
    csn_str text;
    int32_t token;
} entry;

static int compare_entries(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    int c = csn_str_cmp(x->text, y->text);
    return c != 0 ? c : (x->token > y->token) - (x->token < y->token);
}

typedef struct span {
    uint32_t lo, hi, depth; /* entries that share `depth` bytes */
} span;

/* Breadth first: the children of a node are numbered one after the other. */
static caisson_status grow_trie(csn_matcher *m, const entry *e, size_t n, span *queue,
                                caisson_error *err) {
    uint32_t n_nodes = 1;
    uint32_t n_edges = 0;
    queue[0] = (span){0, (uint32_t)n, 0};
    for (uint32_t node = 0; node < n_nodes; node++) {
        span s = queue[node];
        m->first_edge[node] = n_edges;
        m->token[node] = -1;
        if (e[s.lo].text.len == s.depth) {
            m->token[node] = e[s.lo].token;
            s.lo++;
            if (s.lo < s.hi && e[s.lo].text.len == s.depth) {
                return csn_tok_fail(err, CAISSON_E_PARSE, "added_tokens",
                                    "two added tokens match the same text", e[s.lo].text);
            }
        }
        while (s.lo < s.hi) {
            char c = e[s.lo].text.ptr[s.depth];
            uint32_t end = s.lo;
            while (end < s.hi && e[end].text.ptr[s.depth] == c) {
                end++;
            }
            m->label[n_edges] = (uint8_t)c;
            m->target[n_edges++] = n_nodes;
            queue[n_nodes++] = (span){s.lo, end, s.depth + 1};
            s.lo = end;
        }
    }
    m->first_edge[n_nodes] = n_edges;
    for (uint32_t i = 0; i < m->first_edge[1]; i++) {
        m->root[m->label[i]] = m->target[i];
    }
    return CAISSON_OK;
}

static caisson_status matcher_build(csn_matcher *m, const csn_added *a, bool normalized,
                                    caisson_error *err) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < a->n_tokens; i++) {
        if (a->tokens[i].normalized == normalized) {
            m->n_tokens++;
            n_bytes += a->tokens[i].matched.len;
        }
    }
    if (m->n_tokens == 0) {
        return CAISSON_OK;
    }
    entry *e = NULL;
    span *queue = NULL;
    caisson_status status = CSN_NEW(m->n_tokens, &e, err);
    status = status == CAISSON_OK ? CSN_GROW(&queue, n_bytes + 1, err) : status;
    status = status == CAISSON_OK ? CSN_GROW(&m->first_edge, n_bytes + 2, err) : status;
    status = status == CAISSON_OK ? CSN_GROW(&m->token, n_bytes + 1, err) : status;
    status = status == CAISSON_OK ? CSN_GROW(&m->label, n_bytes + 1, err) : status;
    status = status == CAISSON_OK ? CSN_GROW(&m->target, n_bytes + 1, err) : status;
    if (status == CAISSON_OK) {
        size_t k = 0;
        for (size_t i = 0; i < a->n_tokens; i++) {
            if (a->tokens[i].normalized == normalized) {
                e[k++] = (entry){a->tokens[i].matched, (int32_t)i};
            }
        }
        qsort(e, k, sizeof(*e), compare_entries);
        status = grow_trie(m, e, k, queue, err);
    }
    csn_free(e);
    csn_free(queue);
    return status;
}

/* The edge of `node` that c labels, or 0. */
static uint32_t follow(const csn_matcher *m, uint32_t node, uint8_t c) {
    uint32_t lo = m->first_edge[node];
    uint32_t hi = m->first_edge[node + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (m->label[mid] == c) {
            return m->target[mid];
        }
        if (m->label[mid] < c) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return 0;
}

static bool is_allowed(const csn_added_token *t, const uint8_t *trust, bool special_ok, size_t lo,
                       size_t hi) {
    if (!t->special) {
        return true;
    }
    if (trust == NULL) {
        return special_ok;
    }
    for (size_t i = lo; i < hi; i++) {
        if (trust[i] == 0) {
            return false;
        }
    }
    return true;
}

static size_t before(csn_str s, size_t i, uint32_t *cp) {
    size_t p = i - 1;
    while (p > 0 && ((unsigned char)s.ptr[p] & 0xc0) == 0x80) {
        p--;
    }
    csn_utf8_decode(s, p, cp);
    return p;
}

static bool stands_alone(csn_str s, size_t start, size_t end) {
    uint32_t cp = 0;
    if (start > 0) {
        before(s, start, &cp);
        if (csn_cp_is_word(cp)) {
            return false;
        }
    }
    return end == s.len || csn_utf8_decode(s, end, &cp) == 0 || !csn_cp_is_word(cp);
}

const csn_added_token *csn_added_find(const csn_added *a, const csn_matcher *m, csn_str text,
                                      const uint8_t *trust, bool special_ok, size_t *search,
                                      size_t floor, size_t *start, size_t *end) {
    if (m->n_tokens == 0) {
        return NULL;
    }
    for (size_t i = *search; i < text.len; i++) {
        uint32_t node = m->root[(uint8_t)text.ptr[i]];
        if (node == 0) {
            continue;
        }
        const csn_added_token *best = NULL;
        size_t best_end = 0;
        for (size_t k = i + 1; node != 0;) {
            int32_t t = m->token[node];
            if (t >= 0 && is_allowed(&a->tokens[t], trust, special_ok, i, k)) {
                best = &a->tokens[t];
                best_end = k;
            }
            node = k < text.len ? follow(m, node, (uint8_t)text.ptr[k]) : 0;
            k++;
        }
        if (best == NULL) {
            continue;
        }
        *search = best_end;
        if (best->single_word && !stands_alone(text, i, best_end)) {
            i = best_end - 1;
            continue;
        }
        *start = i;
        *end = best_end;
        uint32_t cp = 0;
        while (best->lstrip && *start > floor) {
            size_t p = before(text, *start, &cp);
            if (!csn_cp_is_white(cp)) {
                break;
            }
            *start = p;
        }
        while (best->rstrip && *end < text.len) {
            size_t n = csn_utf8_decode(text, *end, &cp);
            if (n == 0 || !csn_cp_is_white(cp)) {
                break;
            }
            *end += n;
        }
        if (best->lstrip && *end <= floor) { /* the token before it has swallowed all of it */
            i = best_end - 1;
            continue;
        }
        return best;
    }
    *search = text.len;
    return NULL;
}

/* ---- load ---- */

void csn_added_done(csn_added *a) {
    csn_free(a->by_text.slot);
    matcher_done(&a->raw);
    matcher_done(&a->normalized);
}

static int32_t find_added(const csn_added *a, csn_str content) {
    uint64_t h = csn_tok_hash(content.ptr, content.len);
    for (uint32_t i = (uint32_t)h & a->by_text.mask; a->by_text.slot[i] != 0;
         i = (i + 1) & a->by_text.mask) {
        if (csn_str_eq(a->tokens[a->by_text.slot[i] - 1].content, content)) {
            return (int32_t)a->by_text.slot[i] - 1;
        }
    }
    return -1;
}

static void note_added(csn_added *a, uint32_t index) {
    csn_str c = a->tokens[index].content;
    uint32_t i = (uint32_t)csn_tok_hash(c.ptr, c.len) & a->by_text.mask;
    while (a->by_text.slot[i] != 0) {
        i = (i + 1) & a->by_text.mask;
    }
    a->by_text.slot[i] = index + 1;
}

const csn_added_token *csn_added_by_text(const csn_added *a, csn_str content) {
    int32_t i = a->n_tokens == 0 ? -1 : find_added(a, content);
    return i < 0 ? NULL : &a->tokens[i];
}

static caisson_status read_token(csn_added_token *t, csn_arena *arena, const csn_jval *v,
                                 caisson_error *err) {
    const char *path = "added_tokens";
    if (csn_jval_kind(v) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, path, "not an object", (csn_str){0});
    }
    uint64_t id;
    if (!csn_jval_u64(csn_jval_get(v, "id"), &id) || id >= CAISSON_MAX_TOKENS) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "added_tokens.id",
                            "token id is not a number from 0 to 2^22 - 1", (csn_str){0});
    }
    csn_str content;
    CSN_TRY(csn_tok_str(v, path, "content", &content, err));
    if (content.len > MAX_ADDED_BYTES) {
        return CSN_FAIL(
            err, CAISSON_E_LIMIT, .section = "tokenizer", .tensor = CSN_STR("added_tokens.content"),
            .what = "added token is too long", CSN_VALUES(MAX_ADDED_BYTES, content.len));
    }
    CSN_TRY(csn_arena_str(arena, content, &t->content, err));
    CSN_TRY(csn_tok_bool(v, path, "single_word", false, &t->single_word, err));
    CSN_TRY(csn_tok_bool(v, path, "lstrip", false, &t->lstrip, err));
    CSN_TRY(csn_tok_bool(v, path, "rstrip", false, &t->rstrip, err));
    CSN_TRY(csn_tok_bool(v, path, "normalized", true, &t->normalized, err));
    return csn_tok_bool(v, path, "special", false, &t->special, err);
}

/* The form that is searched for in normalised text. */
static caisson_status normalize_token(csn_added_token *t, csn_arena *arena,
                                      const csn_normalizer *norm, csn_norm_scratch *s,
                                      caisson_error *err) {
    t->matched = t->content;
    if (!t->normalized || norm->n_steps == 0) {
        return CAISSON_OK;
    }
    csn_ntext_clear(&s->a);
    CSN_TRY(csn_ntext_put(&s->a, t->content, 0, 0, err));
    CSN_TRY(csn_normalizer_run(norm, s, err));
    csn_str form = csn_buf_view(&s->a.text);
    if (csn_str_eq(form, t->content)) {
        return CAISSON_OK;
    }
    if (form.len == 0 || form.len > MAX_ADDED_BYTES) {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "added_tokens.content",
                            "added token's normal form is empty or too long", t->content);
    }
    return csn_arena_str(arena, form, &t->matched, err);
}

static caisson_status load_tokens(csn_added *a, csn_arena *arena, const csn_tok_model *model,
                                  const csn_normalizer *norm, csn_norm_scratch *s,
                                  const csn_jval *v, caisson_error *err) {
    uint32_t next_id = model->vocab.n_tokens;
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        csn_added_token t = {0};
        CSN_TRY(read_token(&t, arena, it.value, err));
        if (t.content.len == 0) {
            continue; /* the package leaves empty tokens out */
        }
        int32_t known = find_added(a, t.content);
        t.id = known >= 0 ? a->tokens[known].id
                          : csn_vocab_find(&model->vocab, t.content.ptr, t.content.len);
        if (t.id < 0) {
            if (next_id >= CAISSON_MAX_TOKENS) {
                return csn_tok_fail(err, CAISSON_E_LIMIT, "added_tokens", "too many tokens",
                                    t.content);
            }
            t.id = (int32_t)next_id++;
        }
        CSN_TRY(normalize_token(&t, arena, norm, s, err));
        a->has_normalized_special = a->has_normalized_special || (t.normalized && t.special);
        if (known >= 0) { /* given again: the later properties count */
            a->tokens[known] = t;
            continue;
        }
        a->tokens[a->n_tokens] = t;
        note_added(a, (uint32_t)a->n_tokens++);
    }
    return CAISSON_OK;
}

caisson_status csn_added_load(csn_added *a, csn_arena *arena, const csn_tok_model *model,
                              const csn_normalizer *norm, const csn_jval *v, caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    size_t n = csn_jval_len(v);
    if (kind != CSN_JSON_ARRAY || n > CAISSON_MAX_TOKENS) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "added_tokens", "not an array, or too long",
                            (csn_str){0});
    }
    uint32_t slots = 16;
    while (slots < n * 2) {
        slots *= 2;
    }
    CSN_TRY(CSN_NEW(slots, &a->by_text.slot, err));
    a->by_text.mask = slots - 1;
    CSN_TRY(CSN_ARENA_NEW(arena, n, &a->tokens, err));
    csn_norm_scratch s = {0};
    caisson_status status = load_tokens(a, arena, model, norm, &s, v, err);
    csn_norm_scratch_done(&s);
    CSN_TRY(status);
    CSN_TRY(matcher_build(&a->raw, a, false, err));
    return matcher_build(&a->normalized, a, true, err);
}
