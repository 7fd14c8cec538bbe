/* SPDX-License-Identifier: Apache-2.0 */
/* Views and the growing buffer. Growth doubles up to the maximum, so appending n bytes one by one
 * costs O(n). */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

bool csn_str_starts(csn_str s, csn_str prefix) {
    return s.len >= prefix.len && csn_str_eq(csn_str_make(s.ptr, prefix.len), prefix);
}

bool csn_str_ends(csn_str s, csn_str suffix) {
    return s.len >= suffix.len &&
           csn_str_eq(csn_str_make(s.ptr + (s.len - suffix.len), suffix.len), suffix);
}

int csn_str_cmp(csn_str a, csn_str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.ptr, b.ptr, n);
    if (c != 0) {
        return c;
    }
    return (a.len > b.len) - (a.len < b.len);
}

size_t csn_str_find(csn_str s, csn_str needle, size_t from) {
    if (needle.len == 0) {
        return from <= s.len ? from : SIZE_MAX;
    }
    while (from < s.len && s.len - from >= needle.len) {
        const char *p = memchr(s.ptr + from, needle.ptr[0], s.len - from - needle.len + 1);
        if (p == NULL) {
            return SIZE_MAX;
        }
        if (memcmp(p, needle.ptr, needle.len) == 0) {
            return (size_t)(p - s.ptr);
        }
        from = (size_t)(p - s.ptr) + 1;
    }
    return SIZE_MAX;
}

bool csn_str_to_u64(csn_str s, uint64_t *ret) {
    if (s.len == 0) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned d = (unsigned)(unsigned char)s.ptr[i] - '0';
        if (d > 9 || __builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, d, &v)) {
            return false;
        }
    }
    *ret = v;
    return true;
}

caisson_status csn_buf_reserve(csn_buf *b, size_t more, caisson_error *err) {
    if (more > b->max || b->len > b->max - more) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "text is longer than its limit",
                        CSN_VALUES(b->max, (uint64_t)b->len + more));
    }
    size_t need = b->len + more + 1; /* the NUL */
    if (need <= b->cap) {
        return CAISSON_OK;
    }
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need) {
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    }
    CSN_TRY(CSN_GROW(&b->ptr, cap, err));
    b->cap = cap;
    b->ptr[b->len] = '\0';
    return CAISSON_OK;
}

caisson_status csn_buf_append(csn_buf *b, const void *bytes, size_t n, caisson_error *err) {
    CSN_TRY(csn_buf_reserve(b, n, err));
    if (n > 0) {
        memcpy(b->ptr + b->len, bytes, n);
    }
    b->len += n;
    b->ptr[b->len] = '\0';
    return CAISSON_OK;
}

caisson_status csn_buf_str(csn_buf *b, csn_str s, caisson_error *err) {
    return csn_buf_append(b, s.ptr, s.len, err);
}

caisson_status csn_buf_char(csn_buf *b, char c, caisson_error *err) {
    return csn_buf_append(b, &c, 1, err);
}

caisson_status csn_buf_printf(csn_buf *b, caisson_error *err, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    caisson_status status = csn_buf_reserve(b, n < 0 ? 0 : (size_t)n, err);
    if (status == CAISSON_OK && n > 0) {
        vsnprintf(b->ptr + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return status;
}

void csn_buf_free(csn_buf *b) {
    csn_free(b->ptr);
    *b = CSN_BUF_INIT(b->max);
}
