/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of str that search, cut and join. Pieces share the bytes and marks of the whole. */
#include "text/template/value_internal.h"

#include "base/utf8.h"
#include "text/template/pychar_internal.h"

static bool is_given(tval v) {
    return v.kind != V_MISSING && v.kind != V_NONE;
}

static caisson_status want_str(trun *r, tval v) {
    return v.kind == V_STR ? CAISSON_OK
                           : csn_tr_fail(r, "expected str, not %s", csn_tv_type_name(v));
}

static caisson_status want_int(trun *r, tval v, int64_t deflt, int64_t *ret) {
    *ret = deflt;
    if (v.kind == V_MISSING) {
        return CAISSON_OK;
    }
    if (!csn_tv_is_int(v)) {
        return v.kind == V_UNDEF ? csn_tv_undef_fail(r, v)
                                 : csn_tr_fail(r, "'%s' object cannot be interpreted as an integer",
                                               csn_tv_type_name(v));
    }
    *ret = csn_tv_as_int(v);
    return CAISSON_OK;
}

/* ---- strip ---- */

static bool is_stripped(csn_str s, size_t i, size_t k, uint32_t cp, tval chars) {
    return is_given(chars)
               ? csn_ts_find(csn_tv_bytes(chars), csn_str_make(s.ptr + i, k), 0) != SIZE_MAX
               : csn_py_is_space(cp);
}

caisson_status csn_sm_strip(trun *r, const tstr *s, tval chars, unsigned sides, tval *ret) {
    csn_str b = csn_ts_bytes(s);
    size_t from = 0;
    size_t to = b.len;
    uint32_t cp;
    if (is_given(chars)) {
        CSN_TRY(want_str(r, chars));
    }
    while ((sides & STRIP_LEFT) != 0 && from < to) {
        size_t k = csn_utf8_decode(b, from, &cp);
        CSN_TRY(csn_tr_charge_bytes(r, is_given(chars) ? chars.u.s->len : 0));
        if (!is_stripped(b, from, k, cp, chars)) {
            break;
        }
        from += k;
    }
    while ((sides & STRIP_RIGHT) != 0 && from < to) {
        size_t i = to - 1;
        while (i > from && ((unsigned char)b.ptr[i] & 0xc0) == 0x80) {
            i--;
        }
        size_t k = csn_utf8_decode(b, i, &cp);
        CSN_TRY(csn_tr_charge_bytes(r, is_given(chars) ? chars.u.s->len : 0));
        if (!is_stripped(b, i, k, cp, chars)) {
            break;
        }
        to = i;
    }
    CSN_TRY(csn_tr_charge_bytes(r, b.len - (to - from)));
    return csn_ts_sub(r, s, from, to - from, ret);
}

static caisson_status m_strip(trun *r, const tcall *c, tval *ret) {
    return csn_sm_strip(r, c->self.u.s, c->arg[0], STRIP_LEFT | STRIP_RIGHT, ret);
}
static caisson_status m_lstrip(trun *r, const tcall *c, tval *ret) {
    return csn_sm_strip(r, c->self.u.s, c->arg[0], STRIP_LEFT, ret);
}
static caisson_status m_rstrip(trun *r, const tcall *c, tval *ret) {
    return csn_sm_strip(r, c->self.u.s, c->arg[0], STRIP_RIGHT, ret);
}

/* ---- split ---- */

static caisson_status push_sub(trun *r, tlist *l, const tstr *s, size_t from, size_t to) {
    tval v;
    CSN_TRY(csn_ts_sub(r, s, from, to - from, &v));
    return csn_tv_push(r, l, v);
}

static caisson_status split_space(trun *r, const tstr *s, int64_t max, tlist *l) {
    csn_str b = csn_ts_bytes(s);
    uint32_t cp;
    size_t k;
    size_t i = 0;
    for (;;) {
        while ((k = csn_utf8_decode(b, i, &cp)) > 0 && csn_py_is_space(cp)) {
            i += k;
        }
        if (i >= b.len) {
            return CAISSON_OK;
        }
        size_t from = i;
        if (max-- == 0) {
            return push_sub(r, l, s, from, b.len);
        }
        while ((k = csn_utf8_decode(b, i, &cp)) > 0 && !csn_py_is_space(cp)) {
            i += k;
        }
        CSN_TRY(push_sub(r, l, s, from, i));
    }
}

