/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram: the segmentation of a piece with the largest sum of scores, found left to right.
 *
 * Ties go to the path that was found first (ends are reached by rising start, then by rising token
 * length), and sums are formed in that order, in double: as the package does. */
#include <math.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

/* Byte trie as a hash table of edges: (node, byte) -> node. */
typedef struct edge {
    uint32_t from; /* node << 8 | byte, UINT32_MAX = empty */
    uint32_t to;
} edge;

struct csn_trie {
    edge *edges;
    uint32_t mask;
    int32_t *token; /* [n_nodes] id that ends here, -1 */
    uint32_t n_nodes;
};

static inline edge *find_edge(const csn_trie *t, uint32_t node, uint8_t byte) {
    uint32_t key = node << 8 | byte;
    uint32_t i = (key * 0x9e3779b1u) ^ (key >> 11);
    for (i &= t->mask; t->edges[i].from != UINT32_MAX && t->edges[i].from != key;) {
        i = (i + 1) & t->mask;
    }
    return &t->edges[i];
}

static void trie_free(csn_trie *t) {
    if (t != NULL) {
        csn_free(t->edges);
        csn_free(t->token);
        csn_free(t);
    }
}

static caisson_status trie_build(csn_tok_model *m, caisson_error *err) {
    enum { MAX_NODES = 1 << 23 }; /* a node number and a byte share 32 bits, with one value free */
    const csn_vocab *v = &m->vocab;
    if (v->n_bytes > MAX_NODES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer",
                        .tensor = CSN_STR("model.vocab"), .what = "vocabulary is too long",
                        CSN_VALUES(MAX_NODES, v->n_bytes));
    }
    CSN_TRY(CSN_NEW(1, &m->trie, err));
    csn_trie *t = m->trie;
    uint32_t slots = 64;
    while (slots < v->n_bytes * 2) {
        slots *= 2;
    }
    CSN_TRY(CSN_GROW(&t->edges, slots, err));
    memset(t->edges, 0xff, (size_t)slots * sizeof(edge));
    t->mask = slots - 1;
    CSN_TRY(CSN_GROW(&t->token, v->n_bytes + 1, err));
    t->token[0] = -1;
    t->n_nodes = 1;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        csn_str s = csn_vocab_text(v, id);
        uint32_t node = 0;
        for (size_t i = 0; i < s.len; i++) {
            edge *e = find_edge(t, node, (uint8_t)s.ptr[i]);
            if (e->from == UINT32_MAX) {
                e->from = node << 8 | (uint8_t)s.ptr[i];
                e->to = t->n_nodes;
                t->token[t->n_nodes++] = -1;
            }
            node = e->to;
        }
        t->token[node] = s.len > 0 ? (int32_t)id : -1;
    }
    return CAISSON_OK;
}

/* The package reads numbers with serde_json's quick way: the digits as one integer, then one
 * division or multiplication by a power of ten, which may end one unit beside the nearest double.
 * Equal sums of scores must stay equal, so we read them the same way. */
static double read_score(double nearest) {
    char text[CSN_MAX_DIGITS];
    int exponent;
    int n = csn_number_digits(nearest, false, text, &exponent);
    uint64_t digits = 0;
    for (int i = 0; i < n; i++) {
        digits = digits * 10 + (uint64_t)(text[i] - '0');
    }
    exponent -= n - 1;
    if (exponent < -308 || exponent > 308) {
        return nearest;
    }
    /* A power of ten up to 10^22 is exact; larger ones are the nearest double, as in a table. */
    double power = 1;
    int steps = exponent < 0 ? -exponent : exponent;
    if (steps > 22) {
        power = csn_number_scaled("1", 1, steps);
    } else {
        for (int i = 0; i < steps; i++) {
            power *= 10;
        }
    }
    double value = exponent < 0 ? (double)digits / power : (double)digits * power;
    return signbit(nearest) ? -value : value;
}

static caisson_status load_pair(csn_tok_model *m, const csn_jval *v, uint32_t id,
                                caisson_error *err) {
    csn_jiter it = csn_jval_iter(v);
    csn_str text;
    double score;
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || csn_jval_len(v) != 2 || !csn_jiter_next(&it) ||
        !csn_jval_str(it.value, &text) || !csn_jiter_next(&it) || !csn_jval_f64(it.value, &score) ||
        !isfinite(score)) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer",
                        .tensor = CSN_STR("model.vocab"), .what = "entry is not [token, score]",
                        CSN_AT(id));
    }
    CSN_TRY(csn_vocab_add(&m->vocab, text, id, "model.vocab", err));
    m->score[id] = csn_jval_kind(it.value) == CSN_JSON_REAL ? read_score(score) : score;
    m->min_score = m->score[id] < m->min_score ? m->score[id] : m->min_score;
    return CAISSON_OK;
}

