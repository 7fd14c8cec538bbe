/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings in a stream of text, found across the borders of its pieces. What could be the start
 * of a stop string is held back until the next piece decides.
 */
#ifndef CSN_ENGINE_STOPS_H
#define CSN_ENGINE_STOPS_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_stops {
    const csn_str *stop; /* [n], none empty, valid UTF-8; borrowed */
    size_t n;
    csn_buf held; /* text not yet given out: shorter than the longest stop string */
} csn_stops;

void csn_stops_init(csn_stops *s, const csn_str *stop, size_t n);
void csn_stops_done(csn_stops *s);

/* Takes a piece; appends to *out what is now known to be before any stop string. *ret_hit: the
 * index of the stop string that came first (the lowest index at one place), or SIZE_MAX. After a
 * hit nothing may be fed any more. */
caisson_status csn_stops_feed(csn_stops *s, csn_str piece, csn_buf *out, size_t *ret_hit,
                              caisson_error *err);
/* No more text comes: appends what was held back. */
caisson_status csn_stops_flush(csn_stops *s, csn_buf *out, caisson_error *err);

#endif
