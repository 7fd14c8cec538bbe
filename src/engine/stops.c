/* SPDX-License-Identifier: Apache-2.0 */
/* The held text is searched whole at each piece: it is shorter than the longest stop string plus
 * one piece, so the cost per token does not grow with the answer. A held suffix begins with the
 * first byte of a valid UTF-8 stop string, so the cut never falls inside a code point. */
#include "engine/stops.h"

enum { MAX_HELD = 1 << 24 };

void csn_stops_init(csn_stops *s, const csn_str *stop, size_t n) {
    *s = (csn_stops){.stop = stop, .n = n, .held = CSN_BUF_INIT(MAX_HELD)};
}

void csn_stops_done(csn_stops *s) {
    csn_buf_free(&s->held);
}

/* The length of the longest suffix of text that is a proper prefix of a stop string. */
static size_t held_suffix(const csn_stops *s, csn_str text) {
    size_t best = 0;
    for (size_t i = 0; i < s->n; i++) {
        csn_str stop = s->stop[i];
        size_t k = stop.len - 1 < text.len ? stop.len - 1 : text.len;
        for (; k > best; k--) {
            if (memcmp(text.ptr + text.len - k, stop.ptr, k) == 0) {
                best = k;
                break;
            }
        }
    }
    return best;
}

caisson_status csn_stops_feed(csn_stops *s, csn_str piece, csn_buf *out, size_t *ret_hit,
                              caisson_error *err) {
    if (s->n == 0) {
        CSN_TRY(csn_buf_str(out, piece, err));
        *ret_hit = SIZE_MAX;
        return CAISSON_OK;
    }
    CSN_TRY(csn_buf_str(&s->held, piece, err));
    csn_str text = csn_buf_view(&s->held);
    size_t hit = SIZE_MAX;
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < s->n; i++) {
        size_t found = csn_str_find(text, s->stop[i], 0);
        if (found < at) {
            at = found;
            hit = i;
        }
    }
    size_t keep = hit != SIZE_MAX ? 0 : held_suffix(s, text);
    size_t give = hit != SIZE_MAX ? at : text.len - keep;
    CSN_TRY(csn_buf_append(out, text.ptr, give, err));
    if (keep > 0) {
        memmove(s->held.ptr, s->held.ptr + give, keep);
    }
    s->held.len = keep;
    *ret_hit = hit;
    return CAISSON_OK;
}

caisson_status csn_stops_flush(csn_stops *s, csn_buf *out, caisson_error *err) {
    CSN_TRY(csn_buf_str(out, csn_buf_view(&s->held), err));
    s->held.len = 0;
    return CAISSON_OK;
}
