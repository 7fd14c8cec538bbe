/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include "base/hash64.h"
#include "base/le.h"

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

csn_random csn_random_seed(uint64_t seed, csn_str purpose, uint64_t a, uint64_t b) {
    csn_random r;
    uint64_t x = csn_hash64(purpose.ptr, purpose.len) ^ seed;
    x = splitmix(&x) ^ a;
    x = splitmix(&x) ^ b;
    for (int i = 0; i < 4; i++) {
        r.s[i] = splitmix(&x);
    }
    return r;
}

void csn_random_bytes(csn_random *r, uint8_t *out, size_t n) {
    csn_random local = *r; /* in registers */
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        csn_put64(out + i, csn_random_u64(&local));
    }
    for (uint64_t v = csn_random_u64(&local); i < n; i++, v >>= 8) {
        out[i] = (uint8_t)v;
    }
    *r = local;
}
