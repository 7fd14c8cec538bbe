/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648 section 4): standard alphabet, padded, no line breaks. */
#ifndef CSN_BASE_BASE64_H
#define CSN_BASE_BASE64_H

#include "base/str.h"

/* Characters for n bytes; n at most SIZE_MAX / 2. */
static inline size_t csn_base64_len(size_t n) {
    return (n + 2) / 3 * 4;
}
caisson_status csn_base64_append(csn_buf *out, const void *bytes, size_t n, caisson_error *err);
/* False for anything but the one text that encodes some bytes. out: room for s.len / 4 * 3 bytes,
 * scratch when false. */
bool csn_base64_decode(csn_str s, uint8_t *out, size_t *ret_n);

#endif
