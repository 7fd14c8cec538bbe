/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xxh3_template.h"

void csn_xxh3_avx2(const void *bytes, size_t n, uint8_t ret[CSN_DIGEST_BYTES]) {
    xxh3(bytes, n, ret);
}
