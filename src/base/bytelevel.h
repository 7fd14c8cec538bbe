/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2's byte-level alphabet: printable bytes stand for themselves, the others follow from U+0100
 * on in rising order. */
#ifndef CSN_BASE_BYTELEVEL_H
#define CSN_BASE_BYTELEVEL_H

#include "base/error.h"
#include "base/str.h"

uint32_t csn_bytelevel_char(uint8_t byte);
int csn_bytelevel_byte(uint32_t cp); /* -1: not of the alphabet */
caisson_status csn_bytelevel_append(csn_buf *out, csn_str bytes, caisson_error *err);

#endif
