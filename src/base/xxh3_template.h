/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 of xxHash, compiled for the instruction set of the file that includes this: digest.c for
 * the baseline, x86/digest_avx2.c. The package's code is all in its header: nothing is linked. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/digest.h"

/* 16 bytes in the canonical order: the number's most significant byte first. */
static void xxh3(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, n));
    memcpy(ret, c.digest, CSN_DIGEST_BYTES);
}
