/* SPDX-License-Identifier: Apache-2.0 */
/* The CRC-32 of zlib and gzip (reflected 0xEDB88320): finds damage, proves nothing against someone
 * who wants to deceive. */
#ifndef CSN_BASE_CRC32_H
#define CSN_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t csn_crc32(const void *bytes, size_t n);

#endif
