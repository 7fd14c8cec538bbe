/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenisers: each step cuts every piece of the step before into smaller ones; ByteLevel and
 * Metaspace also rewrite the text. A step sees one piece at a time and nothing around it. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"
#include "text/tokenizer/unicode_tables.h"

void csn_pre_scratch_done(csn_pre_scratch *s) {
    csn_free(s->pieces.at);
    csn_free(s->next.at);
    csn_buf_free(&s->text[0]);
    csn_buf_free(&s->text[1]);
    csn_regex_scratch_free(s->regex);
}

static caisson_status push_piece(csn_pieces *p, size_t start, size_t end, bool at_origin,
                                 caisson_error *err) {
    if (start == end) {
        return CAISSON_OK;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap == 0 ? 64 : p->cap * 2;
        CSN_TRY(CSN_GROW(&p->at, cap, err));
        p->cap = cap;
    }
    p->at[p->n++] = (csn_piece){(uint32_t)start, (uint32_t)end, at_origin};
    return CAISSON_OK;
}

/* ---- one piece: matches and gaps become pieces by the behaviour ---- */

typedef struct splitter {
    csn_pieces *out;
    csn_piece whole;
    const uint32_t *origin; /* of the text's bytes, or NULL */
    csn_split_behavior behavior;
    bool invert;
    bool has_open; /* [start, end) is not yet given out */
    size_t start, end;
    bool last_is_match;
    caisson_error *err;
} splitter;

static caisson_status give(splitter *s, size_t start, size_t end) {
    bool at_origin = s->whole.at_origin &&
                     (start == s->whole.start || (s->origin != NULL && s->origin[start] == 0));
    return push_piece(s->out, start, end, at_origin, s->err);
}

/* Gives out what is open, and opens [start, end). */
static caisson_status open_next(splitter *s, size_t start, size_t end) {
    if (s->has_open) {
        CSN_TRY(give(s, s->start, s->end));
    }
    s->has_open = true;
    s->start = start;
    s->end = end;
    return CAISSON_OK;
}

/* The next stretch of the piece, in order, without gaps. */
static caisson_status add_stretch(splitter *s, size_t start, size_t end, bool is_match) {
    is_match = is_match != s->invert;
    bool last = s->last_is_match;
    s->last_is_match = is_match;
    switch (s->behavior) {
    case CSN_SPLIT_REMOVED: return is_match ? CAISSON_OK : give(s, start, end);
    case CSN_SPLIT_ISOLATED: return give(s, start, end);
    case CSN_SPLIT_CONTIGUOUS:
        if (s->has_open && is_match == last) {
            s->end = end;
            return CAISSON_OK;
        }
        return open_next(s, start, end);
    case CSN_SPLIT_MERGED_WITH_PREVIOUS:
        if (s->has_open && is_match && !last) {
            s->end = end;
            return CAISSON_OK;
        }
        return open_next(s, start, end);
    case CSN_SPLIT_MERGED_WITH_NEXT: break;
    }
    if (s->has_open && last && !is_match) { /* a match takes the gap behind it along */
        s->has_open = false;
        return give(s, s->start, end);
    }
    return open_next(s, start, end);
}

static caisson_status end_splitter(splitter *s) {
    return s->has_open ? give(s, s->start, s->end) : CAISSON_OK;
}

static caisson_status split_by_pattern(splitter *s, const csn_pattern *p,
                                       csn_regex_scratch **scratch, csn_str text) {
    csn_str piece = csn_str_make(text.ptr + s->whole.start, s->whole.end - s->whole.start);
    size_t base = s->whole.start;
    size_t done = 0;
    csn_pattern_iter it = CSN_PATTERN_ITER;
    for (;;) {
        bool found;
        size_t start = 0;
        size_t end = 0;
        CSN_TRY(csn_pattern_next(p, scratch, piece, &it, &found, &start, &end, s->err));
        if (!found) {
            break;
        }
        if (start != done) {
            CSN_TRY(add_stretch(s, base + done, base + start, false));
        }
        CSN_TRY(add_stretch(s, base + start, base + end, true));
        done = end;
    }
    if (done != piece.len) {
        CSN_TRY(add_stretch(s, base + done, s->whole.end, false));
    }
    return end_splitter(s);
}

