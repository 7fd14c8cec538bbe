/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytelevel.h"

static bool is_plain(unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

uint32_t csn_bytelevel_char(uint8_t byte) {
    unsigned b = byte;
    if (is_plain(b)) {
        return b;
    }
    /* 0x00-0x20 -> 0x100-0x120, 0x7f-0xa0 -> 0x121-0x142, 0xad -> 0x143 */
    return b <= 0x20 ? 0x100 + b : b <= 0xa0 ? 0x121 + (b - 0x7f) : 0x143;
}

int csn_bytelevel_byte(uint32_t cp) {
    if (cp < 0x100) {
        return is_plain(cp) ? (int)cp : -1;
    }
    if (cp <= 0x120) {
        return (int)(cp - 0x100);
    }
    if (cp <= 0x142) {
        return (int)(cp - 0x121 + 0x7f);
    }
    return cp == 0x143 ? 0xad : -1;
}

caisson_status csn_bytelevel_append(csn_buf *out, csn_str bytes, caisson_error *err) {
    CSN_TRY(csn_buf_reserve(out, bytes.len * 2, err));
    char *p = out->ptr + out->len;
    for (size_t i = 0; i < bytes.len; i++) {
        uint32_t cp = csn_bytelevel_char((uint8_t)bytes.ptr[i]);
        if (cp < 0x80) {
            *p++ = (char)cp;
        } else {
            *p++ = (char)(0xc0 | cp >> 6);
            *p++ = (char)(0x80 | (cp & 0x3f));
        }
    }
    out->len = (size_t)(p - out->ptr);
    *p = '\0';
    return CAISSON_OK;
}
