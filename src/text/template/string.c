/* SPDX-License-Identifier: Apache-2.0 */
/* Strings with marks, and the buffer they are built in. A buffer has no array of marks until bytes
 * of both kinds meet in it, so text of one origin costs nothing extra. */
#include "text/template/value_internal.h"

#include "base/size.h"
#include "caisson/limits.h"

static caisson_status reserve(trun *r, tbuf *b, size_t more) {
    if (more > CAISSON_MAX_TEMPLATE_OUTPUT || b->len > CAISSON_MAX_TEMPLATE_OUTPUT - more) {
        return csn_tr_limit(r, "a text of the template is too long", CAISSON_MAX_TEMPLATE_OUTPUT,
                            (uint64_t)b->len + more);
    }
    size_t need = b->len + more;
    if (need <= b->cap) {
        return CAISSON_OK;
    }
    size_t cap = b->cap < 32 ? 32 : b->cap * 2;
    cap = cap < need ? need : cap;
    char *p;
    uint8_t *marks = NULL;
    CSN_TRY(TR_NEW(r, cap, &p));
    if (b->marks != NULL) {
        CSN_TRY(TR_NEW(r, cap, &marks));
        memcpy(marks, b->marks, b->len);
    }
    if (b->len > 0) {
        memcpy(p, b->p, b->len);
    }
    b->p = p;
    b->marks = marks;
    b->cap = cap;
    return CAISSON_OK;
}

/* Makes room for n bytes whose marks will be `is_trusted`, or of both kinds. */
static caisson_status prepare(trun *r, tbuf *b, size_t n, bool is_mixed, bool is_trusted) {
    CSN_TRY(csn_tr_charge_bytes(r, n));
    CSN_TRY(reserve(r, b, n));
    if (b->marks == NULL && (is_mixed || (b->len > 0 && b->is_trusted != is_trusted))) {
        CSN_TRY(TR_NEW(r, b->cap, &b->marks));
        memset(b->marks, b->is_trusted, b->len);
    } else if (b->len == 0) {
        b->is_trusted = is_trusted;
    }
    return CAISSON_OK;
}

caisson_status csn_tb_put(trun *r, tbuf *b, const char *p, size_t n, bool is_trusted) {
    if (n == 0) {
        return CAISSON_OK;
    }
    CSN_TRY(prepare(r, b, n, false, is_trusted));
    memcpy(b->p + b->len, p, n);
    if (b->marks != NULL) {
        memset(b->marks + b->len, is_trusted, n);
    }
    b->len += n;
    return CAISSON_OK;
}

caisson_status csn_tb_put_sub(trun *r, tbuf *b, const tstr *s, size_t off, size_t n) {
    if (n == 0) {
        return CAISSON_OK;
    }
    if (s->marks == NULL) {
        return csn_tb_put(r, b, s->p + off, n, s->is_trusted);
    }
    CSN_TRY(prepare(r, b, n, true, false));
    memcpy(b->p + b->len, s->p + off, n);
    memcpy(b->marks + b->len, s->marks + off, n);
    b->len += n;
    return CAISSON_OK;
}

caisson_status csn_tb_put_str(trun *r, tbuf *b, const tstr *s) {
    return csn_tb_put_sub(r, b, s, 0, s->len);
}

caisson_status csn_tb_fill(trun *r, tbuf *b, const tstr *unit, int64_t n) {
    uint64_t total;
    if (n <= 0 || unit->len == 0) {
        return CAISSON_OK;
    }
    if (!csn_mul((uint64_t)n, unit->len, &total) || total > CAISSON_MAX_TEMPLATE_OUTPUT) {
        return csn_tr_limit(r, "a text of the template is too long", CAISSON_MAX_TEMPLATE_OUTPUT,
                            (uint64_t)n);
    }
    CSN_TRY(reserve(r, b, (size_t)total));
    CSN_TRY(csn_tr_charge(r, (uint64_t)n / 16));
    for (int64_t i = 0; i < n; i++) {
        CSN_TRY(csn_tb_put_str(r, b, unit));
    }
    return CAISSON_OK;
}

caisson_status csn_tb_finish(trun *r, tbuf *b, tval *ret) {
    tstr *s;
    CSN_TRY(TR_NEW(r, 1, &s));
    *s = (tstr){.p = b->p != NULL ? b->p : "",
                .marks = b->marks,
                .len = b->len,
                .n_cp = SIZE_MAX,
                .is_trusted = b->len == 0 || b->is_trusted};
    *ret = (tval){.kind = V_STR, .u.s = s};
    return CAISSON_OK;
}