/* Every code point of the set is a match of its own. */
static caisson_status split_by_set(splitter *s, csn_str text, const csn_pre_step *step) {
    size_t done = s->whole.start;
    for (size_t i = s->whole.start; i < s->whole.end;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(text, i, &cp);
        k = k == 0 ? 1 : k;
        bool is_in = step->kind == CSN_PRE_DIGITS           ? csn_cp_is_numeric(cp)
                     : step->kind == CSN_PRE_PUNCTUATION    ? csn_cp_is_punctuation(cp)
                     : step->kind == CSN_PRE_CHAR_DELIMITER ? cp == step->cp
                                                            : csn_cp_is_white(cp);
        if (is_in) {
            if (done < i) {
                CSN_TRY(add_stretch(s, done, i, false));
            }
            CSN_TRY(add_stretch(s, i, i + k, true));
            done = i + k;
        }
        i += k;
    }
    if (done < s->whole.end) {
        CSN_TRY(add_stretch(s, done, s->whole.end, false));
    }
    return end_splitter(s);
}

/* \w+|[^\w\s]+ : runs of word characters and runs of neither word nor blank; blanks go. */
static caisson_status split_words(splitter *s, csn_str text) {
    enum { BLANK, WORD, OTHER } last = BLANK;
    size_t start = s->whole.start;
    for (size_t i = s->whole.start; i < s->whole.end;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(text, i, &cp);
        k = k == 0 ? 1 : k;
        int kind = csn_cp_is_word(cp) ? WORD : csn_cp_is_white(cp) ? BLANK : OTHER;
        if (kind != (int)last) {
            if (last != BLANK) {
                CSN_TRY(give(s, start, i));
            }
            start = i;
            last = kind == WORD ? WORD : kind == OTHER ? OTHER : BLANK;
        }
        i += k;
    }
    return last != BLANK ? give(s, start, s->whole.end) : CAISSON_OK;
}

static caisson_status split_by_length(splitter *s, csn_str text, uint64_t length) {
    size_t start = s->whole.start;
    uint64_t n = 0;
    for (size_t i = s->whole.start; i < s->whole.end;) {
        uint32_t cp;
        size_t k = csn_utf8_decode(text, i, &cp);
        i += k == 0 ? 1 : k;
        if (++n == length) {
            CSN_TRY(give(s, start, i));
            start = i;
            n = 0;
        }
    }
    return give(s, start, s->whole.end);
}

/* ---- all pieces through one step ---- */

typedef struct run {
    csn_pre_scratch *s;
    csn_str text;
    const uint32_t *origin;
    unsigned turn; /* which of s->text is written next */
    caisson_error *err;
} run;

static void swap_pieces(csn_pre_scratch *s) {
    csn_pieces t = s->pieces;
    s->pieces = s->next;
    s->next = t;
    s->next.n = 0;
}

static caisson_status split_all(run *r, const csn_pre_step *step, const csn_pattern *pattern,
                                csn_split_behavior behavior) {
    csn_pre_scratch *s = r->s;
    s->next.n = 0;
    for (size_t i = 0; i < s->pieces.n; i++) {
        splitter sp = {.out = &s->next,
                       .whole = s->pieces.at[i],
                       .origin = r->origin,
                       .behavior = behavior,
                       .invert = step->invert,
                       .err = r->err};
        switch (step->kind) {
        case CSN_PRE_SPLIT:
        case CSN_PRE_BYTE_LEVEL:
        case CSN_PRE_METASPACE: CSN_TRY(split_by_pattern(&sp, pattern, &s->regex, r->text)); break;
        case CSN_PRE_DIGITS:
        case CSN_PRE_PUNCTUATION:
        case CSN_PRE_CHAR_DELIMITER:
        case CSN_PRE_WHITESPACE_SPLIT: CSN_TRY(split_by_set(&sp, r->text, step)); break;
        case CSN_PRE_WHITESPACE: CSN_TRY(split_words(&sp, r->text)); break;
        case CSN_PRE_FIXED_LENGTH: CSN_TRY(split_by_length(&sp, r->text, step->length)); break;
        }
    }
    swap_pieces(s);
    return CAISSON_OK;
}

