/* SPDX-License-Identifier: Apache-2.0 */
/* What q8g, q4g and q3g share, the dtypes of WARP's trunk (warp facts 3): a row is padded with
 * zeros to whole groups of 128; all rows of codes, then a binary16 scale a group, [rows][groups];
 * w = code * scale. Shapes are [rows, cols]. Nothing is aligned. */
#ifndef CSN_QUANT_GROUP128_H
#define CSN_QUANT_GROUP128_H

#include <stdint.h>

enum { CSN_GROUP128 = 128 };

/* Groups of a row. */
static inline uint64_t csn_group128_count(uint64_t cols) {
    return cols / CSN_GROUP128 + (cols % CSN_GROUP128 != 0);
}

#endif
