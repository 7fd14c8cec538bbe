/* SPDX-License-Identifier: Apache-2.0 */
/* printf and strtod follow the host's locale. Everything here either looks at digits and exponent
 * alone, which no locale changes, or swaps the locale of its own thread. */
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int csn_number_digits(double v, bool is_f32, char out[CSN_MAX_DIGITS], int *ret_exponent) {
    char t[CSN_NUMBER_TEXT];
    for (int n_digits = 1;; n_digits++) {
        snprintf(t, sizeof(t), "%.*e", n_digits - 1, v);
        double back = strtod(t, NULL); /* reads the sign that snprintf wrote */
        if (n_digits == CSN_MAX_DIGITS || (is_f32 ? (float)back == (float)v : back == v)) {
            break;
        }
    }
    int n = 0;
    out[0] = '0';
    for (const char *p = t; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') {
            out[n++] = *p;
        }
    }
    *ret_exponent = (int)strtol(strchr(t, 'e') + 1, NULL, 10);
    while (n > 1 && out[n - 1] == '0') {
        n--;
    }
    return n;
}

int csn_number_text(double v, bool is_f32, char out[CSN_NUMBER_TEXT]) {
    if (!isfinite(v)) {
        return snprintf(out, CSN_NUMBER_TEXT, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    }
    char d[CSN_MAX_DIGITS];
    int exponent;
    int n = csn_number_digits(v, is_f32, d, &exponent);
    int point = exponent + 1; /* digits before the decimal point */
    int m = 0;
    if (signbit(v)) {
        out[m++] = '-';
    }
    if (point > 0 && point <= (is_f32 ? 13 : 16)) {
        for (int i = 0; i < (n > point ? n : point + 1); i++) {
            if (i == point) {
                out[m++] = '.';
            }
            out[m++] = i < n ? d[i] : '0';
        }
    } else if (point <= 0 && point > -5) {
        out[m++] = '0';
        out[m++] = '.';
        for (int i = point; i < n; i++) {
            out[m++] = i < 0 ? '0' : d[i];
        }
    } else {
        out[m++] = d[0];
        if (n > 1) {
            out[m++] = '.';
        }
        for (int i = 1; i < n; i++) {
            out[m++] = d[i];
        }
        m += snprintf(out + m, CSN_NUMBER_TEXT - (size_t)m, "e%d", exponent);
    }
    out[m] = '\0';
    return m;
}

double csn_number_scaled(const char *digits, int n_digits, int exponent) {
    char t[CSN_NUMBER_TEXT];
    snprintf(t, sizeof(t), "%.*se%d", n_digits, digits, exponent);
    return strtod(t, NULL);
}

caisson_status csn_c_numbers_begin(csn_c_numbers *n, caisson_error *err) {
    n->c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (n->c == (locale_t)0) {
        return csn_fail_nomem(err, sizeof(*n));
    }
    n->host = uselocale(n->c);
    return CAISSON_OK;
}

void csn_c_numbers_end(csn_c_numbers *n) {
    uselocale(n->host);
    freelocale(n->c);
}