caisson_status csn_ts_view(trun *r, csn_str text, bool is_trusted, tval *ret) {
    tstr *s;
    CSN_TRY(TR_NEW(r, 1, &s));
    *s = (tstr){.p = text.ptr, .len = text.len, .n_cp = SIZE_MAX, .is_trusted = is_trusted};
    *ret = (tval){.kind = V_STR, .u.s = s};
    return CAISSON_OK;
}

caisson_status csn_ts_copy(trun *r, csn_str text, bool is_trusted, tval *ret) {
    tbuf b = {0};
    CSN_TRY(csn_tb_put(r, &b, text.ptr, text.len, is_trusted));
    return csn_tb_finish(r, &b, ret);
}

caisson_status csn_ts_sub(trun *r, const tstr *s, size_t off, size_t n, tval *ret) {
    tstr *sub;
    CSN_TRY(TR_NEW(r, 1, &sub));
    *sub = *s;
    sub->p = s->p + off;
    sub->marks = s->marks != NULL ? s->marks + off : NULL;
    sub->len = n;
    sub->n_cp = s->n_cp == s->len ? n : SIZE_MAX; /* a part of ASCII is ASCII */
    *ret = (tval){.kind = V_STR, .u.s = sub};
    return CAISSON_OK;
}

caisson_status csn_ts_concat(trun *r, const tstr *a, const tstr *b, tval *ret) {
    tbuf *t = &r->tail.buf;
    bool is_tail = a->len > 0 && a->p == t->p && a->len == t->len && a->marks == t->marks;
    if (!is_tail) {
        *t = (tbuf){0};
        CSN_TRY(csn_tb_put_str(r, t, a));
    }
    CSN_TRY(csn_tb_put_str(r, t, b));
    CSN_TRY(csn_tb_finish(r, t, ret));
    if (a->n_cp != SIZE_MAX && b->n_cp != SIZE_MAX) {
        ret->u.s->n_cp = a->n_cp + b->n_cp;
    }
    return CAISSON_OK;
}

bool csn_ts_any_untrusted(const tstr *s) {
    if (s->marks == NULL) {
        return s->len > 0 && !s->is_trusted;
    }
    return memchr(s->marks, 0, s->len) != NULL;
}

size_t csn_ts_count(const tstr *s) {
    if (s->n_cp != SIZE_MAX) {
        return s->n_cp;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) {
        n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    }
    return n;
}

size_t csn_ts_offset(const tstr *s, size_t i_cp) {
    if (s->n_cp == s->len) {
        return i_cp < s->len ? i_cp : s->len;
    }
    for (size_t i = 0; i < s->len; i++) {
        if (((unsigned char)s->p[i] & 0xc0) != 0x80) {
            if (i_cp == 0) {
                return i;
            }
            i_cp--;
        }
    }
    return s->len;
}

size_t csn_ts_find(csn_str s, csn_str needle, size_t from) {
    if (from > s.len) {
        return SIZE_MAX;
    }
    if (needle.len == 0) {
        return from;
    }
    /* memmem is linear whatever the needle; a search of our own would have to be as well. */
    const char *p = s.len == 0 ? NULL : memmem(s.ptr + from, s.len - from, needle.ptr, needle.len);
    return p == NULL ? SIZE_MAX : (size_t)(p - s.ptr);
}

static char *reversed(const char *p, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = p[n - 1 - i];
    }
    return out;
}

caisson_status csn_ts_rfind(trun *r, csn_str s, csn_str needle, size_t *ret) {
    enum { SHORT = 32 };
    *ret = SIZE_MAX;
    if (needle.len > s.len) {
        return CAISSON_OK;
    }
    if (needle.len <= SHORT) {
        for (size_t i = s.len - needle.len + 1; i-- > 0;) {
            if (needle.len == 0 || memcmp(s.ptr + i, needle.ptr, needle.len) == 0) {
                *ret = i;
                break;
            }
        }
        return CAISSON_OK;
    }
    char *copy; /* both backwards: linear again */
    CSN_TRY(csn_tr_charge_bytes(r, s.len));
    CSN_TRY(TR_NEW(r, s.len + needle.len, &copy));
    const char *hit = memmem(reversed(s.ptr, s.len, copy), s.len,
                             reversed(needle.ptr, needle.len, copy + s.len), needle.len);
    if (hit != NULL) {
        *ret = s.len - (size_t)(hit - copy) - needle.len;
    }
    return CAISSON_OK;
}
