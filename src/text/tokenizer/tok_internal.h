/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tokenizer and what they hand each other.
 *
 * The way of a text: added tokens are cut out of the raw text (added.c); what lies between is
 * normalised (normalize.c), searched for the added tokens that match normalised text, and each rest
 * is cut into pieces (pretokenize.c); the model (bpe.c, unigram.c, wordlevel.c) turns a piece into
 * ids. Positions in one text are uint32_t: a text has at most CSN_TOK_MAX_TEXT bytes.
 */
#ifndef CSN_TEXT_TOK_INTERNAL_H
#define CSN_TEXT_TOK_INTERNAL_H

#include "base/arena.h"
#include "base/bytelevel.h"
#include "base/json.h"
#include "base/regex.h"
#include "base/unicode.h"
#include "caisson/limits.h"
#include "text/tokenizer/tokenizer.h"

enum {
    CSN_TOK_MAX_TEXT = 1 << 30,       /* bytes of one text, before or after a stage */
    CSN_TOK_MAX_STEPS = 64,           /* steps of one Sequence, flattened */
    CSN_TOK_MAX_TOKEN_BYTES = 1 << 16 /* one token, pattern or replacement */
};

/* ---- json access: errors name the path ---- */
caisson_status csn_tok_fail(caisson_error *err, caisson_status code, const char *path,
                            const char *what, csn_str got);
/* Fetches a member of an object; absent and null give the default. A wrong type is an error. */
caisson_status csn_tok_bool(const csn_jval *o, const char *path, const char *key, bool dflt,
                            bool *ret, caisson_error *err);
caisson_status csn_tok_str(const csn_jval *o, const char *path, const char *key, csn_str *ret,
                           caisson_error *err); /* required */
caisson_status csn_tok_opt_str(const csn_jval *o, const char *path, const char *key, csn_str *ret,
                               bool *is_present, caisson_error *err);
/* Required, one code point. */
caisson_status csn_tok_char(const csn_jval *o, const char *path, const char *key, uint32_t *ret,
                            caisson_error *err);
caisson_status csn_tok_type(const csn_jval *o, const char *path, csn_str *ret, caisson_error *err);

/* ---- vocabulary: text <-> id ---- */
typedef struct csn_vocab {
    char *bytes; /* all texts, one after the other */
    size_t n_bytes, cap_bytes;
    struct csn_vocab_entry {
        uint32_t off; /* into bytes */
        int32_t len;  /* -1: a hole */
    } * entry;        /* [n_ids] */
    uint32_t n_ids, cap_ids;
    uint32_t n_tokens;
    uint64_t *slot; /* [mask + 1] hash << 32 | id + 1; 0 = empty */
    uint32_t mask;
} csn_vocab;

static inline uint64_t csn_tok_hash(const char *p, size_t n) {
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ n;
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
        p += 8;
        n -= 8;
    }
    uint64_t w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * UINT64_C(0xc4ceb9fe1a85ec53);
    h ^= h >> 29;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

caisson_status csn_vocab_init(csn_vocab *v, size_t n_tokens, size_t n_bytes, caisson_error *err);
/* Adds a token; a text or an id that is there already is CAISSON_E_PARSE. */
caisson_status csn_vocab_add(csn_vocab *v, csn_str text, uint32_t id, const char *path,
                             caisson_error *err);
int32_t csn_vocab_find(const csn_vocab *v, const char *p, size_t n); /* -1 = not there */
int32_t csn_vocab_find_hashed(const csn_vocab *v, const char *p, size_t n, uint64_t hash);
static inline bool csn_vocab_has(const csn_vocab *v, int64_t id) {
    return id >= 0 && id < (int64_t)v->n_ids && v->entry[id].len >= 0;
}
static inline csn_str csn_vocab_text(const csn_vocab *v, uint32_t id) {
    return csn_str_make(v->bytes + v->entry[id].off, (size_t)v->entry[id].len);
}
void csn_vocab_done(csn_vocab *v);

/* ---- models ---- */
typedef enum csn_model_kind { CSN_TOK_BPE, CSN_TOK_UNIGRAM, CSN_TOK_WORDLEVEL } csn_model_kind;

typedef struct csn_merge {
    uint32_t left, right; /* ids; an empty slot has left == UINT32_MAX */
    uint32_t rank;
    uint32_t id; /* what the two become */
} csn_merge;

typedef struct csn_trie csn_trie;

