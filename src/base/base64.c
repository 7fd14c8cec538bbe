/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

caisson_status csn_base64_append(csn_buf *out, const void *bytes, size_t n, caisson_error *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = bytes;
    caisson_status status = csn_buf_reserve(out, csn_base64_len(n), err);
    for (size_t i = 0; i < n && status == CAISSON_OK; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t word = (uint32_t)p[i] << 16 | (have > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (have > 2 ? (uint32_t)p[i + 2] : 0);
        char text[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        have > 1 ? digits[word >> 6 & 63] : '=',
                        have > 2 ? digits[word & 63] : '='};
        status = csn_buf_append(out, text, sizeof(text), err);
    }
    return status;
}

static int value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool csn_base64_decode(csn_str s, uint8_t *out, size_t *ret_n) {
    if (s.len % 4 != 0) {
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < s.len; i += 4) {
        size_t pad = 0;
        if (i + 4 == s.len && s.ptr[i + 3] == '=') {
            pad = s.ptr[i + 2] == '=' ? 2 : 1;
        }
        uint32_t word = 0;
        for (size_t k = 0; k < 4; k++) {
            int v = k >= 4 - pad ? 0 : value(s.ptr[i + k]);
            if (v < 0) {
                return false;
            }
            word = word << 6 | (uint32_t)v;
        }
        if ((word & ((UINT32_C(1) << 8 * pad) - 1)) != 0) {
            return false; /* bits behind the last byte */
        }
        for (size_t k = 0; k < 3 - pad; k++) {
            out[n++] = (uint8_t)(word >> (16 - 8 * k));
        }
    }
    *ret_n = n;
    return true;
}
