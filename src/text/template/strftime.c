/* SPDX-License-Identifier: Apache-2.0 */
/* strftime in the C locale, of a time and an offset that the caller gives: the same text
 * everywhere. */
#include "text/template/value_internal.h"

#include <stdio.h>

typedef struct ttime {
    int64_t year;
    int month, day; /* 1.. */
    int hour, minute, second;
    int weekday, yearday; /* 0 = Sunday, 0 = 1 January */
    int64_t unix_s;
} ttime;

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static bool is_leap(int64_t y) {
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

/* Days since 1970-01-01 of a date; the year begins in March (400 years are 146097 days). */
static int64_t days_of(int64_t y, int m, int d) {
    y -= m <= 2;
    int64_t era = floor_div(y, 400);
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static ttime split(int64_t unix_s) {
    ttime t = {.unix_s = unix_s};
    int64_t days = floor_div(unix_s, 86400);
    int64_t s = unix_s - days * 86400;
    t.hour = (int)(s / 3600);
    t.minute = (int)(s / 60 % 60);
    t.second = (int)(s % 60);
    int64_t z = days + 719468;
    int64_t era = floor_div(z, 146097);
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    t.day = (int)(doy - (153 * mp + 2) / 5 + 1);
    t.month = (int)(mp < 10 ? mp + 3 : mp - 9);
    t.year = yoe + era * 400 + (t.month <= 2);
    t.weekday = (int)(((days + 4) % 7 + 7) % 7);
    t.yearday = (int)(days - days_of(t.year, 1, 1));
    return t;
}

/* ISO 8601 week and its year. */
static int iso_week(const ttime *t, int64_t *ret_year) {
    int wd = (t->weekday + 6) % 7; /* Monday 0 */
    int week = (t->yearday - wd + 10) / 7;
    *ret_year = t->year;
    if (week < 1) {
        *ret_year = t->year - 1;
        int days = is_leap(*ret_year) ? 366 : 365;
        return (t->yearday + days - wd + 10) / 7;
    }
    int days = is_leap(t->year) ? 366 : 365;
    if (week == 53 && t->yearday - wd + 3 >= days) {
        *ret_year = t->year + 1;
        return 1;
    }
    return week;
}

static const char *const day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};

/* The conversions that are text; -1: not one of them. */
static int convert_text(const ttime *t, char c, char out[64]) {
    int hour12 = t->hour % 12 == 0 ? 12 : t->hour % 12;
    switch (c) {
    case 'a': return snprintf(out, 64, "%.3s", day_names[t->weekday]);
    case 'A': return snprintf(out, 64, "%s", day_names[t->weekday]);
    case 'b':
    case 'h': return snprintf(out, 64, "%.3s", month_names[t->month - 1]);
    case 'B': return snprintf(out, 64, "%s", month_names[t->month - 1]);
    case 'p': return snprintf(out, 64, "%s", t->hour < 12 ? "AM" : "PM");
    case 'P': return snprintf(out, 64, "%s", t->hour < 12 ? "am" : "pm");
    case 'f': return snprintf(out, 64, "000000");
    case 'z':
    case 'Z': return 0; /* a time without zone, as datetime.now() is */
    case 'n': return snprintf(out, 64, "\n");
    case 't': return snprintf(out, 64, "\t");
    case '%': return snprintf(out, 64, "%%");
    case 'D':
    case 'x': return snprintf(out, 64, "%02d/%02d/%02d", t->month, t->day, (int)(t->year % 100));
    case 'F': return snprintf(out, 64, "%" PRId64 "-%02d-%02d", t->year, t->month, t->day);
    case 'T':
    case 'X': return snprintf(out, 64, "%02d:%02d:%02d", t->hour, t->minute, t->second);
    case 'R': return snprintf(out, 64, "%02d:%02d", t->hour, t->minute);
    case 'r':
        return snprintf(out, 64, "%02d:%02d:%02d %s", hour12, t->minute, t->second,
                        t->hour < 12 ? "AM" : "PM");
    case 'c':
        return snprintf(out, 64, "%.3s %.3s %2d %02d:%02d:%02d %" PRId64, day_names[t->weekday],
                        month_names[t->month - 1], t->day, t->hour, t->minute, t->second, t->year);
    default: return -1;
    }
}

/* The conversions that are numbers: value, width and what fills it; false: not one of them. */
static bool convert_number(const ttime *t, char c, int64_t *v, int *width, char *fill) {
    int64_t iso_year;
    int week = iso_week(t, &iso_year);
    int hour12 = t->hour % 12 == 0 ? 12 : t->hour % 12;
    *width = strchr("YuwGs", c) != NULL ? 1 : c == 'j' ? 3 : 2;
    *fill = strchr("ekl", c) != NULL ? ' ' : '0';
    switch (c) {
    case 'Y': *v = t->year; return true;
    case 'y': *v = t->year % 100; return true;
    case 'C': *v = t->year / 100; return true;
    case 'm': *v = t->month; return true;
    case 'd':
    case 'e': *v = t->day; return true;
    case 'H':
    case 'k': *v = t->hour; return true;
    case 'I':
    case 'l': *v = hour12; return true;
    case 'M': *v = t->minute; return true;
    case 'S': *v = t->second; return true;
    case 'j': *v = t->yearday + 1; return true;
    case 'u': *v = t->weekday == 0 ? 7 : t->weekday; return true;
    case 'w': *v = t->weekday; return true;
    case 'U': *v = (t->yearday + 7 - t->weekday) / 7; return true;
    case 'W': *v = (t->yearday + 7 - (t->weekday + 6) % 7) / 7; return true;
    case 'V': *v = week; return true;
    case 'G': *v = iso_year; return true;
    case 'g': *v = iso_year % 100; return true;
    case 's': *v = t->unix_s; return true;
    default: return false;
    }
}

/* One conversion; `flag` is 0, '-', '_' or '0'. Returns the length, or -1. */
static int convert(const ttime *t, char c, char flag, char out[64]) {
    int64_t v;
    int width;
    char fill;
    if (!convert_number(t, c, &v, &width, &fill)) {
        return convert_text(t, c, out);
    }
    width = flag == '-' ? 1 : width;
    fill = flag == '_' ? ' ' : flag == '0' ? '0' : fill;
    return fill == '0' ? snprintf(out, 64, "%0*" PRId64, width, v)
                       : snprintf(out, 64, "%*" PRId64, width, v);
}

caisson_status csn_tf_strftime(trun *r, const tstr *format, tval *ret) {
    if (r->now_unix < -INT64_C(100000000000) || r->now_unix > INT64_C(1000000000000)) {
        return csn_tr_fail(r, "the time to format is not within the years 1 to 9999");
    }
    ttime t = split(r->now_unix + r->utc_offset_s);
    t.unix_s = r->now_unix;
    tbuf b = {0};
    if (t.year < 1 || t.year > 9999) {
        return csn_tr_fail(r, "the time to format is not within the years 1 to 9999");
    }
    size_t clean = 0;
    for (size_t i = 0; i < format->len;) {
        if (format->p[i] != '%') {
            i++;
            continue;
        }
        CSN_TRY(csn_tb_put_sub(r, &b, format, clean, i - clean));
        i++;
        char flag =
            i < format->len && (format->p[i] == '-' || format->p[i] == '_' || format->p[i] == '0')
                ? format->p[i++]
                : '\0';
        char text[64];
        int n = i < format->len ? convert(&t, format->p[i], flag, text) : -1;
        if (n < 0) {
            return csn_tr_fail(r, "strftime_now: this format is not supported");
        }
        CSN_TRY(csn_tb_put(r, &b, text, (size_t)n, true));
        i++;
        clean = i;
    }
    CSN_TRY(csn_tb_put_sub(r, &b, format, clean, format->len - clean));
    return csn_tb_finish(r, &b, ret);
}

static bool number(csn_str s, size_t at, size_t n, uint64_t *ret) {
    return at + n <= s.len && csn_str_to_u64(csn_str_make(s.ptr + at, n), ret);
}

bool csn_tf_parse_time(csn_str s, int64_t *ret) {
    uint64_t y, m, d;
    uint64_t h = 0, min = 0, sec = 0;
    if (!number(s, 0, 4, &y) || !number(s, 5, 2, &m) || !number(s, 8, 2, &d) || s.ptr[4] != '-' ||
        s.ptr[7] != '-' || m < 1 || m > 12 || d < 1 || d > 31) {
        return false;
    }
    if (s.len != 10) {
        if (s.len != 19 || (s.ptr[10] != ' ' && s.ptr[10] != 'T') || s.ptr[13] != ':' ||
            s.ptr[16] != ':' || !number(s, 11, 2, &h) || !number(s, 14, 2, &min) ||
            !number(s, 17, 2, &sec) || h > 23 || min > 59 || sec > 59) {
            return false;
        }
    }
    *ret = days_of((int64_t)y, (int)m, (int)d) * 86400 + (int64_t)(h * 3600 + min * 60 + sec);
    return true;
}
