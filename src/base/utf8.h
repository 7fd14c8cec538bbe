/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strict: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef CSN_BASE_UTF8_H
#define CSN_BASE_UTF8_H

#include "base/str.h"

/* Decodes the code point at s[i]; returns its length in bytes (1..4), or 0 when the bytes there
 * are not one (also at the end of s). */
size_t csn_utf8_decode(csn_str s, size_t i, uint32_t *ret_cp);
/* Writes 1..4 bytes; returns how many, 0 for a surrogate or a number above U+10FFFF. */
size_t csn_utf8_encode(uint32_t cp, char out[4]);
/* True if all of s is valid. If not and ret_bad != NULL: the offset of the first bad byte. */
bool csn_utf8_valid(csn_str s, size_t *ret_bad);
/* Length of the longest prefix of s that ends at a code point border, for streams: an incomplete
 * but so far valid tail (1..3 bytes) is left off; invalid bytes count as complete. */
size_t csn_utf8_complete(csn_str s);

#endif