caisson_status csn_unigram_load(csn_tok_model *m, const csn_jval *model, caisson_error *err) {
    const csn_jval *vocab = csn_jval_get(model, "vocab");
    size_t n = csn_jval_len(vocab);
    if (csn_jval_kind(vocab) != CSN_JSON_ARRAY || n == 0) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.vocab", "not an array, or empty",
                            (csn_str){0});
    }
    CSN_TRY(csn_tok_bool(model, "model", "byte_fallback", false, &m->byte_fallback, err));
    CSN_TRY(csn_vocab_init(&m->vocab, n, n * 8, err));
    CSN_TRY(CSN_NEW(n, &m->score, err));
    m->min_score = HUGE_VAL;
    uint32_t id = 0;
    for (csn_jiter it = csn_jval_iter(vocab); csn_jiter_next(&it); id++) {
        CSN_TRY(load_pair(m, it.value, id, err));
    }
    const csn_jval *unk = csn_jval_get(model, "unk_id");
    csn_jkind kind = csn_jval_kind(unk);
    if (kind != CSN_JSON_ABSENT && kind != CSN_JSON_NULL) {
        uint64_t u;
        if (!csn_jval_u64(unk, &u) || u >= n) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "tokenizer",
                            .tensor = CSN_STR("model.unk_id"),
                            .what = "unk_id is not an index of the vocabulary",
                            CSN_VALUES(n - 1, csn_jval_u64(unk, &u) ? u : 0));
        }
        m->unk_id = (int32_t)u;
    }
    return trie_build(m, err);
}

static void reach(csn_best_path *p, double score, size_t from, int32_t id) {
    if (p->from < 0 || score > p->score) {
        *p = (csn_best_path){score, (int32_t)from, id};
    }
}

static caisson_status fail_unknown(csn_str piece, caisson_error *err) {
    return csn_tok_fail(err, CAISSON_E_PARSE, "model.unk_id",
                        "text holds an unknown character and the file has no unk_id", piece);
}

/* s->path[i]: the best way to reach byte i. */
static caisson_status find_paths(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                 caisson_error *err) {
    if (s->cap_path < piece.len + 1) {
        CSN_TRY(CSN_GROW(&s->path, piece.len + 1, err));
        s->cap_path = piece.len + 1;
    }
    csn_best_path *path = s->path;
    for (size_t i = 0; i <= piece.len; i++) {
        path[i] = (csn_best_path){0, -1, 0};
    }
    const double unk_penalty = 10;
    const double unk_score = m->min_score - unk_penalty;
    for (size_t at = 0; at < piece.len;) {
        uint32_t cp;
        size_t width = csn_utf8_decode(piece, at, &cp);
        width = width == 0 ? 1 : width;
        bool has_single = false;
        uint32_t node = 0;
        for (size_t i = at; i < piece.len; i++) {
            const edge *e = find_edge(m->trie, node, (uint8_t)piece.ptr[i]);
            if (e->from == UINT32_MAX) {
                break;
            }
            node = e->to;
            int32_t id = m->trie->token[node];
            if (id >= 0 && !csn_tok_is_banned(s, id)) {
                reach(&path[i + 1], m->score[id] + path[at].score, at, id);
                has_single = has_single || i + 1 - at == width;
            }
        }
        if (!has_single) {
            csn_best_path *p = &path[at + width];
            double score = unk_score + path[at].score;
            if (p->from < 0 || score > p->score) {
                if (m->unk_id < 0) {
                    return fail_unknown(piece, err);
                }
                reach(p, score, at, m->unk_id);
            }
        }
        at += width;
    }
    return CAISSON_OK;
}

/* A run of text as the package emits it: by its text, so that a fused unknown run that spells a
 * token becomes that token; else byte tokens; else the unknown token. */
static caisson_status emit_run(const csn_tok_model *m, const csn_model_scratch *s, csn_str run,
                               csn_ids *out, caisson_error *err) {
    int32_t id = csn_vocab_find(&m->vocab, run.ptr, run.len);
    if (id >= 0 && !csn_tok_is_banned(s, id)) {
        return csn_ids_push(out, id, err);
    }
    bool all = m->byte_fallback;
    for (size_t i = 0; i < run.len && all; i++) {
        all = m->byte_id[(unsigned char)run.ptr[i]] >= 0;
    }
    if (!all) {
        return m->unk_id < 0 ? fail_unknown(run, err) : csn_ids_push(out, m->unk_id, err);
    }
    for (size_t i = 0; i < run.len; i++) {
        CSN_TRY(csn_ids_push(out, m->byte_id[(unsigned char)run.ptr[i]], err));
    }
    return CAISSON_OK;
}

caisson_status csn_unigram_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                  csn_ids *out, caisson_error *err) {
    CSN_TRY(find_paths(m, s, piece, err));
    /* Turn the chain round: path[i].id of a start becomes the end of its token. */
    csn_best_path *path = s->path;
    int32_t end = (int32_t)piece.len;
    int32_t next = -1;
    while (end > 0) {
        int32_t from = path[end].from;
        path[end].from = next; /* the end of the token after this one */
        next = end;
        end = from;
    }
    size_t from = 0;
    for (int32_t at = next; at >= 0;) {
        int32_t stop = at;
        bool is_unk = path[at].id == m->unk_id;
        while (is_unk && path[stop].from >= 0 && path[path[stop].from].id == m->unk_id) {
            stop = path[stop].from; /* unknown neighbours are fused */
        }
        CSN_TRY(emit_run(m, s, csn_str_make(piece.ptr + from, (size_t)stop - from), out, err));
        from = (size_t)stop;
        at = path[stop].from;
    }
    return CAISSON_OK;
}

void csn_unigram_done(csn_tok_model *m) {
    trie_free(m->trie);
    csn_free(m->score);
}
