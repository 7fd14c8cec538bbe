/* SPDX-License-Identifier: Apache-2.0 */
/* Strict UTF-8 by the table of the Unicode standard (3.9, table 3-7). */
#include "base/utf8.h"

size_t csn_utf8_decode(csn_str s, size_t i, uint32_t *ret_cp) {
    if (i >= s.len) {
        return 0;
    }
    const unsigned char *p = (const unsigned char *)s.ptr + i;
    size_t left = s.len - i;
    unsigned c = p[0];
    if (c < 0x80) {
        *ret_cp = c;
        return 1;
    }
    size_t n;
    unsigned lo = 0x80;
    unsigned hi = 0xbf; /* range of the second byte */
    uint32_t cp;
    if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
        cp = c & 0x1f;
    } else if (c >= 0xe0 && c <= 0xef) {
        n = 3;
        cp = c & 0x0f;
        lo = c == 0xe0 ? 0xa0 : lo;
        hi = c == 0xed ? 0x9f : hi;
    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4;
        cp = c & 0x07;
        lo = c == 0xf0 ? 0x90 : lo;
        hi = c == 0xf4 ? 0x8f : hi;
    } else {
        return 0;
    }
    if (left < n || p[1] < lo || p[1] > hi) {
        return 0;
    }
    cp = cp << 6 | (p[1] & 0x3f);
    for (size_t k = 2; k < n; k++) {
        if ((p[k] & 0xc0) != 0x80) {
            return 0;
        }
        cp = cp << 6 | (p[k] & 0x3f);
    }
    *ret_cp = cp;
    return n;
}

size_t csn_utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xd800 && cp <= 0xdfff) {
            return 0;
        }
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff) {
        return 0;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool csn_utf8_valid(csn_str s, size_t *ret_bad) {
    size_t i = 0;
    while (i < s.len) {
        if (s.len - i >= 8) { /* eight ASCII bytes at once */
            uint64_t w;
            memcpy(&w, s.ptr + i, 8);
            if ((w & UINT64_C(0x8080808080808080)) == 0) {
                i += 8;
                continue;
            }
        }
        uint32_t cp;
        size_t n = csn_utf8_decode(s, i, &cp);
        if (n == 0) {
            if (ret_bad != NULL) {
                *ret_bad = i;
            }
            return false;
        }
        i += n;
    }
    return true;
}

size_t csn_utf8_complete(csn_str s) {
    /* Look back at most three bytes for a lead byte whose sequence is cut by the end. */
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        unsigned c = (unsigned char)s.ptr[s.len - back];
        if ((c & 0xc0) == 0x80) {
            continue; /* a continuation byte */
        }
        size_t n = c >= 0xf0 && c <= 0xf4   ? 4
                   : c >= 0xe0 && c <= 0xef ? 3
                   : c >= 0xc2 && c <= 0xdf ? 2
                                            : 1;
        if (n <= back) {
            return s.len;
        }
        /* Could the missing bytes still make it valid? Fill them with the lowest that fit. */
        char probe[4];
        memcpy(probe, s.ptr + s.len - back, back);
        for (size_t k = back; k < n; k++) {
            probe[k] = (char)(k == 1 ? (c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80) : 0x80);
        }
        uint32_t cp;
        return csn_utf8_decode(csn_str_make(probe, n), 0, &cp) == n ? s.len - back : s.len;
    }
    return s.len;
}
