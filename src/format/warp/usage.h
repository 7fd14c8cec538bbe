/* SPDX-License-Identifier: Apache-2.0 */
/* usage.waste: which experts were in memory when a model was closed, and how often they were used
 * (warp facts 7). */
#ifndef CSN_FORMAT_WARP_USAGE_H
#define CSN_FORMAT_WARP_USAGE_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_warp_use {
    uint32_t layer, expert; /* below 2^16 */
    uint32_t hits, last;    /* last: the clock when it was used last */
} csn_warp_use;

enum { CSN_WARP_MAX_USAGE_BYTES = 16 << 20 };

/* Appends the file to *out. */
caisson_status csn_warp_usage_write(const csn_warp_use *use, uint32_t n, uint64_t clock,
                                    csn_buf *out, caisson_error *err);
/* *ret [*ret_n] is csn_free'd by the caller; nothing in it is checked against a model. */
caisson_status csn_warp_usage_parse(csn_str bytes, csn_warp_use **ret, uint32_t *ret_n,
                                    caisson_error *err);

#endif
