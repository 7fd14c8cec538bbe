/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's compiled normalisation rules: a double-array trie from character sequences to
 * offsets into a list of replacements.
 *
 * Layout (base64 in the file): u32 trie bytes, the trie as u32 units, then the replacements, each
 * ended by a NUL. A unit holds: bit 8 "has a leaf", bits 0-7 with bit 31 the label, bits 10-30 the
 * offset (shifted by 8 more when bit 9 is set); a leaf's unit is a value in bits 0-30.
 *
 * The package walks grapheme clusters: one of fewer than six bytes is replaced whole if a prefix of
 * it is in the trie (by the shortest such prefix: so it is there), else each code point alone. */
#include "base/base64.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/tokenizer/tok_internal.h"

static caisson_status fail_map(caisson_error *err, const char *what) {
    return csn_tok_fail(err, CAISSON_E_PARSE, "normalizer.precompiled_charsmap", what,
                        (csn_str){0});
}

caisson_status csn_precompiled_load(csn_norm_step *step, csn_arena *arena, csn_str base64,
                                    caisson_error *err) {
    uint8_t *raw;
    size_t n = 0;
    CSN_TRY(CSN_ARENA_NEW(arena, base64.len / 4 * 3 + 1, &raw, err));
    if (!csn_base64_decode(base64, raw, &n) || n < 4) {
        return fail_map(err, "not base64, or too short");
    }
    uint32_t trie_bytes;
    memcpy(&trie_bytes, raw, 4);
    if (!csn_range_fits(4, trie_bytes / 4 * 4, n) || trie_bytes < 4) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "tokenizer",
                        .tensor = CSN_STR("normalizer.precompiled_charsmap"),
                        .what = "trie leaves the map", CSN_VALUES(n - 4, trie_bytes));
    }
    step->n_trie = trie_bytes / 4;
    CSN_TRY(CSN_ARENA_NEW(arena, step->n_trie, &step->trie, err));
    memcpy(step->trie, raw + 4, step->n_trie * 4);
    size_t at = 4 + step->n_trie * 4;
    step->charsmap = csn_str_make((const char *)raw + at, n - at);
    if (!csn_utf8_valid(step->charsmap, NULL)) {
        return fail_map(err, "replacements are not UTF-8");
    }
    return CAISSON_OK;
}

/* The replacement of the shortest prefix of s that the trie knows. */
static bool transform(const csn_norm_step *step, csn_str s, csn_str *ret) {
    size_t node = 0;
    uint32_t unit = step->trie[0];
    node ^= (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
    for (size_t i = 0; i < s.len && s.ptr[i] != '\0'; i++) {
        unsigned c = (unsigned char)s.ptr[i];
        node ^= c;
        if (node >= step->n_trie) {
            return false;
        }
        unit = step->trie[node];
        if ((unit & (1u << 31 | 0xff)) != c) {
            return false;
        }
        node ^= (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
        if ((unit >> 8 & 1) != 0) {
            if (node >= step->n_trie) {
                return false;
            }
            size_t at = step->trie[node] & 0x7fffffffu;
            if (at > step->charsmap.len ||
                (at < step->charsmap.len &&
                 ((unsigned char)step->charsmap.ptr[at] & 0xc0) == 0x80)) {
                return false;
            }
            size_t end = csn_str_find(step->charsmap, csn_str_make("", 1), at);
            end = end == SIZE_MAX ? step->charsmap.len : end;
            *ret = csn_str_make(step->charsmap.ptr + at, end - at);
            return true;
        }
    }
    return false;
}

static caisson_status put_part(const csn_norm_step *step, const csn_ntext *in, csn_ntext *out,
                               size_t lo, size_t hi, bool *is_done, caisson_error *err) {
    csn_str to;
    *is_done = transform(step, csn_str_make(csn_buf_view(&in->text).ptr + lo, hi - lo), &to);
    if (!*is_done) {
        return CAISSON_OK;
    }
    uint8_t trust = 1;
    for (size_t i = lo; i < hi && in->is_mapped; i++) {
        trust &= in->trust[i];
    }
    return csn_ntext_put(out, to, in->is_mapped ? in->origin[lo] : 0, trust, err);
}

caisson_status csn_precompiled_run(const csn_norm_step *step, const csn_ntext *in, csn_ntext *out,
                                   caisson_error *err) {
    enum { WHOLE_BELOW = 6 }; /* bytes */
    csn_str s = csn_buf_view(&in->text);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int32_t state = 0;
        size_t end = i + csn_utf8_decode(s, i, &cp);
        end = end == i ? i + 1 : end;
        while (end < s.len) {
            uint32_t next;
            size_t k = csn_utf8_decode(s, end, &next);
            if (k == 0 || csn_grapheme_break(cp, next, &state)) {
                break;
            }
            cp = next;
            end += k;
        }
        bool is_done = false;
        if (end - i < WHOLE_BELOW) {
            CSN_TRY(put_part(step, in, out, i, end, &is_done, err));
        }
        for (size_t p = i; p < end && !is_done;) {
            size_t k = csn_utf8_decode(s, p, &cp);
            k = k == 0 ? 1 : k;
            bool replaced;
            CSN_TRY(put_part(step, in, out, p, p + k, &replaced, err));
            if (!replaced) {
                CSN_TRY(csn_ntext_copy(out, in, p, p + k, err));
            }
            p += k;
        }
        i = end;
    }
    return CAISSON_OK;
}
