/* SPDX-License-Identifier: Apache-2.0 */
/* utf8proc behind one contract. Its own canonical ordering is a bubble sort, which a line of 200 kB
 * of combining marks turns into minutes: marks are ordered here, by a stable merge sort. */
#include "base/unicode.h"

#include <utf8proc.h>

#include "base/alloc.h"

static bool is_composing(csn_norm_form form) {
    return form == CSN_NFC || form == CSN_NFKC;
}

bool csn_norm_is_inert(csn_norm_form form, uint32_t cp) {
    if (cp < 0x80) {
        return true;
    }
    /* Blocks whose letters neither decompose nor combine, in any form. */
    if ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
        (cp >= 0x1f300 && cp <= 0x1f64f) || cp == 0x2010 || (cp >= 0x0431 && cp <= 0x0438) ||
        (cp >= 0x043a && cp <= 0x044f) || (cp >= 0x3041 && cp <= 0x304b)) {
        return true;
    }
    /* Precomposed letters stay as they are in NFC; none of these follows and joins a letter. */
    if (form == CSN_NFC && ((cp >= 0x80 && cp < 0x300) || (cp >= 0x400 && cp <= 0x482) ||
                            (cp >= 0xac00 && cp <= 0xd7a3) || (cp >= 0x3041 && cp <= 0x3096) ||
                            (cp >= 0x30a1 && cp <= 0x30fa) || (cp >= 0x2010 && cp <= 0x205f) ||
                            (cp >= 0x3001 && cp <= 0x3029) || (cp >= 0xff00 && cp <= 0xffef))) {
        return true;
    }
    return false;
}

caisson_status csn_cps_push(csn_cps *c, int32_t cp, caisson_error *err) {
    if (c->n == c->cap) {
        size_t cap = c->cap == 0 ? 64 : c->cap * 2;
        CSN_TRY(CSN_GROW(&c->cp, cap, err));
        c->cap = cap;
    }
    c->cp[c->n++] = cp;
    return CAISSON_OK;
}

void csn_cps_free(csn_cps *c) {
    csn_free(c->cp);
    *c = (csn_cps){0};
}

caisson_status csn_norm_push(csn_norm_form form, csn_cps *c, uint32_t cp, caisson_error *err) {
    enum { LONGEST = 32 }; /* U+FDFA decomposes into 18 code points, the longest of all */
    utf8proc_int32_t out[LONGEST];
    int boundary = 0;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == CSN_NFKC || form == CSN_NFKD) {
        options |= UTF8PROC_COMPAT;
    }
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, out, LONGEST,
                                                 (utf8proc_option_t)options, &boundary);
    if (n < 0 || n > LONGEST) {
        return csn_cps_push(c, (int32_t)cp, err);
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        CSN_TRY(csn_cps_push(c, out[i], err));
    }
    return CAISSON_OK;
}

static unsigned combining_class(int32_t cp) {
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Stable, bottom-up: pairs of runs of 1, 2, 4, ... are merged through tmp. */
static void sort_marks(int32_t *cp, size_t n, int32_t *tmp) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo + width < n; lo += 2 * width) {
            size_t mid = lo + width;
            size_t hi = mid + width < n ? mid + width : n;
            size_t a = lo;
            size_t b = mid;
            for (size_t k = lo; k < hi; k++) {
                bool left =
                    b == hi || (a < mid && combining_class(cp[a]) <= combining_class(cp[b]));
                tmp[k] = left ? cp[a++] : cp[b++];
            }
            memcpy(cp + lo, tmp + lo, (hi - lo) * sizeof(*cp));
        }
    }
}

caisson_status csn_norm_finish(csn_norm_form form, csn_cps *c, caisson_error *err) {
    int32_t *tmp = NULL;
    size_t tmp_cap = 0;
    caisson_status status = CAISSON_OK;
    for (size_t i = 0; i < c->n;) {
        if (combining_class(c->cp[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        bool ordered = true;
        while (end < c->n && combining_class(c->cp[end]) != 0) {
            ordered = ordered && combining_class(c->cp[end - 1]) <= combining_class(c->cp[end]);
            end++;
        }
        if (!ordered) {
            if (tmp_cap < end - i) {
                status = CSN_GROW(&tmp, end - i, err);
                if (status != CAISSON_OK) {
                    break;
                }
                tmp_cap = end - i;
            }
            sort_marks(c->cp + i, end - i, tmp);
        }
        i = end;
    }
    csn_free(tmp);
    if (status == CAISSON_OK && is_composing(form) && c->n > 0) {
        utf8proc_ssize_t n = utf8proc_normalize_utf32(
            c->cp, (utf8proc_ssize_t)c->n, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        c->n = n < 0 ? c->n : (size_t)n;
    }
    return status;
}

bool csn_grapheme_break(uint32_t a, uint32_t b, int32_t *state) {
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)a, (utf8proc_int32_t)b, state);
}

unsigned csn_unicode_category(uint32_t cp) {
    if (cp > 0x10ffff) {
        return CSN_UC('C', 'n');
    }
    const char *s = utf8proc_category_string((utf8proc_int32_t)cp);
    return CSN_UC(s[0], s[1]);
}

uint32_t csn_unicode_upper(uint32_t cp) {
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
}

uint32_t csn_unicode_lower(uint32_t cp) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

uint32_t csn_unicode_title(uint32_t cp) {
    return (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
}
