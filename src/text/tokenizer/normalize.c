/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisers: each step reads the text of the one before and writes a new one. With is_mapped the
 * text carries where its bytes came from; what the package calls alignments, as far as we need it:
 * whether a piece began at byte 0, and whether all of it came from trusted text. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"
#include "text/tokenizer/unicode_tables.h"

/* ---- mapped text ---- */

static void ntext_done(csn_ntext *t) {
    csn_buf_free(&t->text);
    csn_free(t->origin);
    csn_free(t->trust);
    *t = (csn_ntext){0};
}

void csn_ntext_clear(csn_ntext *t) {
    t->text.max = CSN_TOK_MAX_TEXT;
    t->text.len = 0;
}

static caisson_status need_map(csn_ntext *t, size_t more, caisson_error *err) {
    size_t need = t->text.len + more;
    if (need > t->cap_map) {
        size_t cap = need < 64 ? 64 : need * 2;
        CSN_TRY(CSN_GROW(&t->origin, cap, err));
        CSN_TRY(CSN_GROW(&t->trust, cap, err));
        t->cap_map = cap;
    }
    return CAISSON_OK;
}

caisson_status csn_ntext_put(csn_ntext *t, csn_str bytes, uint32_t origin, uint8_t trust,
                             caisson_error *err) {
    if (t->is_mapped) {
        CSN_TRY(need_map(t, bytes.len, err));
        for (size_t i = 0; i < bytes.len; i++) {
            t->origin[t->text.len + i] = origin;
            t->trust[t->text.len + i] = trust;
        }
    }
    return csn_buf_str(&t->text, bytes, err);
}

caisson_status csn_ntext_copy(csn_ntext *t, const csn_ntext *from, size_t lo, size_t hi,
                              caisson_error *err) {
    size_t n = hi - lo;
    if (n == 0) {
        return CAISSON_OK;
    }
    if (t->is_mapped) {
        CSN_TRY(need_map(t, n, err));
        memcpy(t->origin + t->text.len, from->origin + lo, n * sizeof(*t->origin));
        memcpy(t->trust + t->text.len, from->trust + lo, n);
    }
    return csn_buf_append(&t->text, from->text.ptr + lo, n, err);
}

static uint8_t trust_of(const csn_ntext *t, size_t lo, size_t hi) {
    if (!t->is_mapped) {
        return 0;
    }
    for (size_t i = lo; i < hi; i++) {
        if (t->trust[i] == 0) {
            return 0;
        }
    }
    return 1;
}

static uint32_t origin_of(const csn_ntext *t, size_t i) {
    return t->is_mapped && i < t->text.len ? t->origin[i] : 0;
}

static caisson_status put_cp(csn_ntext *t, uint32_t cp, uint32_t origin, uint8_t trust,
                             caisson_error *err) {
    char utf8[4];
    return csn_ntext_put(t, csn_str_make(utf8, csn_utf8_encode(cp, utf8)), origin, trust, err);
}

static size_t char_at(csn_str s, size_t i, uint32_t *cp) {
    size_t k = csn_utf8_decode(s, i, cp);
    return k == 0 ? 1 : k; /* the text is valid: 0 does not happen */
}

/* ---- steps ---- */

/* NFC and its like. Only stretches that may change are taken apart: from the character before the
 * first doubtful one to the next that is sure to stay. */
static caisson_status run_form(const csn_norm_step *step, csn_norm_scratch *s, caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    size_t done = 0;       /* written up to here */
    size_t last_inert = 0; /* start of the last character seen that stays */
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        size_t k = char_at(in, i, &cp);
        if (csn_norm_is_inert(step->form, cp) ||
            csn_cp_in(csn_cp_not_normalised, csn_cp_not_normalised_n, cp)) {
            last_inert = i;
            i += k;
            continue;
        }
        size_t lo = last_inert > done ? last_inert : done;
        uint32_t first;
        size_t first_len = char_at(in, lo, &first);
        if (csn_cp_in(csn_cp_not_normalised, csn_cp_not_normalised_n, first)) {
            lo += first_len; /* unknown to the package: nothing joins it */
        }
        size_t hi = i;
        while (hi < in.len) {
            size_t n = char_at(in, hi, &cp);
            if (csn_norm_is_inert(step->form, cp) ||
                csn_cp_in(csn_cp_not_normalised, csn_cp_not_normalised_n, cp)) {
                break;
            }
            hi += n;
        }
        CSN_TRY(csn_ntext_copy(&s->b, &s->a, done, lo, err));
        s->cps.n = 0;
        for (size_t p = lo; p < hi;) {
            p += char_at(in, p, &cp);
            CSN_TRY(csn_norm_push(step->form, &s->cps, cp, err));
        }
        CSN_TRY(csn_norm_finish(step->form, &s->cps, err));
        uint8_t trust = trust_of(&s->a, lo, hi);
        for (size_t p = 0; p < s->cps.n; p++) {
            uint32_t origin = origin_of(&s->a, p == 0 ? lo : hi - 1);
            CSN_TRY(put_cp(&s->b, (uint32_t)s->cps.cp[p], origin, trust, err));
        }
        done = hi;
        last_inert = hi;
        i = hi;
    }
    return csn_ntext_copy(&s->b, &s->a, done, in.len, err);
}

