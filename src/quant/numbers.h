/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the numbers of a payload that are not finite. A format that gives every bit pattern of an
 * f16 a meaning has such payloads; no weight can be one, so verify calls them a fault. Where the
 * numbers lie each dtype says (csn_dtype.numbers).
 */
#ifndef CSN_QUANT_NUMBERS_H
#define CSN_QUANT_NUMBERS_H

#include "quant/dtype.h"

/* bytes: [begin, end) of a payload. The first number of s that is not finite and whose exponent
 * lies there: *ret_at is its offset in the payload. A payload may be looked through in pieces that
 * begin at multiples of 4. */
bool csn_numbers_find(const csn_numbers *s, const uint8_t *bytes, uint64_t begin, uint64_t end,
                      uint64_t *ret_at);
/* The same for all numbers of m, whose data is not looked at; *ret: those of which it is one. */
bool csn_numbers_find_any(const csn_matrix *m, const uint8_t *bytes, uint64_t begin, uint64_t end,
                          csn_numbers *ret, uint64_t *ret_at);

enum { CSN_NUMBER_MAX_BYTES = 4 };

/* The fault: CAISSON_E_PARSE with the value and, where s is in the order of rows, the row.
 * `number`: its bytes, which lie in the file at file_offset. */
caisson_status csn_numbers_fail(const csn_numbers *s, uint64_t at, const uint8_t *number,
                                uint64_t file_offset, caisson_error *err);

#endif