typedef struct csn_tok_model {
    csn_model_kind kind;
    csn_vocab vocab;
    int32_t unk_id; /* -1: none */
    bool byte_fallback;
    int32_t byte_id[256]; /* <0x00>..<0xFF>, -1 where absent */
    /* BPE */
    bool fuse_unk, ignore_merges, unk_is_missing;
    csn_str prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix */
    csn_merge *merges;      /* hash table, linear probing */
    uint32_t merge_mask;
    int32_t char_id[0x400]; /* ids of the first code points, -1 where absent */
    uint32_t *cut_before;   /* sorted code points; see csn_bpe_load */
    size_t n_cut_before;
    bool may_cut;
    /* Unigram */
    double *score; /* [n_ids] */
    double min_score;
    csn_trie *trie;
} csn_tok_model;

/* Room that one call of encode works in. */
typedef struct csn_bpe_symbol {
    int32_t id; /* -1: merged away */
    int32_t prev, next;
} csn_bpe_symbol;
typedef struct csn_bpe_candidate {
    uint64_t key; /* rank << 32 | position: the order of merging */
    uint32_t id;  /* what it would become: tells whether it is out of date */
} csn_bpe_candidate;
typedef struct csn_best_path {
    double score;
    int32_t from; /* -1: not reached */
    int32_t id;
} csn_best_path;

typedef struct csn_model_scratch {
    csn_bpe_symbol *symbol;
    size_t cap_symbols;
    csn_bpe_candidate *heap;
    size_t n_heap, cap_heap;
    csn_best_path *path;
    size_t cap_path;
    csn_buf text;
    const uint8_t *banned; /* [n_vocab] 1 = an id that text may not spell; or NULL */
} csn_model_scratch;

/* True if the model may not make `id` of text: a control token that its vocabulary knows, too. */
static inline bool csn_tok_is_banned(const csn_model_scratch *s, int32_t id) {
    return s->banned != NULL && id >= 0 && s->banned[id] != 0;
}
void csn_model_scratch_done(csn_model_scratch *s);

caisson_status csn_bpe_load(csn_tok_model *m, csn_arena *arena, const csn_jval *model,
                            caisson_error *err);
caisson_status csn_bpe_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                              csn_ids *out, caisson_error *err);
caisson_status csn_unigram_load(csn_tok_model *m, const csn_jval *model, caisson_error *err);
caisson_status csn_unigram_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                  csn_ids *out, caisson_error *err);
void csn_unigram_done(csn_tok_model *m);
caisson_status csn_tok_model_load(csn_tok_model *m, csn_arena *arena, const csn_jval *model,
                                  caisson_error *err);
caisson_status csn_tok_model_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                    csn_ids *out, caisson_error *err);
void csn_tok_model_done(csn_tok_model *m);

/* ---- patterns ---- */
/* A `pattern` of tokenizer.json: {"String": ...} or {"Regex": ...}. */
typedef struct csn_pattern {
    csn_str literal; /* empty: regex */
    csn_regex *regex;
} csn_pattern;
caisson_status csn_pattern_load(csn_pattern *p, csn_arena *arena, const csn_jval *v,
                                const char *path, caisson_error *err);
caisson_status csn_pattern_from_regex(csn_pattern *p, csn_str onig, const char *path,
                                      caisson_error *err);
void csn_pattern_done(csn_pattern *p);
/* The next match at or after `from`, as the package iterates: an empty match is skipped where the
 * last match ended. scratch may be made on the first use. */
typedef struct csn_pattern_iter {
    size_t from;
    size_t last_end; /* SIZE_MAX: none yet */
} csn_pattern_iter;
#define CSN_PATTERN_ITER ((csn_pattern_iter){0, SIZE_MAX})
caisson_status csn_pattern_next(const csn_pattern *p, csn_regex_scratch **scratch, csn_str text,
                                csn_pattern_iter *it, bool *found, size_t *start, size_t *end,
                                caisson_error *err);
/* Oniguruma's syntax -> PCRE2's; what means something else and cannot be said is refused. */
caisson_status csn_onig_translate(csn_str pattern, csn_buf *out, caisson_error *err);

/* ---- normalisers ---- */
/* Text on its way, with where each byte came from when somebody asks (is_mapped):
 *   origin[i]   offset in the raw segment of the character that byte i stems from
 *   trust[i]    1 if all of what it was made from is trusted */
typedef struct csn_ntext {
    csn_buf text;
    bool is_mapped;
    uint32_t *origin;
    uint8_t *trust;
    size_t cap_map;
} csn_ntext;
void csn_ntext_clear(csn_ntext *t);
caisson_status csn_ntext_put(csn_ntext *t, csn_str bytes, uint32_t origin, uint8_t trust,
                             caisson_error *err);
/* Copies bytes [lo, hi) of `from`, map and all. */
caisson_status csn_ntext_copy(csn_ntext *t, const csn_ntext *from, size_t lo, size_t hi,
                              caisson_error *err);

