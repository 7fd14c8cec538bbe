/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that make numbers: abs, int, float, round, filesizeformat. */
#include "text/template/filters_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/template/pychar_internal.h"

caisson_status csn_f_abs(trun *r, const tcall *c, tval *ret) {
    if (!csn_tv_is_number(c->self)) {
        return c->self.kind == V_UNDEF
                   ? csn_tv_undef_fail(r, c->self)
                   : csn_tr_fail(r, "bad operand type for abs(): '%s'", csn_tv_type_name(c->self));
    }
    bool is_negative = csn_tv_as_double(c->self) < 0;
    if (c->self.kind == V_FLOAT) {
        *ret = csn_tv_float(fabs(c->self.u.f));
        ret->is_tainted = c->self.is_tainted;
        return CAISSON_OK;
    }
    return csn_tv_negate(r, is_negative ? CSN_OP_NEGATE : CSN_OP_PLUS, c->self, ret);
}

/* A string that Python's int(s, base) takes. */
static bool parse_int(csn_str s, int64_t base, int64_t *ret, bool *ret_over) {
    size_t i = 0;
    size_t end = s.len;
    uint32_t cp;
    size_t k;
    while ((k = csn_utf8_decode(s, i, &cp)) > 0 && csn_py_is_space(cp)) {
        i += k;
    }
    while (end > i && (unsigned char)s.ptr[end - 1] < 0x80 &&
           csn_py_is_space((unsigned char)s.ptr[end - 1])) {
        end--;
    }
    bool is_negative = i < end && s.ptr[i] == '-';
    i += i < end && (s.ptr[i] == '-' || s.ptr[i] == '+');
    if (i + 1 < end && s.ptr[i] == '0') {
        int p = s.ptr[i + 1] | 0x20;
        int64_t of = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
        if (of != 0 && (base == of || base == 0)) {
            base = of;
            i += 2;
            i += i < end && s.ptr[i] == '_';
        }
    }
    base = base == 0 ? 10 : base;
    uint64_t v = 0;
    bool is_any = false;
    *ret_over = false;
    for (; i < end; i++) {
        int ch = (unsigned char)s.ptr[i];
        if (ch == '_' && is_any && i + 1 < end && s.ptr[i + 1] != '_') {
            continue;
        }
        int d = ch >= '0' && ch <= '9'                                  ? ch - '0'
                : (ch | 0x20) >= 'a' && (ch | 0x20) <= 'z' && ch < 0x80 ? (ch | 0x20) - 'a' + 10
                                                                        : 99;
        if (d >= base) {
            return false;
        }
        is_any = true;
        *ret_over |= __builtin_mul_overflow(v, (uint64_t)base, &v) ||
                     __builtin_add_overflow(v, (uint64_t)d, &v) || v > INT64_MAX;
    }
    *ret = is_negative ? -(int64_t)v : (int64_t)v;
    return is_any;
}

/* A string that Python's float(s) takes. */
static bool parse_float(csn_str s, double *ret) {
    char t[FLOAT_TEXT];
    size_t n = 0;
    size_t i = 0;
    size_t end = s.len;
    while (i < end && csn_py_is_space((unsigned char)s.ptr[i])) {
        i++;
    }
    while (end > i && csn_py_is_space((unsigned char)s.ptr[end - 1])) {
        end--;
    }
    for (; i < end; i++) {
        char ch = s.ptr[i];
        bool is_digit = ch >= '0' && ch <= '9';
        if (ch == '_' && n > 0 && i + 1 < end && t[n - 1] >= '0' && t[n - 1] <= '9' &&
            s.ptr[i + 1] >= '0' && s.ptr[i + 1] <= '9') {
            continue;
        }
        if (n + 1 == sizeof(t) || (!is_digit && strchr("+-.eEinfatyINFATY", ch) == NULL) ||
            ch == '\0') {
            return false;
        }
        t[n++] = ch;
    }
    t[n] = '\0';
    char *stop;
    *ret = strtod(t, &stop);
    return n > 0 && *stop == '\0';
}

static caisson_status from_double(trun *r, double f, tval *ret) {
    if (!(f > -9223372036854775809.0 && f < 9223372036854775808.0)) {
        return csn_tr_fail(r, "int: this float has no integer of 64 bits");
    }
    *ret = csn_tv_int((int64_t)f);
    return CAISSON_OK;
}

caisson_status csn_f_int(trun *r, const tcall *c, tval *ret) {
    int64_t base = 10;
    int64_t v = 0;
    bool is_over;
    double f;
    *ret = c->arg[0].kind == V_MISSING ? csn_tv_int(0) : c->arg[0];
    if (c->arg[1].kind != V_MISSING) { /* a base that is no integer never parses */
        base = csn_tv_is_int(c->arg[1]) ? csn_tv_as_int(c->arg[1]) : 1;
    }
    switch ((tkind)c->self.kind) {
    case V_UNDEF: return csn_tv_undef_fail(r, c->self);
    case V_BOOL:
    case V_INT: *ret = csn_tv_int(csn_tv_as_int(c->self)); break;
    case V_FLOAT:
        if (!isnan(c->self.u.f)) {
            CSN_TRY(from_double(r, c->self.u.f, ret));
        }
        break;
    case V_STR:
        if ((base == 0 || (base >= 2 && base <= 36)) &&
            parse_int(csn_tv_bytes(c->self), base, &v, &is_over)) {
            if (is_over) {
                return csn_tr_fail(r, "int: the text's integer does not fit into 64 bits");
            }
            *ret = csn_tv_int(v);
        } else if (parse_float(csn_tv_bytes(c->self), &f) && isfinite(f)) {
            CSN_TRY(from_double(r, f, ret));
        }
        break;
    default: break;
    }
    ret->is_tainted |= csn_tv_is_tainted(c->self);
    return CAISSON_OK;
}

