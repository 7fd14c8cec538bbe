/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and their decimal text, the same under every locale of the host: the decimal sign is a
 * point.
 */
#ifndef CSN_BASE_NUMBER_H
#define CSN_BASE_NUMBER_H

#include <locale.h>

#include "base/error.h"

enum { CSN_MAX_DIGITS = 17, CSN_NUMBER_TEXT = 48 };

/* The fewest significant digits whose nearest double (nearest f32 of that, with is_f32) is |v|;
 * v is finite. Without a final '\0'. Returns how many; *ret_exponent is the decimal exponent of the
 * first one: 12.5 gives "125" and 1. Zero gives "0" and 0. */
int csn_number_digits(double v, bool is_f32, char out[CSN_MAX_DIGITS], int *ret_exponent);

/* Those digits as text that JSON can read, with a final '\0': 10000.0, 0.25, 1e-6; an integral
 * value shows that it is a float. What is not finite: nan, inf, -inf. Returns the length. */
int csn_number_text(double v, bool is_f32, char out[CSN_NUMBER_TEXT]);

/* The double nearest to digits x 10^exponent; digits is decimal, 1 to 17 long. */
double csn_number_scaled(const char *digits, int n_digits, int exponent);

/* Brackets around code that uses printf or strtod with a decimal point: between them the calling
 * thread has the "C" locale for numbers, other threads keep theirs. begin fails with NOMEM only. */
typedef struct csn_c_numbers {
    locale_t c, host;
} csn_c_numbers;
caisson_status csn_c_numbers_begin(csn_c_numbers *n, caisson_error *err);
void csn_c_numbers_end(csn_c_numbers *n);

#endif