typedef enum csn_norm_kind {
    CSN_NORM_FORM,
    CSN_NORM_LOWERCASE,
    CSN_NORM_STRIP,
    CSN_NORM_STRIP_ACCENTS,
    CSN_NORM_REPLACE,
    CSN_NORM_PREPEND,
    CSN_NORM_PRECOMPILED,
    CSN_NORM_NMT,
    CSN_NORM_BYTE_LEVEL
} csn_norm_kind;

typedef struct csn_norm_step {
    csn_norm_kind kind;
    csn_norm_form form;
    bool strip_left, strip_right;
    csn_pattern pattern; /* REPLACE */
    csn_str content;     /* REPLACE, PREPEND */
    uint32_t *trie;      /* PRECOMPILED: the double array */
    size_t n_trie;
    csn_str charsmap; /* PRECOMPILED: replacements, each with a NUL behind it */
} csn_norm_step;

typedef struct csn_normalizer {
    csn_norm_step *steps;
    size_t n_steps;
} csn_normalizer;

typedef struct csn_norm_scratch {
    csn_ntext a, b;
    csn_cps cps;
    csn_regex_scratch *regex;
} csn_norm_scratch;

caisson_status csn_normalizer_load(csn_normalizer *n, csn_arena *arena, const csn_jval *v,
                                   caisson_error *err);
void csn_normalizer_done(csn_normalizer *n);
/* s->a holds the text and is replaced by its normal form. */
caisson_status csn_normalizer_run(const csn_normalizer *n, csn_norm_scratch *s, caisson_error *err);
void csn_norm_scratch_done(csn_norm_scratch *s);
caisson_status csn_precompiled_load(csn_norm_step *step, csn_arena *arena, csn_str base64,
                                    caisson_error *err);
caisson_status csn_precompiled_run(const csn_norm_step *step, const csn_ntext *in, csn_ntext *out,
                                   caisson_error *err);

/* Appends bytes with every ill-formed part (as the Unicode standard cuts them: maximal subparts) as
 * U+FFFD; what Python's errors="replace" and Rust's from_utf8_lossy do. */
caisson_status csn_utf8_append_lossy(csn_buf *out, csn_str bytes, caisson_error *err);

/* ---- pre-tokenisers ---- */
typedef enum csn_split_behavior {
    CSN_SPLIT_REMOVED,
    CSN_SPLIT_ISOLATED,
    CSN_SPLIT_MERGED_WITH_PREVIOUS,
    CSN_SPLIT_MERGED_WITH_NEXT,
    CSN_SPLIT_CONTIGUOUS
} csn_split_behavior;

typedef enum csn_pre_kind {
    CSN_PRE_SPLIT,
    CSN_PRE_BYTE_LEVEL,
    CSN_PRE_METASPACE,
    CSN_PRE_DIGITS,
    CSN_PRE_PUNCTUATION,
    CSN_PRE_WHITESPACE,
    CSN_PRE_WHITESPACE_SPLIT,
    CSN_PRE_CHAR_DELIMITER,
    CSN_PRE_FIXED_LENGTH
} csn_pre_kind;

typedef enum csn_prepend { CSN_PREPEND_ALWAYS, CSN_PREPEND_FIRST, CSN_PREPEND_NEVER } csn_prepend;

typedef struct csn_pre_step {
    csn_pre_kind kind;
    csn_split_behavior behavior;
    bool invert;
    csn_pattern pattern;   /* SPLIT; BYTE_LEVEL with use_regex */
    bool add_prefix_space; /* BYTE_LEVEL */
    bool use_regex;        /* BYTE_LEVEL */
    csn_prepend prepend;   /* METASPACE */
    bool split;            /* METASPACE */
    uint32_t cp;           /* METASPACE: the replacement; CHAR_DELIMITER */
    char cp_text[4];
    size_t cp_len;
    uint64_t length; /* FIXED_LENGTH, in code points */
} csn_pre_step;

typedef struct csn_pretokenizer {
    csn_pre_step *steps;
    size_t n_steps;
    bool needs_origin; /* some Metaspace prepends to the first piece alone */
} csn_pretokenizer;

typedef struct csn_piece {
    uint32_t start, end;
    bool at_origin; /* begins with what stood at byte 0 of the whole text */
} csn_piece;

typedef struct csn_pieces {
    csn_piece *at;
    size_t n, cap;
} csn_pieces;

typedef struct csn_pre_scratch {
    csn_pieces pieces, next;
    csn_buf text[2];
    csn_regex_scratch *regex;
} csn_pre_scratch;

caisson_status csn_pretokenizer_load(csn_pretokenizer *p, csn_arena *arena, const csn_jval *v,
                                     caisson_error *err);