caisson_status csn_f_float(trun *r, const tcall *c, tval *ret) {
    double f;
    *ret = c->arg[0].kind == V_MISSING ? csn_tv_float(0) : c->arg[0];
    if (c->self.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, c->self);
    }
    if (csn_tv_is_number(c->self)) {
        *ret = csn_tv_float(csn_tv_as_double(c->self));
    } else if (c->self.kind == V_STR && parse_float(csn_tv_bytes(c->self), &f)) {
        *ret = csn_tv_float(f);
    }
    ret->is_tainted |= csn_tv_is_tainted(c->self);
    return CAISSON_OK;
}

/* Python's round(): to even, decided on the exact decimal value. */
static caisson_status round_common(trun *r, tval v, int64_t digits, tval *ret) {
    if (csn_tv_is_int(v)) {
        int64_t i = csn_tv_as_int(v);
        if (digits < 0 && digits > -19) {
            int64_t unit = 1;
            for (int64_t k = 0; k > digits; k--) {
                unit *= 10;
            }
            int64_t rest = ((i % unit) + unit) % unit;
            int64_t low;
            if (__builtin_sub_overflow(i, rest, &low)) {
                return csn_tr_fail(r, "round: the result does not fit into 64 bits");
            }
            bool is_up = rest * 2 > unit || (rest * 2 == unit && (low / unit) % 2 != 0);
            if (is_up && __builtin_add_overflow(low, unit, &low)) {
                return csn_tr_fail(r, "round: the result does not fit into 64 bits");
            }
            i = low;
        } else if (digits <= -19) {
            i = 0;
        }
        *ret = csn_tv_int(i);
        return CAISSON_OK;
    }
    double f = v.u.f;
    if (!isfinite(f) || digits > 323) {
        *ret = v;
        return CAISSON_OK;
    }
    if (digits < -308) {
        *ret = csn_tv_float(copysign(0, f));
        return CAISSON_OK;
    }
    if (digits >= 0) {
        char t[800];
        snprintf(t, sizeof(t), "%.*f", (int)digits, f);
        *ret = csn_tv_float(strtod(t, NULL));
    } else {
        double unit = pow(10, (double)-digits);
        *ret = csn_tv_float(rint(f / unit) * unit);
    }
    return CAISSON_OK;
}

caisson_status csn_f_round(trun *r, const tcall *c, tval *ret) {
    int64_t digits;
    bool is_whole = c->arg[0].kind == V_NONE; /* round(x, None) gives an integer */
    CSN_TRY(csn_filter_int_arg(r, is_whole ? (tval){0} : c->arg[0], 0, &digits));
    if (c->self.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, c->self);
    }
    bool is_common = c->arg[1].kind == V_MISSING ||
                     (c->arg[1].kind == V_STR && csn_str_is(csn_tv_bytes(c->arg[1]), "common"));
    bool is_ceil = c->arg[1].kind == V_STR && csn_str_is(csn_tv_bytes(c->arg[1]), "ceil");
    bool is_floor = c->arg[1].kind == V_STR && csn_str_is(csn_tv_bytes(c->arg[1]), "floor");
    if (!is_common && !is_ceil && !is_floor) {
        return csn_tr_fail(r, "method must be common, ceil or floor");
    }
    if (!csn_tv_is_number(c->self)) {
        return csn_tr_fail(r, "type %s doesn't define __round__ method", csn_tv_type_name(c->self));
    }
    if (is_common) {
        CSN_TRY(round_common(r, c->self, digits, ret));
        if (is_whole) {
            CSN_TRY(from_double(r, csn_tv_as_double(*ret), ret));
        }
    } else {
        if (digits < -300 || digits > 300) {
            return csn_tr_fail(r, "round: the precision is out of range");
        }
        double unit = pow(10, (double)digits);
        double f = csn_tv_as_double(c->self) * unit;
        if (!isfinite(f)) {
            return csn_tr_fail(r, "cannot convert float infinity to integer");
        }
        *ret = csn_tv_float((is_ceil ? ceil(f) : floor(f)) / unit);
    }
    ret->is_tainted = c->self.is_tainted;
    return CAISSON_OK;
}

caisson_status csn_f_filesizeformat(trun *r, const tcall *c, tval *ret) {
    static const char units[] = "kMGTPEZY";
    bool is_binary;
    double f;
    char t[64];
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &is_binary));
    if (csn_tv_is_number(c->self)) {
        f = csn_tv_as_double(c->self);
    } else if (c->self.kind != V_STR || !parse_float(csn_tv_bytes(c->self), &f)) {
        return csn_tr_fail(r, "could not convert to float");
    }
    double base = is_binary ? 1024 : 1000;
    if (f == 1) {
        snprintf(t, sizeof(t), "1 Byte");
    } else if (f < base) {
        snprintf(t, sizeof(t), "%.0f Bytes", trunc(f));
    } else {
        double unit = base * base;
        size_t i = 0;
        for (; i + 1 < sizeof(units) - 1 && f >= unit; i++) {
            unit *= base;
        }
        char first = units[i];
        snprintf(t, sizeof(t), "%.1f %c%s", base * f / unit,
                 is_binary && first == 'k' ? 'K' : first, is_binary ? "iB" : "B");
    }
    return csn_ts_copy(r, csn_str_from(t), !csn_tv_is_tainted(c->self), ret);
}
