/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as hexadecimal text, two digits a byte. */
#ifndef CSN_BASE_HEX_H
#define CSN_BASE_HEX_H

#include "base/str.h"

/* Lower case; ret: 2 n characters and a NUL. */
void csn_hex_encode(const uint8_t *bytes, size_t n, char *ret);
/* Exactly 2 n digits of either case; false (ret is scratch) for anything else. */
bool csn_hex_decode(csn_str s, uint8_t *ret, size_t n);

#endif
