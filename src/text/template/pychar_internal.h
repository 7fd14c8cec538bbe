/* SPDX-License-Identifier: Apache-2.0 */
/* What Python's str methods know about characters. */
#ifndef CSN_TEXT_TEMPLATE_PYCHAR_INTERNAL_H
#define CSN_TEXT_TEMPLATE_PYCHAR_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool csn_py_is_space(uint32_t cp);      /* str.isspace; also what strip() and \s take */
bool csn_py_is_line_break(uint32_t cp); /* str.splitlines */
bool csn_py_is_name_start(uint32_t cp);
bool csn_py_is_name_part(uint32_t cp);
bool csn_py_is_alpha(uint32_t cp);
bool csn_py_is_decimal(uint32_t cp);
int csn_py_decimal(uint32_t cp); /* its value, -1 = no decimal digit */
bool csn_py_is_digit(uint32_t cp);
bool csn_py_is_numeric(uint32_t cp);
bool csn_py_is_upper(uint32_t cp);
bool csn_py_is_lower(uint32_t cp);
bool csn_py_is_title(uint32_t cp);
bool csn_py_is_cased(uint32_t cp);
bool csn_py_is_case_ignorable(uint32_t cp);
bool csn_py_is_printable(uint32_t cp);

typedef enum tcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FOLD } tcase;
/* The full mapping: 1 to 3 code points into out; returns how many. */
size_t csn_py_map_case(uint32_t cp, tcase which, uint32_t out[3]);

#endif
