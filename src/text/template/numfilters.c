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

/* Python's int() and float() take the digits of any script and pass over blanks at both ends, but
 * not over the four separators among the control characters. *ret is the text in ASCII, '?' for
 * what no number holds, and has a final '\0'. */
static caisson_status number_text(trun *r, csn_str s, char **ret, size_t *ret_len) {
    char *t;
    size_t n = 0;
    size_t len = 0;
    CSN_TRY(csn_tr_charge_bytes(r, s.len));
    CSN_TRY(TR_NEW(r, s.len + 1, &t));
    for (size_t i = 0; i < s.len;) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(s, i, &cp);
        i += k > 0 ? k : 1;
        if (csn_py_is_space(cp) && !(cp >= 0x1c && cp <= 0x1f)) {
            t[n] = ' ';
            n += n > 0;
            continue;
        }
        int digit = csn_py_decimal(cp);
        t[n++] = (char)(digit >= 0 ? '0' + digit : cp > 0 && cp < 0x80 ? (int)cp : '?');
        len = n;
    }
    t[len] = '\0';
    *ret = t;
    *ret_len = len;
    return CAISSON_OK;
}

/* A string that Python's int(s, base) takes. */
static bool parse_int(csn_str s, int64_t base, int64_t *ret, bool *ret_over) {
    size_t i = 0;
    size_t end = s.len;
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

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A string that Python's float(s) takes. Drops the '_' between digits from t. */
static bool parse_float(char *t, double *ret) {
    size_t n = 0;
    for (size_t i = 0; t[i] != '\0'; i++) {
        if (t[i] == '_' && i > 0 && is_digit(t[i - 1]) && is_digit(t[i + 1])) {
            continue;
        }
        if (!is_digit(t[i]) && strchr("+-.eEinfatyINFATY", t[i]) == NULL) {
            return false;
        }
        t[n++] = t[i];
    }
    t[n] = '\0';
    char *stop;
    *ret = strtod(t, &stop);
    return n > 0 && *stop == '\0';
}

static caisson_status read_float(trun *r, csn_str s, bool *ret_is_float, double *ret) {
    char *text;
    size_t len;
    CSN_TRY(number_text(r, s, &text, &len));
    *ret_is_float = parse_float(text, ret);
    return CAISSON_OK;
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
    char *text;
    size_t len;
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
        CSN_TRY(number_text(r, csn_tv_bytes(c->self), &text, &len));
        if ((base == 0 || (base >= 2 && base <= 36)) &&
            parse_int(csn_str_make(text, len), base, &v, &is_over)) {
            if (is_over) {
                return csn_tr_fail(r, "int: the text's integer does not fit into 64 bits");
            }
            *ret = csn_tv_int(v);
        } else if (parse_float(text, &f) && isfinite(f)) {
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
    bool is_float;
    *ret = c->arg[0].kind == V_MISSING ? csn_tv_float(0) : c->arg[0];
    if (c->self.kind == V_UNDEF) {
        return csn_tv_undef_fail(r, c->self);
    }
    if (csn_tv_is_number(c->self)) {
        *ret = csn_tv_float(csn_tv_as_double(c->self));
    } else if (c->self.kind == V_STR) {
        CSN_TRY(read_float(r, csn_tv_bytes(c->self), &is_float, &f));
        *ret = is_float ? csn_tv_float(f) : *ret;
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
            if (digits == -19 && (i > 5000000000000000000 || i < -5000000000000000000)) {
                return csn_tr_fail(r, "round: the result does not fit into 64 bits");
            }
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
    char t[FLOAT_TEXT];
    CSN_TRY(csn_filter_bool_arg(r, c->arg[0], &is_binary));
    bool is_float = csn_tv_is_number(c->self);
    if (is_float) {
        f = csn_tv_as_double(c->self);
    } else if (c->self.kind == V_STR) {
        CSN_TRY(read_float(r, csn_tv_bytes(c->self), &is_float, &f));
    }
    if (!is_float) {
        return csn_tr_fail(r, "could not convert to float");
    }
    double base = is_binary ? 1024 : 1000;
    if (isinf(f) && f < 0) {
        return csn_tr_fail(r, "cannot convert float infinity to integer");
    }
    if (f == 1) {
        snprintf(t, sizeof(t), "1 Byte");
    } else if (f < base) {
        snprintf(t, sizeof(t), "%.0f Bytes", trunc(f) + 0.0); /* -0 is 0 */
    } else {
        const long double step = (long double)base;
        const long double size = (long double)f;
        long double unit = step * step; /* 1000^8, an integer in Python, is no double */
        size_t i = 0;
        for (; i + 1 < sizeof(units) - 1 && !(size < unit); i++) {
            unit *= step;
        }
        char first = units[i];
        snprintf(t, sizeof(t), "%.1f %c%s", base * f / (double)unit,
                 is_binary && first == 'k' ? 'K' : first, is_binary ? "iB" : "B");
    }
    return csn_ts_copy(r, csn_str_from(t), !csn_tv_is_tainted(c->self), ret);
}
