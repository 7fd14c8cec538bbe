/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions over UTF-8: the only user of PCRE2. Unicode properties are on, `^` and `$`
 * match at lines, a newline is LF alone. Every match runs under the limits of caisson/limits.h.
 */
#ifndef CSN_BASE_REGEX_H
#define CSN_BASE_REGEX_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_regex csn_regex;                 /* immutable: any number of threads */
typedef struct csn_regex_scratch csn_regex_scratch; /* one thread at a time */

/* Errors: CAISSON_E_PARSE (offset = byte in the pattern), CAISSON_E_LIMIT, CAISSON_E_NOMEM. */
caisson_status csn_regex_compile(csn_str pattern, csn_regex **ret, caisson_error *err);
void csn_regex_free(csn_regex *re);

/* Room for one match; serves any csn_regex. */
caisson_status csn_regex_scratch_new(csn_regex_scratch **ret, caisson_error *err);
void csn_regex_scratch_free(csn_regex_scratch *s);

/* The leftmost match at or after byte `from` of `text`, which must be valid UTF-8 with `from` at
 * the start of a code point (or at the end). Looks behind `from`. Without a match *found is false.
 * Errors: CAISSON_E_LIMIT (match limit or stack), CAISSON_E_NOMEM. */
caisson_status csn_regex_find(const csn_regex *re, csn_regex_scratch *s, csn_str text, size_t from,
                              bool *found, size_t *start, size_t *end, caisson_error *err);

#endif
