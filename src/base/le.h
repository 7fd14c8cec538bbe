/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian numbers in bytes, at any address. */
#ifndef CSN_BASE_LE_H
#define CSN_BASE_LE_H

#include <stdint.h>

static inline uint16_t csn_get16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t csn_get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t csn_get64(const uint8_t *p) {
    return csn_get32(p) | (uint64_t)csn_get32(p + 4) << 32;
}
static inline void csn_put16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void csn_put32(uint8_t *p, uint32_t v) {
    csn_put16(p, (uint16_t)v);
    csn_put16(p + 2, (uint16_t)(v >> 16));
}
static inline void csn_put64(uint8_t *p, uint64_t v) {
    csn_put32(p, (uint32_t)v);
    csn_put32(p + 4, (uint32_t)(v >> 32));
}

#endif