static caisson_status split_at(trun *r, const tstr *s, csn_str sep, int64_t max, tlist *l) {
    size_t from = 0;
    size_t at;
    while (max-- != 0 && (at = csn_ts_find(csn_ts_bytes(s), sep, from)) != SIZE_MAX) {
        CSN_TRY(push_sub(r, l, s, from, at));
        from = at + sep.len;
    }
    return push_sub(r, l, s, from, s->len);
}

static void reverse(tlist *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        tval t = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = t;
    }
}

static caisson_status rsplit_space(trun *r, const tstr *s, int64_t max, tlist *l) {
    size_t end = s->len;
    for (;;) {
        tval head;
        CSN_TRY(csn_ts_sub(r, s, 0, end, &head));
        CSN_TRY(csn_sm_strip(r, head.u.s, (tval){0}, STRIP_RIGHT, &head));
        end = head.u.s->len;
        if (end == 0) {
            break;
        }
        if (max-- == 0) {
            CSN_TRY(csn_tv_push(r, l, head));
            break;
        }
        size_t from = end;
        while (from > 0) {
            size_t i = from - 1;
            uint32_t cp;
            while (i > 0 && ((unsigned char)s->p[i] & 0xc0) == 0x80) {
                i--;
            }
            csn_utf8_decode(csn_ts_bytes(s), i, &cp);
            if (csn_py_is_space(cp)) {
                break;
            }
            from = i;
        }
        CSN_TRY(push_sub(r, l, s, from, end));
        end = from;
    }
    reverse(l);
    return CAISSON_OK;
}

static caisson_status rsplit_at(trun *r, const tstr *s, csn_str sep, int64_t max, tlist *l) {
    size_t end = s->len;
    while (max-- != 0) {
        size_t at;
        CSN_TRY(csn_ts_rfind(r, csn_str_make(s->p, end), sep, &at));
        if (at == SIZE_MAX) {
            break;
        }
        CSN_TRY(push_sub(r, l, s, at + sep.len, end));
        end = at;
    }
    CSN_TRY(push_sub(r, l, s, 0, end));
    reverse(l);
    return CAISSON_OK;
}

static caisson_status split(trun *r, const tcall *c, bool is_right, tval *ret) {
    const tstr *s = c->self.u.s;
    tlist l = {0};
    int64_t max;
    CSN_TRY(want_int(r, c->arg[1], -1, &max));
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    if (!is_given(c->arg[0])) {
        CSN_TRY(is_right ? rsplit_space(r, s, max, &l) : split_space(r, s, max, &l));
    } else {
        CSN_TRY(want_str(r, c->arg[0]));
        csn_str sep = csn_tv_bytes(c->arg[0]);
        if (sep.len == 0) {
            return csn_tr_fail(r, "empty separator");
        }
        CSN_TRY(is_right ? rsplit_at(r, s, sep, max, &l) : split_at(r, s, sep, max, &l));
    }
    return csn_tv_finish(r, &l, V_LIST, csn_ts_any_untrusted(s), ret);
}
static caisson_status m_split(trun *r, const tcall *c, tval *ret) {
    return split(r, c, false, ret);
}
static caisson_status m_rsplit(trun *r, const tcall *c, tval *ret) {
    return split(r, c, true, ret);
}

static caisson_status partition(trun *r, const tcall *c, bool is_right, tval *ret) {
    const tstr *s = c->self.u.s;
    tlist l = {0};
    size_t at;
    CSN_TRY(want_str(r, c->arg[0]));
    csn_str sep = csn_tv_bytes(c->arg[0]);
    if (sep.len == 0) {
        return csn_tr_fail(r, "empty separator");
    }
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    if (is_right) {
        CSN_TRY(csn_ts_rfind(r, csn_ts_bytes(s), sep, &at));
    } else {
        at = csn_ts_find(csn_ts_bytes(s), sep, 0);
    }
    bool is_found = at != SIZE_MAX;
    size_t left = is_found ? at : is_right ? 0 : s->len;
    size_t mid = is_found ? sep.len : 0;
    CSN_TRY(push_sub(r, &l, s, 0, left));
    CSN_TRY(push_sub(r, &l, s, left, left + mid));
    CSN_TRY(push_sub(r, &l, s, left + mid, s->len));
    return csn_tv_finish(r, &l, V_TUPLE, csn_ts_any_untrusted(s), ret);
}
static caisson_status m_partition(trun *r, const tcall *c, tval *ret) {
    return partition(r, c, false, ret);
}
static caisson_status m_rpartition(trun *r, const tcall *c, tval *ret) {
    return partition(r, c, true, ret);
}

