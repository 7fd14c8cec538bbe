/* SPDX-License-Identifier: Apache-2.0 */
/* Characters as Python sees them: categories come from base/unicode.h, the exceptions from a table
 * that scripts/gen-pychar.py made. */
#include "text/template/pychar_internal.h"

#include <stddef.h>

#include "base/unicode.h"

typedef struct trange_cp {
    uint32_t first, last;
} trange_cp;
typedef struct tspecial_case {
    uint32_t cp, to[3];
} tspecial_case;

#include "text/template/pychar_tables.inc"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool in_ranges(const trange_cp *t, size_t n, uint32_t cp) {
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        if (cp > t[mid].last) {
            lo = mid + 1;
        } else {
            n = mid;
        }
    }
    return cp >= t[lo].first; /* IN has checked cp against the last range */
}
#define IN(table, cp)                                                                              \
    ((cp) <= (table)[COUNT(table) - 1].last && in_ranges((table), COUNT(table), (cp)))

static const tspecial_case *special(const tspecial_case *t, size_t n, uint32_t cp) {
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        if (t[mid].cp == cp) {
            return &t[mid];
        }
        if (cp > t[mid].cp) {
            lo = mid + 1;
        } else {
            n = mid;
        }
    }
    return NULL;
}

bool csn_py_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool csn_py_is_line_break(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool csn_py_is_name_start(uint32_t cp) {
    if (cp < 0x80) {
        return cp == '_' || ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z');
    }
    return csn_unicode_major(cp) == 'L';
}

bool csn_py_is_name_part(uint32_t cp) {
    if (cp < 0x80) {
        return csn_py_is_name_start(cp) || (cp >= '0' && cp <= '9');
    }
    unsigned c = csn_unicode_category(cp);
    return csn_unicode_major(cp) == 'L' || c == CSN_UC('N', 'd') || c == CSN_UC('M', 'n') ||
           c == CSN_UC('M', 'c');
}

bool csn_py_is_alpha(uint32_t cp) {
    return csn_unicode_major(cp) == 'L';
}
bool csn_py_is_decimal(uint32_t cp) {
    return csn_unicode_category(cp) == CSN_UC('N', 'd');
}
/* Unicode's decimal digits come in tens from 0 to 9, some tens right behind others. */
int csn_py_decimal(uint32_t cp) {
    if (!csn_py_is_decimal(cp)) {
        return -1;
    }
    uint32_t first = cp;
    while (csn_py_is_decimal(first - 1)) {
        first--;
    }
    return (int)((cp - first) % 10);
}
bool csn_py_is_digit(uint32_t cp) {
    return csn_py_is_decimal(cp) || IN(extra_digit, cp);
}
bool csn_py_is_numeric(uint32_t cp) {
    return csn_unicode_major(cp) == 'N' || IN(extra_numeric, cp);
}
bool csn_py_is_upper(uint32_t cp) {
    return csn_unicode_category(cp) == CSN_UC('L', 'u') || IN(extra_upper, cp);
}
bool csn_py_is_lower(uint32_t cp) {
    return csn_unicode_category(cp) == CSN_UC('L', 'l') || IN(extra_lower, cp);
}
bool csn_py_is_title(uint32_t cp) {
    return csn_unicode_category(cp) == CSN_UC('L', 't');
}
bool csn_py_is_cased(uint32_t cp) {
    return csn_py_is_upper(cp) || csn_py_is_lower(cp) || csn_py_is_title(cp);
}
bool csn_py_is_case_ignorable(uint32_t cp) {
    unsigned c = csn_unicode_category(cp);
    return c == CSN_UC('M', 'n') || c == CSN_UC('M', 'e') || c == CSN_UC('C', 'f') ||
           c == CSN_UC('L', 'm') || c == CSN_UC('S', 'k') || IN(extra_ignorable, cp);
}
bool csn_py_is_printable(uint32_t cp) {
    char c = csn_unicode_major(cp);
    return c != 'C' && (c != 'Z' || cp == ' ');
}

static size_t copy_special(const tspecial_case *s, uint32_t out[3]) {
    size_t n = s->to[2] != 0 ? 3 : s->to[1] != 0 ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        out[i] = s->to[i];
    }
    return n;
}

size_t csn_py_map_case(uint32_t cp, tcase which, uint32_t out[3]) {
    const tspecial_case *s = NULL;
    out[0] = cp;
    switch (which) {
    case CASE_UPPER:
        s = special(special_upper, COUNT(special_upper), cp);
        out[0] = csn_unicode_upper(cp);
        break;
    case CASE_TITLE:
        s = special(special_title, COUNT(special_title), cp);
        out[0] = csn_unicode_title(cp);
        break;
    case CASE_LOWER:
        if (cp == 0x130) { /* the only lower case of two characters */
            out[0] = 'i';
            out[1] = 0x307;
            return 2;
        }
        out[0] = csn_unicode_lower(cp);
        break;
    case CASE_FOLD:
        s = special(special_fold, COUNT(special_fold), cp);
        if (s == NULL) {
            s = special(single_fold, COUNT(single_fold), cp);
        }
        out[0] = csn_unicode_lower(cp);
        break;
    }
    return s != NULL ? copy_special(s, out) : 1;
}
