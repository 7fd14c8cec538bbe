/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in the tables: ASCII by hand, the rest by binary search. */
#include "text/tokenizer/unicode_tables.h"

bool csn_cp_in(const csn_cp_range *table, size_t n, uint32_t cp) {
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (table[lo + half].hi < cp) {
            lo += half + 1;
            n -= half + 1;
        } else if (table[lo + half].lo > cp) {
            n = half;
        } else {
            return true;
        }
    }
    return false;
}

bool csn_cp_is_white(uint32_t cp) {
    if (cp < 0x80) {
        return cp == ' ' || (cp >= 9 && cp <= 13);
    }
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool csn_cp_is_numeric(uint32_t cp) {
    if (cp < 0x80) {
        return cp >= '0' && cp <= '9';
    }
    return csn_cp_in(csn_cp_numeric, csn_cp_numeric_n, cp);
}

bool csn_cp_is_punctuation(uint32_t cp) {
    if (cp < 0x80) {
        return (cp >= 0x21 && cp <= 0x2f) || (cp >= 0x3a && cp <= 0x40) ||
               (cp >= 0x5b && cp <= 0x60) || (cp >= 0x7b && cp <= 0x7e);
    }
    return csn_cp_in(csn_cp_punctuation, csn_cp_punctuation_n, cp);
}

bool csn_cp_is_word(uint32_t cp) {
    if (cp < 0x80) {
        return (cp >= '0' && cp <= '9') || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') ||
               cp == '_';
    }
    return csn_cp_in(csn_cp_word, csn_cp_word_n, cp);
}

unsigned csn_cp_to_lower(uint32_t cp, uint32_t out[2]) {
    out[0] = cp;
    if (cp < 0x80) {
        out[0] = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
        return 1;
    }
    if (cp == 0x130) { /* I with dot: i and a combining dot */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    size_t lo = 0;
    size_t n = csn_cp_lower_n;
    while (n > 0) {
        size_t half = n / 2;
        const csn_cp_run *r = &csn_cp_lower[lo + half];
        if (r->hi < cp) {
            lo += half + 1;
            n -= half + 1;
        } else if (r->lo > cp) {
            n = half;
        } else {
            if ((cp - r->lo) % r->step == 0) {
                out[0] = (uint32_t)((int32_t)cp + r->delta);
            }
            return 1;
        }
    }
    return 1;
}