caisson_status csn_sm_lines(trun *r, const tstr *s, bool keeps_ends, tval *ret) {
    csn_str b = csn_ts_bytes(s);
    tlist l = {0};
    size_t from = 0;
    CSN_TRY(csn_tr_charge_bytes(r, b.len));
    for (size_t i = 0; i < b.len;) {
        uint32_t cp;
        size_t k = csn_utf8_decode(b, i, &cp);
        if (csn_py_is_line_break(cp)) {
            size_t next = i + k + (cp == '\r' && i + 1 < b.len && b.ptr[i + 1] == '\n');
            CSN_TRY(push_sub(r, &l, s, from, keeps_ends ? next : i));
            i = from = next;
        } else {
            i += k;
        }
    }
    if (from < b.len) {
        CSN_TRY(push_sub(r, &l, s, from, b.len));
    }
    return csn_tv_finish(r, &l, V_LIST, csn_ts_any_untrusted(s), ret);
}
static caisson_status m_splitlines(trun *r, const tcall *c, tval *ret) {
    int64_t keeps;
    CSN_TRY(want_int(r, c->arg[0], 0, &keeps));
    return csn_sm_lines(r, c->self.u.s, keeps != 0, ret);
}

/* ---- search ---- */

/* The part of s that [start, end) names, in bytes; false: start lies behind the end. */
static caisson_status window(trun *r, const tstr *s, tval start, tval end, size_t *from, size_t *to,
                             bool *ret_is_valid) {
    int64_t n;
    tval self = {.kind = V_STR, .u.s = (tstr *)s};
    *from = 0;
    *to = s->len;
    *ret_is_valid = true;
    if (!is_given(start) && !is_given(end)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    CSN_TRY(csn_tv_len(r, self, &n));
    int64_t a = 0;
    int64_t b = n;
    CSN_TRY(want_int(r, is_given(start) ? start : (tval){0}, 0, &a));
    CSN_TRY(want_int(r, is_given(end) ? end : (tval){0}, n, &b));
    a = a < 0 ? (a + n < 0 ? 0 : a + n) : a;
    b = b < 0 ? (b + n < 0 ? 0 : b + n) : b > n ? n : b;
    *ret_is_valid = a <= n && a <= b;
    *from = csn_ts_offset(s, (size_t)(a > n ? n : a));
    *to = csn_ts_offset(s, (size_t)b);
    return CAISSON_OK;
}

static caisson_status find(trun *r, const tcall *c, bool is_right, bool must, tval *ret) {
    const tstr *s = c->self.u.s;
    size_t from;
    size_t to;
    bool is_valid;
    size_t at = SIZE_MAX;
    CSN_TRY(want_str(r, c->arg[0]));
    CSN_TRY(window(r, s, c->arg[1], c->arg[2], &from, &to, &is_valid));
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    if (is_valid) {
        csn_str part = csn_str_make(s->p + from, to - from);
        if (is_right) {
            CSN_TRY(csn_ts_rfind(r, part, csn_tv_bytes(c->arg[0]), &at));
        } else {
            at = csn_ts_find(part, csn_tv_bytes(c->arg[0]), 0);
        }
    }
    if (at == SIZE_MAX) {
        *ret = csn_tv_int(-1);
        return must ? csn_tr_fail(r, "substring not found") : CAISSON_OK;
    }
    tstr before = {.p = s->p, .len = from + at, .n_cp = SIZE_MAX};
    *ret = csn_tv_int((int64_t)csn_ts_count(&before));
    ret->is_tainted = csn_ts_any_untrusted(s);
    return CAISSON_OK;
}
static caisson_status m_find(trun *r, const tcall *c, tval *ret) {
    return find(r, c, false, false, ret);
}
static caisson_status m_rfind(trun *r, const tcall *c, tval *ret) {
    return find(r, c, true, false, ret);
}
static caisson_status m_index(trun *r, const tcall *c, tval *ret) {
    return find(r, c, false, true, ret);
}
static caisson_status m_rindex(trun *r, const tcall *c, tval *ret) {
    return find(r, c, true, true, ret);
}

static caisson_status m_count(trun *r, const tcall *c, tval *ret) {
    const tstr *s = c->self.u.s;
    size_t from;
    size_t to;
    bool is_valid;
    int64_t n = 0;
    CSN_TRY(want_str(r, c->arg[0]));
    CSN_TRY(window(r, s, c->arg[1], c->arg[2], &from, &to, &is_valid));
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    csn_str part = csn_str_make(s->p + from, is_valid ? to - from : 0);
    csn_str needle = csn_tv_bytes(c->arg[0]);
    if (needle.len == 0) {
        tstr t = {.p = part.ptr, .len = part.len, .n_cp = SIZE_MAX};
        n = is_valid ? (int64_t)csn_ts_count(&t) + 1 : 0;
    } else {
        size_t at = 0;
        while ((at = csn_ts_find(part, needle, at)) != SIZE_MAX) {
            n++;
            at += needle.len;
        }
    }
    *ret = csn_tv_int(n);
    ret->is_tainted = csn_ts_any_untrusted(s);
    return CAISSON_OK;
}

/* startswith, endswith: one string or a tuple of them. */
static caisson_status edge(trun *r, const tcall *c, bool is_end, tval *ret) {
    const tstr *s = c->self.u.s;
    size_t from;
    size_t to;
    bool is_valid;
    bool is_hit = false;
    tval one = c->arg[0];
    const tval *items = one.kind == V_TUPLE ? one.u.q->items : &one;
    size_t n = one.kind == V_TUPLE ? one.u.q->n : 1;
    CSN_TRY(window(r, s, c->arg[1], c->arg[2], &from, &to, &is_valid));
    csn_str part = csn_str_make(s->p + from, is_valid ? to - from : 0);
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != V_STR) {
            return csn_tr_fail(r, "%s first arg must be str or a tuple of str, not %s",
                               is_end ? "endswith" : "startswith", csn_tv_type_name(items[i]));
        }
        CSN_TRY(csn_tr_charge_bytes(r, items[i].u.s->len));
        is_hit |= is_valid && (is_end ? csn_str_ends(part, csn_tv_bytes(items[i]))
                                      : csn_str_starts(part, csn_tv_bytes(items[i])));
    }
    *ret = csn_tv_bool(is_hit);
    return CAISSON_OK;
}
static caisson_status m_startswith(trun *r, const tcall *c, tval *ret) {
    return edge(r, c, false, ret);
}
static caisson_status m_endswith(trun *r, const tcall *c, tval *ret) {
    return edge(r, c, true, ret);
}

