/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that includes libdeflate. */
#include "base/crc32.h"

#include <libdeflate.h>

uint32_t csn_crc32(const void *bytes, size_t n) {
    return libdeflate_crc32(0, bytes, n);
}