/* Writes the pieces one after the other into a fresh text by `rewrite`. */
static caisson_status rewrite_all(run *r, const csn_pre_step *step,
                                  caisson_status (*rewrite)(const csn_pre_step *step, csn_str piece,
                                                            bool at_origin, csn_buf *out,
                                                            caisson_error *err)) {
    csn_pre_scratch *s = r->s;
    csn_buf *out = &s->text[r->turn];
    r->turn ^= 1;
    out->max = CSN_TOK_MAX_TEXT;
    out->len = 0;
    for (size_t i = 0; i < s->pieces.n; i++) {
        csn_piece *p = &s->pieces.at[i];
        size_t start = out->len;
        csn_str piece = csn_str_make(r->text.ptr + p->start, p->end - p->start);
        CSN_TRY(rewrite(step, piece, p->at_origin, out, r->err));
        p->start = (uint32_t)start;
        p->end = (uint32_t)out->len;
    }
    r->text = csn_buf_view(out);
    r->origin = NULL;
    return CAISSON_OK;
}

static caisson_status add_space(const csn_pre_step *step, csn_str piece, bool at_origin,
                                csn_buf *out, caisson_error *err) {
    (void)step;
    (void)at_origin;
    if (piece.ptr[0] != ' ') {
        CSN_TRY(csn_buf_char(out, ' ', err));
    }
    return csn_buf_str(out, piece, err);
}

static caisson_status to_bytes(const csn_pre_step *step, csn_str piece, bool at_origin,
                               csn_buf *out, caisson_error *err) {
    (void)step;
    (void)at_origin;
    return csn_bytelevel_append(out, piece, err);
}

static caisson_status to_meta(const csn_pre_step *step, csn_str piece, bool at_origin, csn_buf *out,
                              caisson_error *err) {
    csn_str mark = csn_str_make(step->cp_text, step->cp_len);
    bool wants =
        step->prepend == CSN_PREPEND_ALWAYS || (step->prepend == CSN_PREPEND_FIRST && at_origin);
    if (wants && piece.ptr[0] != ' ' && !csn_str_starts(piece, mark)) {
        CSN_TRY(csn_buf_str(out, mark, err));
    }
    for (size_t i = 0; i < piece.len;) {
        const char *blank = memchr(piece.ptr + i, ' ', piece.len - i);
        size_t end = blank == NULL ? piece.len : (size_t)(blank - piece.ptr);
        CSN_TRY(csn_buf_append(out, piece.ptr + i, end - i, err));
        if (blank != NULL) {
            CSN_TRY(csn_buf_str(out, mark, err));
            end++;
        }
        i = end;
    }
    return CAISSON_OK;
}

static caisson_status run_step(run *r, const csn_pre_step *step) {
    switch (step->kind) {
    case CSN_PRE_BYTE_LEVEL:
        if (step->add_prefix_space) {
            CSN_TRY(rewrite_all(r, step, add_space));
        }
        if (step->use_regex) {
            CSN_TRY(split_all(r, step, &step->pattern, CSN_SPLIT_ISOLATED));
        }
        return rewrite_all(r, step, to_bytes);
    case CSN_PRE_METASPACE: {
        CSN_TRY(rewrite_all(r, step, to_meta));
        csn_pattern mark = {.literal = csn_str_make(step->cp_text, step->cp_len)};
        return step->split ? split_all(r, step, &mark, CSN_SPLIT_MERGED_WITH_NEXT) : CAISSON_OK;
    }
    default: return split_all(r, step, &step->pattern, step->behavior);
    }
}

caisson_status csn_pretokenizer_run(const csn_pretokenizer *p, csn_pre_scratch *s, csn_str text,
                                    const uint32_t *origin, bool is_first, csn_str *ret_text,
                                    caisson_error *err) {
    run r = {.s = s, .text = text, .origin = origin, .err = err};
    s->pieces.n = 0;
    CSN_TRY(push_piece(&s->pieces, 0, text.len, is_first, err));
    for (size_t i = 0; i < p->n_steps; i++) {
        CSN_TRY(run_step(&r, &p->steps[i]));
    }
    *ret_text = r.text;
    return CAISSON_OK;
}