static caisson_status m_removeprefix(trun *r, const tcall *c, tval *ret) {
    CSN_TRY(want_str(r, c->arg[0]));
    const tstr *s = c->self.u.s;
    size_t k = csn_str_starts(csn_ts_bytes(s), csn_tv_bytes(c->arg[0])) ? c->arg[0].u.s->len : 0;
    return csn_ts_sub(r, s, k, s->len - k, ret);
}
static caisson_status m_removesuffix(trun *r, const tcall *c, tval *ret) {
    CSN_TRY(want_str(r, c->arg[0]));
    const tstr *s = c->self.u.s;
    size_t k = csn_str_ends(csn_ts_bytes(s), csn_tv_bytes(c->arg[0])) ? c->arg[0].u.s->len : 0;
    return csn_ts_sub(r, s, 0, s->len - k, ret);
}

/* ---- replace, join, fill ---- */

caisson_status csn_sm_replace(trun *r, const tstr *s, const tstr *from, const tstr *to,
                              int64_t count, tval *ret) {
    tbuf b = {0};
    csn_str bytes = csn_ts_bytes(s);
    size_t clean = 0;
    CSN_TRY(csn_tr_charge_bytes(r, s->len));
    if (from->len == 0) { /* between all characters */
        for (size_t i = 0; i <= s->len && count != 0; count--) {
            uint32_t cp;
            CSN_TRY(csn_tb_put_sub(r, &b, s, clean, i - clean));
            CSN_TRY(csn_tb_put_str(r, &b, to));
            clean = i;
            i += i < s->len ? csn_utf8_decode(bytes, i, &cp) : 1;
        }
    } else {
        size_t at;
        while (count-- != 0 && (at = csn_ts_find(bytes, csn_ts_bytes(from), clean)) != SIZE_MAX) {
            CSN_TRY(csn_tr_charge(r, 1));
            CSN_TRY(csn_tb_put_sub(r, &b, s, clean, at - clean));
            CSN_TRY(csn_tb_put_str(r, &b, to));
            clean = at + from->len;
        }
    }
    if (clean == 0 && b.len == 0) {
        return csn_ts_sub(r, s, 0, s->len, ret);
    }
    CSN_TRY(csn_tb_put_sub(r, &b, s, clean, s->len - clean));
    return csn_tb_finish(r, &b, ret);
}

