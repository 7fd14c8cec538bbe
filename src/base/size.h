/* SPDX-License-Identifier: Apache-2.0 */
/* Checked size arithmetic. Every number that came from a file passes through here before it
 * reaches an allocator, a pointer or a comparison with a file length. All return false, and leave
 * *ret alone, when the result does not fit.
 */
#ifndef CSN_BASE_SIZE_H
#define CSN_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool csn_add(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *ret = r;
    return true;
}

static inline bool csn_mul(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *ret = r;
    return true;
}

/* Rounds up to a multiple of `align`, a power of two. */
static inline bool csn_align_up(uint64_t a, uint64_t align, uint64_t *ret) {
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) {
        return false;
    }
    *ret = r & ~(align - 1);
    return true;
}

static inline bool csn_to_size(uint64_t a, size_t *ret) {
    if (a > SIZE_MAX) {
        return false;
    }
    *ret = (size_t)a;
    return true;
}

/* True if [off, off + len) lies inside [0, limit). */
static inline bool csn_range_fits(uint64_t off, uint64_t len, uint64_t limit) {
    return off <= limit && len <= limit - off;
}

#endif