/* ---- load ---- */

/* The split of GPT-2, which ByteLevel's use_regex stands for. */
static const char gpt2_split[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                                 "|\\s+(?!\\S)|\\s+";

static caisson_status read_behavior(const csn_jval *v, bool is_required, csn_split_behavior *ret,
                                    caisson_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    csn_str s;
    bool is_present;
    CSN_TRY(csn_tok_opt_str(v, "pre_tokenizer", "behavior", &s, &is_present, err));
    if (!is_present && !is_required) {
        *ret = CSN_SPLIT_ISOLATED;
        return CAISSON_OK;
    }
    for (int i = 0; i <= CSN_SPLIT_CONTIGUOUS; i++) {
        if (csn_str_is(s, names[i])) {
            *ret = (csn_split_behavior)i;
            return CAISSON_OK;
        }
    }
    return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "pre_tokenizer.behavior",
                        "unknown split behaviour", s);
}

static caisson_status load_metaspace(csn_pre_step *step, const csn_jval *v, caisson_error *err) {
    csn_str scheme;
    bool is_present;
    bool add_prefix;
    CSN_TRY(csn_tok_char(v, "pre_tokenizer", "replacement", &step->cp, err));
    CSN_TRY(csn_tok_opt_str(v, "pre_tokenizer", "prepend_scheme", &scheme, &is_present, err));
    CSN_TRY(csn_tok_bool(v, "pre_tokenizer", "split", true, &step->split, err));
    CSN_TRY(csn_tok_bool(v, "pre_tokenizer", "add_prefix_space", true, &add_prefix, err));
    step->cp_len = csn_utf8_encode(step->cp, step->cp_text);
    if (!is_present || csn_str_is(scheme, "always")) {
        step->prepend = CSN_PREPEND_ALWAYS;
    } else if (csn_str_is(scheme, "first")) {
        step->prepend = CSN_PREPEND_FIRST;
    } else if (csn_str_is(scheme, "never")) {
        step->prepend = CSN_PREPEND_NEVER;
    } else {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "pre_tokenizer.prepend_scheme",
                            "unknown prepend scheme", scheme);
    }
    if (!add_prefix) {
        if (is_present && step->prepend != CSN_PREPEND_NEVER) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "pre_tokenizer.add_prefix_space",
                                "add_prefix_space contradicts prepend_scheme", scheme);
        }
        step->prepend = CSN_PREPEND_NEVER;
    }
    return CAISSON_OK;
}

static caisson_status load_byte_level(csn_pre_step *step, const csn_jval *v, caisson_error *err) {
    CSN_TRY(
        csn_tok_bool(v, "pre_tokenizer", "add_prefix_space", true, &step->add_prefix_space, err));
    CSN_TRY(csn_tok_bool(v, "pre_tokenizer", "use_regex", true, &step->use_regex, err));
    return step->use_regex ? csn_pattern_from_regex(&step->pattern, csn_str_from(gpt2_split),
                                                    "pre_tokenizer", err)
                           : CAISSON_OK;
}

static caisson_status load_fixed_length(csn_pre_step *step, const csn_jval *v, caisson_error *err) {
    const csn_jval *n = csn_jval_get(v, "length");
    step->length = 5; /* the package's default */
    if (n != NULL && (!csn_jval_u64(n, &step->length) || step->length == 0)) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "pre_tokenizer.length", "not a positive number",
                            (csn_str){0});
    }
    return CAISSON_OK;
}