static caisson_status m_replace(trun *r, const tcall *c, tval *ret) {
    int64_t count;
    tval to = c->arg[1];
    CSN_TRY(want_str(r, c->arg[0]));
    CSN_TRY(want_str(r, to));
    CSN_TRY(want_int(r, c->arg[2], -1, &count));
    if (c->self.u.s->is_markup) {
        CSN_TRY(csn_tv_escape(r, to, &to));
    }
    CSN_TRY(csn_sm_replace(r, c->self.u.s, c->arg[0].u.s, to.u.s, count, ret));
    ret->u.s->is_markup = c->self.u.s->is_markup;
    return CAISSON_OK;
}

static caisson_status m_join(trun *r, const tcall *c, tval *ret) {
    tval *items;
    size_t n;
    tbuf b = {0};
    bool is_markup = c->self.u.s->is_markup;
    CSN_TRY(csn_tv_items(r, c->arg[0], &items, &n));
    for (size_t i = 0; i < n; i++) {
        tval item = items[i];
        CSN_TRY(csn_tr_charge(r, 1));
        if (is_markup) {
            CSN_TRY(csn_tv_escape(r, item, &item));
        } else if (item.kind != V_STR) {
            return csn_tr_fail(r, "sequence item %zu: expected str instance, %s found", i,
                               csn_tv_type_name(item));
        }
        if (i > 0) {
            CSN_TRY(csn_tb_put_str(r, &b, c->self.u.s));
        }
        CSN_TRY(csn_tb_put_str(r, &b, item.u.s));
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = is_markup;
    return CAISSON_OK;
}

static caisson_status fill(trun *r, const tstr *s, int64_t left, int64_t right, const tstr *unit,
                           tval *ret) {
    tbuf b = {0};
    CSN_TRY(csn_tb_fill(r, &b, unit, left));
    CSN_TRY(csn_tb_put_str(r, &b, s));
    CSN_TRY(csn_tb_fill(r, &b, unit, right));
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return CAISSON_OK;
}

caisson_status csn_sm_center(trun *r, const tstr *s, int64_t width, const tstr *unit, tval *ret) {
    int64_t n = (int64_t)csn_ts_count(s);
    int64_t gap = width > n ? width - n : 0;
    int64_t left = gap / 2 + (gap & width & 1);
    return fill(r, s, left, gap - left, unit, ret);
}

static const tstr blank = {.p = " ", .len = 1, .n_cp = 1, .is_trusted = true};

static caisson_status justify(trun *r, const tcall *c, char how, tval *ret) {
    const tstr *s = c->self.u.s;
    const tstr *unit = &blank;
    int64_t width;
    CSN_TRY(want_int(r, c->arg[0], 0, &width));
    if (c->arg[1].kind != V_MISSING) {
        CSN_TRY(want_str(r, c->arg[1]));
        unit = c->arg[1].u.s;
        if (csn_ts_count(unit) != 1) {
            return csn_tr_fail(r, "The fill character must be exactly one character long");
        }
    }
    if (how == '^') {
        return csn_sm_center(r, s, width, unit, ret);
    }
    int64_t n = (int64_t)csn_ts_count(s);
    int64_t gap = width > n ? width - n : 0;
    return fill(r, s, how == '>' ? gap : 0, how == '>' ? 0 : gap, unit, ret);
}
static caisson_status m_center(trun *r, const tcall *c, tval *ret) {
    return justify(r, c, '^', ret);
}
static caisson_status m_ljust(trun *r, const tcall *c, tval *ret) {
    return justify(r, c, '<', ret);
}
static caisson_status m_rjust(trun *r, const tcall *c, tval *ret) {
    return justify(r, c, '>', ret);
}

static caisson_status m_zfill(trun *r, const tcall *c, tval *ret) {
    static const tstr zero = {.p = "0", .len = 1, .n_cp = 1, .is_trusted = true};
    const tstr *s = c->self.u.s;
    int64_t width;
    CSN_TRY(want_int(r, c->arg[0], 0, &width));
    int64_t n = (int64_t)csn_ts_count(s);
    size_t sign = s->len > 0 && (s->p[0] == '+' || s->p[0] == '-') ? 1 : 0;
    tbuf b = {0};
    CSN_TRY(csn_tb_put_sub(r, &b, s, 0, sign));
    CSN_TRY(csn_tb_fill(r, &b, &zero, width > n ? width - n : 0));
    CSN_TRY(csn_tb_put_sub(r, &b, s, sign, s->len - sign));
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return CAISSON_OK;
}

static caisson_status m_expandtabs(trun *r, const tcall *c, tval *ret) {
    const tstr *s = c->self.u.s;
    int64_t size;
    int64_t column = 0;
    tbuf b = {0};
    CSN_TRY(want_int(r, c->arg[0], 8, &size));
    for (size_t i = 0; i < s->len; i++) {
        char ch = s->p[i];
        if (ch == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            CSN_TRY(csn_tb_fill(r, &b, &blank, n));
            column += n;
            continue;
        }
        CSN_TRY(csn_tb_put_sub(r, &b, s, i, 1));
        column += ((unsigned char)ch & 0xc0) != 0x80;
        column = ch == '\n' || ch == '\r' ? 0 : column;
    }
    CSN_TRY(csn_tb_finish(r, &b, ret));
    ret->u.s->is_markup = s->is_markup;
    return csn_tr_charge(r, s->len / 16);
}

static caisson_status m_format(trun *r, const tcall *c, tval *ret) {
    return csn_tf_format(r, c->self.u.s, c->argv, ret);
}

static caisson_status m_format_map(trun *r, const tcall *c, tval *ret) {
    if (c->arg[0].kind != V_DICT) {
        return csn_tr_fail(r, "format_map() needs a mapping");
    }
    const tdict *d = c->arg[0].u.d;
    targv a = {0};
    CSN_TRY(TR_NEW(r, d->n, &a.kw_name));
    CSN_TRY(TR_NEW(r, d->n, &a.kw));
    for (size_t i = 0; i < d->n; i++) {
        if (d->pairs[i].key.kind == V_STR) {
            a.kw_name[a.n_kw] = csn_tv_bytes(d->pairs[i].key);
            a.kw[a.n_kw++] = d->pairs[i].value;
        }
    }
    return csn_tf_format(r, c->self.u.s, &a, ret);
}

/* fn NULL: Python has it, we do not; calling it fails and says so. */
const tbuiltin csn_str_methods[] = {{"strip", m_strip, "chars", 0, true},
                                    {"lstrip", m_lstrip, "chars", 0, true},
                                    {"rstrip", m_rstrip, "chars", 0, true},
                                    {"split", m_split, "sep,maxsplit", 0, false},
                                    {"rsplit", m_rsplit, "sep,maxsplit", 0, false},
                                    {"partition", m_partition, "sep", 1, true},
                                    {"rpartition", m_rpartition, "sep", 1, true},
                                    {"splitlines", m_splitlines, "keepends", 0, false},
                                    {"find", m_find, "sub,start,end", 1, true},
                                    {"rfind", m_rfind, "sub,start,end", 1, true},
                                    {"index", m_index, "sub,start,end", 1, true},
                                    {"rindex", m_rindex, "sub,start,end", 1, true},
                                    {"count", m_count, "sub,start,end", 1, true},
                                    {"startswith", m_startswith, "prefix,start,end", 1, true},
                                    {"endswith", m_endswith, "suffix,start,end", 1, true},
                                    {"removeprefix", m_removeprefix, "prefix", 1, true},
                                    {"removesuffix", m_removesuffix, "suffix", 1, true},
                                    {"replace", m_replace, "old,new,count", 2, true},
                                    {"join", m_join, "iterable", 1, true},
                                    {"center", m_center, "width,fillchar", 1, true},
                                    {"ljust", m_ljust, "width,fillchar", 1, true},
                                    {"rjust", m_rjust, "width,fillchar", 1, true},
                                    {"zfill", m_zfill, "width", 1, true},
                                    {"expandtabs", m_expandtabs, "tabsize", 0, false},
                                    {"format", m_format, NULL, 0, false},
                                    {"format_map", m_format_map, "mapping", 1, true},
                                    {"encode", NULL, NULL, 0, false},
                                    {"translate", NULL, NULL, 0, false},
                                    {"maketrans", NULL, NULL, 0, false},
                                    {"isidentifier", NULL, NULL, 0, false},
                                    {NULL, NULL, NULL, 0, false}};
