/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"

void csn_hex_encode(const uint8_t *bytes, size_t n, char *ret) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * n] = '\0';
}

static int value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool csn_hex_decode(csn_str s, uint8_t *ret, size_t n) {
    if (s.len != 2 * n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        int hi = value(s.ptr[2 * i]);
        int lo = value(s.ptr[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return false;
        }
        ret[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}