static caisson_status load_step(csn_pre_step *step, csn_arena *arena, const csn_jval *v,
                                csn_str type, caisson_error *err) {
    bool individual;
    if (csn_str_is(type, "Split")) {
        step->kind = CSN_PRE_SPLIT;
        CSN_TRY(read_behavior(v, true, &step->behavior, err));
        CSN_TRY(csn_tok_bool(v, "pre_tokenizer", "invert", false, &step->invert, err));
        return csn_pattern_load(&step->pattern, arena, csn_jval_get(v, "pattern"),
                                "pre_tokenizer.pattern", err);
    }
    if (csn_str_is(type, "ByteLevel")) {
        step->kind = CSN_PRE_BYTE_LEVEL;
        return load_byte_level(step, v, err);
    }
    if (csn_str_is(type, "Metaspace")) {
        step->kind = CSN_PRE_METASPACE;
        return load_metaspace(step, v, err);
    }
    if (csn_str_is(type, "Digits")) {
        step->kind = CSN_PRE_DIGITS;
        CSN_TRY(csn_tok_bool(v, "pre_tokenizer", "individual_digits", false, &individual, err));
        step->behavior = individual ? CSN_SPLIT_ISOLATED : CSN_SPLIT_CONTIGUOUS;
        return CAISSON_OK;
    }
    if (csn_str_is(type, "Punctuation")) {
        step->kind = CSN_PRE_PUNCTUATION;
        return read_behavior(v, false, &step->behavior, err);
    }
    if (csn_str_is(type, "Whitespace")) {
        step->kind = CSN_PRE_WHITESPACE;
        return CAISSON_OK;
    }
    if (csn_str_is(type, "WhitespaceSplit")) {
        step->kind = CSN_PRE_WHITESPACE_SPLIT;
        step->behavior = CSN_SPLIT_REMOVED;
        return CAISSON_OK;
    }
    if (csn_str_is(type, "CharDelimiterSplit") || csn_str_is(type, "Delimiter")) {
        step->kind = CSN_PRE_CHAR_DELIMITER;
        step->behavior = CSN_SPLIT_REMOVED;
        return csn_tok_char(v, "pre_tokenizer", "delimiter", &step->cp, err);
    }
    if (csn_str_is(type, "FixedLength")) {
        step->kind = CSN_PRE_FIXED_LENGTH;
        return load_fixed_length(step, v, err);
    }
    return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "pre_tokenizer.type",
                        "pre-tokenizer is not supported", type);
}

static caisson_status add_step(csn_pretokenizer *p, csn_pre_step **ret, caisson_error *err) {
    if (p->n_steps >= CSN_TOK_MAX_STEPS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer",
                        .tensor = CSN_STR("pre_tokenizer"), .what = "too many steps",
                        CSN_VALUES(CSN_TOK_MAX_STEPS, p->n_steps + 1));
    }
    *ret = &p->steps[p->n_steps++];
    return CAISSON_OK;
}

static caisson_status load_steps(csn_pretokenizer *p, csn_arena *arena, const csn_jval *v,
                                 caisson_error *err) {
    csn_str type;
    csn_pre_step *step;
    CSN_TRY(csn_tok_type(v, "pre_tokenizer", &type, err));
    if (csn_str_is(type, "Sequence")) {
        const csn_jval *list = csn_jval_get(v, "pretokenizers");
        if (csn_jval_kind(list) != CSN_JSON_ARRAY) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "pre_tokenizer.pretokenizers", "not an array",
                                (csn_str){0});
        }
        for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
            CSN_TRY(load_steps(p, arena, it.value, err));
        }
        return CAISSON_OK;
    }
    CSN_TRY(add_step(p, &step, err));
    if (csn_str_is(type, "BertPreTokenizer")) { /* blanks go, then punctuation stands alone */
        step->kind = CSN_PRE_WHITESPACE_SPLIT;
        step->behavior = CSN_SPLIT_REMOVED;
        CSN_TRY(add_step(p, &step, err));
        step->kind = CSN_PRE_PUNCTUATION;
        step->behavior = CSN_SPLIT_ISOLATED;
        return CAISSON_OK;
    }
    return load_step(step, arena, v, type, err);
}

caisson_status csn_pretokenizer_load(csn_pretokenizer *p, csn_arena *arena, const csn_jval *v,
                                     caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(arena, CSN_TOK_MAX_STEPS, &p->steps, err));
    CSN_TRY(load_steps(p, arena, v, err));
    for (size_t i = 0; i < p->n_steps; i++) {
        p->needs_origin = p->needs_origin || p->steps[i].prepend == CSN_PREPEND_FIRST;
    }
    return CAISSON_OK;
}

void csn_pretokenizer_done(csn_pretokenizer *p) {
    for (size_t i = 0; i < p->n_steps; i++) {
        csn_pattern_done(&p->steps[i].pattern);
    }
}