static caisson_status run_lowercase(csn_norm_scratch *s, caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        size_t k = char_at(in, i, &cp);
        uint32_t low[2];
        unsigned n = csn_cp_to_lower(cp, low);
        for (unsigned j = 0; j < n; j++) {
            CSN_TRY(put_cp(&s->b, low[j], origin_of(&s->a, i), trust_of(&s->a, i, i + k), err));
        }
        i += k;
    }
    return CAISSON_OK;
}

static caisson_status run_strip(const csn_norm_step *step, csn_norm_scratch *s,
                                caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    size_t lo = 0;
    size_t hi = in.len;
    uint32_t cp;
    while (step->strip_left && lo < in.len) {
        size_t k = char_at(in, lo, &cp);
        if (!csn_cp_is_white(cp)) {
            break;
        }
        lo += k;
    }
    while (step->strip_right && hi > lo) {
        size_t p = hi - 1;
        while (p > lo && ((unsigned char)in.ptr[p] & 0xc0) == 0x80) {
            p--;
        }
        char_at(in, p, &cp);
        if (!csn_cp_is_white(cp)) {
            break;
        }
        hi = p;
    }
    return csn_ntext_copy(&s->b, &s->a, lo, hi, err);
}

static caisson_status run_strip_accents(csn_norm_scratch *s, caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        size_t k = char_at(in, i, &cp);
        if (cp < 0x300 || !csn_cp_in(csn_cp_mark, csn_cp_mark_n, cp)) {
            CSN_TRY(csn_ntext_copy(&s->b, &s->a, i, i + k, err));
        }
        i += k;
    }
    return CAISSON_OK;
}

