/* SPDX-License-Identifier: Apache-2.0 */
/* The same bytes in every run, for tests that compare kernels. Include cmocka first. */
#ifndef CSN_TESTS_RANDOM_BYTES_H
#define CSN_TESTS_RANDOM_BYTES_H

#include <stdint.h>
#include <stdlib.h>

static uint32_t seed = 1;

static inline uint8_t next_byte(void) {
    seed = seed * 1664525 + 1013904223;
    return (uint8_t)(seed >> 24);
}

/* n bytes with bits in `mask` alone, aligned to 64; the caller frees them. */
static inline void *random_bits(uint64_t n, uint8_t mask) {
    uint8_t *p = aligned_alloc(64, (size_t)(n + 63) / 64 * 64);
    assert_non_null(p);
    for (uint64_t i = 0; i < n; i++) {
        p[i] = next_byte() & mask;
    }
    return p;
}

static inline void *random_bytes(uint64_t n) {
    return random_bits(n, 0xFF);
}

/* No f16 or f32 among them is infinite or no number. */
static inline void *random_finite(uint64_t n) {
    return random_bits(n, 0xBB);
}

#endif
