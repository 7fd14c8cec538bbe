/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are the same everywhere: xoshiro256**. A stream a purpose, so that what is
 * made does not depend on the order it is made in. Not for secrets. */
#ifndef CSN_BASE_RANDOM_H
#define CSN_BASE_RANDOM_H

#include "base/str.h"

typedef struct csn_random {
    uint64_t s[4];
} csn_random;

csn_random csn_random_seed(uint64_t seed, csn_str purpose, uint64_t a, uint64_t b);
static inline uint64_t csn_random_u64(csn_random *r) {
    uint64_t x = r->s[1] * 5, t = r->s[1] << 17;
    uint64_t ret = (x << 7 | x >> 57) * 9;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = r->s[3] << 45 | r->s[3] >> 19;
    return ret;
}
/* Below n, which is at least 1: each number as likely as the next, but for one part in 2^32. */
static inline uint32_t csn_random_below(csn_random *r, uint32_t n) {
    return (uint32_t)((csn_random_u64(r) >> 32) * n >> 32);
}
static inline float csn_random_f32(csn_random *r) { /* -1 to 1 */
    return (float)((int64_t)csn_random_u64(r) >> 40) * 0x1p-23f;
}
void csn_random_bytes(csn_random *r, uint8_t *out, size_t n);

#endif