/* Control characters go, other blanks become U+0020 (the list is that of SentencePiece's nmt). */
static caisson_status run_nmt(csn_norm_scratch *s, caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        size_t k = char_at(in, i, &cp);
        bool drop = (cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f ||
                    cp == 0x8f || cp == 0x9f;
        bool blank = cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
                     (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 ||
                     cp == 0x2581 || cp == 0xfeff || cp == 0xfffd;
        if (blank) {
            CSN_TRY(csn_ntext_put(&s->b, CSN_STR(" "), origin_of(&s->a, i),
                                  trust_of(&s->a, i, i + k), err));
        } else if (!drop) {
            CSN_TRY(csn_ntext_copy(&s->b, &s->a, i, i + k, err));
        }
        i += k;
    }
    return CAISSON_OK;
}

static caisson_status run_replace(const csn_norm_step *step, csn_norm_scratch *s,
                                  caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    size_t done = 0;
    if (in.len == 0) { /* the package finds nothing in an empty text, not even an empty match */
        return CAISSON_OK;
    }
    csn_pattern_iter it = CSN_PATTERN_ITER;
    for (;;) {
        bool found;
        size_t start = 0;
        size_t end = 0;
        CSN_TRY(csn_pattern_next(&step->pattern, &s->regex, in, &it, &found, &start, &end, err));
        if (!found) {
            break;
        }
        CSN_TRY(csn_ntext_copy(&s->b, &s->a, done, start, err));
        /* The package says that the new text stems from the last character replaced. */
        uint32_t origin = end > 0 ? origin_of(&s->a, end - 1) : 0;
        CSN_TRY(csn_ntext_put(&s->b, step->content, origin, trust_of(&s->a, start, end), err));
        done = end;
    }
    return csn_ntext_copy(&s->b, &s->a, done, in.len, err);
}

static caisson_status run_byte_level(csn_norm_scratch *s, caisson_error *err) {
    csn_str in = csn_buf_view(&s->a.text);
    for (size_t i = 0; i < in.len; i++) {
        CSN_TRY(put_cp(&s->b, csn_bytelevel_char((uint8_t)in.ptr[i]), origin_of(&s->a, i),
                       trust_of(&s->a, i, i + 1), err));
    }
    return CAISSON_OK;
}

static caisson_status run_step(const csn_norm_step *step, csn_norm_scratch *s, caisson_error *err) {
    switch (step->kind) {
    case CSN_NORM_FORM: return run_form(step, s, err);
    case CSN_NORM_LOWERCASE: return run_lowercase(s, err);
    case CSN_NORM_STRIP: return run_strip(step, s, err);
    case CSN_NORM_STRIP_ACCENTS: return run_strip_accents(s, err);
    case CSN_NORM_NMT: return run_nmt(s, err);
    case CSN_NORM_REPLACE: return run_replace(step, s, err);
    case CSN_NORM_BYTE_LEVEL: return run_byte_level(s, err);
    case CSN_NORM_PRECOMPILED: return csn_precompiled_run(step, &s->a, &s->b, err);
    case CSN_NORM_PREPEND: break;
    }
    if (s->a.text.len > 0) {
        CSN_TRY(csn_ntext_put(&s->b, step->content, origin_of(&s->a, 0), 1, err));
    }
    return csn_ntext_copy(&s->b, &s->a, 0, s->a.text.len, err);
}

caisson_status csn_normalizer_run(const csn_normalizer *n, csn_norm_scratch *s,
                                  caisson_error *err) {
    for (size_t i = 0; i < n->n_steps; i++) {
        s->b.is_mapped = s->a.is_mapped;
        csn_ntext_clear(&s->b);
        CSN_TRY(run_step(&n->steps[i], s, err));
        csn_ntext t = s->a;
        s->a = s->b;
        s->b = t;
    }
    return CAISSON_OK;
}

void csn_norm_scratch_done(csn_norm_scratch *s) {
    ntext_done(&s->a);
    ntext_done(&s->b);
    csn_cps_free(&s->cps);
    csn_regex_scratch_free(s->regex);
}

/* ---- load ---- */

static caisson_status load_replace(csn_norm_step *step, csn_arena *arena, const csn_jval *v,
                                   caisson_error *err) {
    csn_str s;
    CSN_TRY(csn_pattern_load(&step->pattern, arena, csn_jval_get(v, "pattern"),
                             "normalizer.pattern", err));
    CSN_TRY(csn_tok_str(v, "normalizer", "content", &s, err));
    return csn_arena_str(arena, s, &step->content, err);
}

static caisson_status load_step(csn_norm_step *step, csn_arena *arena, const csn_jval *v,
                                csn_str type, caisson_error *err) {
    static const struct {
        const char *name;
        csn_norm_kind kind;
        csn_norm_form form;
    } simple[] = {{"NFC", CSN_NORM_FORM, CSN_NFC},
                  {"NFD", CSN_NORM_FORM, CSN_NFD},
                  {"NFKC", CSN_NORM_FORM, CSN_NFKC},
                  {"NFKD", CSN_NORM_FORM, CSN_NFKD},
                  {"Lowercase", CSN_NORM_LOWERCASE, CSN_NFC},
                  {"StripAccents", CSN_NORM_STRIP_ACCENTS, CSN_NFC},
                  {"Nmt", CSN_NORM_NMT, CSN_NFC},
                  {"ByteLevel", CSN_NORM_BYTE_LEVEL, CSN_NFC}};
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (csn_str_is(type, simple[i].name)) {
            step->kind = simple[i].kind;
            step->form = simple[i].form;
            return CAISSON_OK;
        }
    }
    csn_str s;
    if (csn_str_is(type, "Strip")) {
        step->kind = CSN_NORM_STRIP;
        CSN_TRY(csn_tok_bool(v, "normalizer", "strip_left", true, &step->strip_left, err));
        return csn_tok_bool(v, "normalizer", "strip_right", true, &step->strip_right, err);
    }
    if (csn_str_is(type, "Replace")) {
        step->kind = CSN_NORM_REPLACE;
        return load_replace(step, arena, v, err);
    }
    if (csn_str_is(type, "Prepend")) {
        step->kind = CSN_NORM_PREPEND;
        CSN_TRY(csn_tok_str(v, "normalizer", "prepend", &s, err));
        return csn_arena_str(arena, s, &step->content, err);
    }
    if (csn_str_is(type, "Precompiled")) {
        step->kind = CSN_NORM_PRECOMPILED;
        const csn_jval *map = csn_jval_get(v, "precompiled_charsmap");
        if (!csn_jval_str(map, &s)) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "normalizer.precompiled_charsmap",
                                "not a string", (csn_str){0});
        }
        return csn_precompiled_load(step, arena, s, err);
    }
    return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "normalizer.type",
                        "normalizer is not supported", type);
}

/* Sequences nest; they are flattened. Depth is bounded by the JSON reader. */
static caisson_status load_steps(csn_normalizer *n, csn_arena *arena, const csn_jval *v,
                                 caisson_error *err) {
    csn_str type;
    CSN_TRY(csn_tok_type(v, "normalizer", &type, err));
    if (csn_str_is(type, "Sequence")) {
        const csn_jval *list = csn_jval_get(v, "normalizers");
        if (csn_jval_kind(list) != CSN_JSON_ARRAY) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "normalizer.normalizers", "not an array",
                                (csn_str){0});
        }
        for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
            CSN_TRY(load_steps(n, arena, it.value, err));
        }
        return CAISSON_OK;
    }
    if (n->n_steps >= CSN_TOK_MAX_STEPS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "tokenizer",
                        .tensor = CSN_STR("normalizer"), .what = "too many steps",
                        CSN_VALUES(CSN_TOK_MAX_STEPS, n->n_steps + 1));
    }
    csn_norm_step *step = &n->steps[n->n_steps++];
    return load_step(step, arena, v, type, err);
}

caisson_status csn_normalizer_load(csn_normalizer *n, csn_arena *arena, const csn_jval *v,
                                   caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_ARENA_NEW(arena, CSN_TOK_MAX_STEPS, &n->steps, err));
    return load_steps(n, arena, v, err);
}

void csn_normalizer_done(csn_normalizer *n) {
    for (size_t i = 0; i < n->n_steps; i++) {
        csn_pattern_done(&n->steps[i].pattern);
    }
}