void csn_pretokenizer_done(csn_pretokenizer *p);
/* Cuts `text` (not empty); the pieces in s->pieces are ranges of *ret_text, which is good until the
 * next call. origin: see csn_ntext, or NULL; is_first: the text stands at byte 0 of the whole. */
caisson_status csn_pretokenizer_run(const csn_pretokenizer *p, csn_pre_scratch *s, csn_str text,
                                    const uint32_t *origin, bool is_first, csn_str *ret_text,
                                    caisson_error *err);
void csn_pre_scratch_done(csn_pre_scratch *s);

/* ---- added tokens ---- */
typedef struct csn_added_token {
    csn_str content;
    csn_str matched; /* what is searched for: the content or its normal form */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} csn_added_token;

/* Byte trie: nodes [0] = root; children of a node are a sorted run of edges. */
typedef struct csn_matcher {
    uint32_t *first_edge; /* [n_nodes + 1] */
    int32_t *token;       /* [n_nodes] index of the token that ends here, -1 */
    uint8_t *label;       /* [n_edges] */
    uint32_t *target;     /* [n_edges] */
    uint32_t root[256];   /* 0 = no token starts with this byte */
    size_t n_tokens;
} csn_matcher;

typedef struct csn_added {
    csn_added_token *tokens; /* in file order */
    size_t n_tokens;
    struct {
        uint32_t *slot; /* 1 + index into tokens, 0 = empty */
        uint32_t mask;
    } by_text;
    csn_matcher raw, normalized;
    bool has_normalized_special;
} csn_added;

caisson_status csn_added_load(csn_added *a, csn_arena *arena, const csn_tok_model *model,
                              const csn_normalizer *norm, const csn_jval *v, caisson_error *err);
void csn_added_done(csn_added *a);

const csn_added_token *csn_added_by_text(const csn_added *a, csn_str content);

/* The leftmost longest allowed added token of `text` at or after *search, which moves behind it;
 * NULL when there is none. [*start, *end) takes in the blanks of lstrip (not before `floor`) and
 * rstrip. A special token is allowed where all its bytes are trusted; with trust == NULL, where
 * special_ok says so. */
const csn_added_token *csn_added_find(const csn_added *a, const csn_matcher *m, csn_str text,
                                      const uint8_t *trust, bool special_ok, size_t *search,
                                      size_t floor, size_t *start, size_t *end);

/* ---- decoders ---- */
typedef enum csn_dec_kind {
    CSN_DEC_BYTE_LEVEL,
    CSN_DEC_BYTE_FALLBACK,
    CSN_DEC_METASPACE,
    CSN_DEC_FUSE,
    CSN_DEC_STRIP,
    CSN_DEC_REPLACE,
    CSN_DEC_BPE,
    CSN_DEC_SPACES /* no decoder in the file: tokens are joined by blanks */
} csn_dec_kind;

typedef struct csn_dec_step {
    csn_dec_kind kind;
    bool in_text; /* behind Fuse or ByteLevel: what arrives are parts of one token */
    csn_pattern pattern;
    csn_str content;
    uint32_t cp; /* STRIP, METASPACE */
    uint64_t strip_start, strip_stop;
    bool drop_first; /* METASPACE: the first token's replacement becomes nothing */
} csn_dec_step;

typedef struct csn_decoder {
    csn_dec_step *steps;
    size_t n_steps;
} csn_decoder;
caisson_status csn_decoder_load(csn_decoder *d, csn_arena *arena, const csn_jval *v,
                                caisson_error *err);
void csn_decoder_done(csn_decoder *d);

/* ---- post-processor ---- */
typedef struct csn_postprocessor {
    int32_t *before, *after; /* ids */
    size_t n_before, n_after;
} csn_postprocessor;
caisson_status csn_postprocessor_load(csn_postprocessor *p, csn_arena *arena, const csn_jval *v,
                                      caisson_error *err);

struct csn_tokenizer {
    csn_arena arena;
    csn_tok_model model;
    csn_normalizer normalizer;
    csn_pretokenizer pretokenizer;
    csn_added added;
    csn_postprocessor post;
    csn_decoder decoder;
    uint32_t n_vocab;
    uint32_t *added_of; /* [n_vocab] 1 + index into added.tokens, 0 = none */
    uint8_t *skip;      /* [n_vocab] 1 = left out when special tokens are skipped */
    uint8_t *control;   /* [n_vocab] 1 = a special token of more than one character */
};

/* The text that decoders see: of an added token its matched form; false for a hole. */
bool csn_tok_decode_text(const csn_tokenizer *t, int32_t id, csn_str *ret);

#endif
