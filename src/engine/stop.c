/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stop.h"

/* Bytes at the end of `text` that begin `stop`, 0 = none. Shorter than stop. */
static size_t partial(csn_str text, csn_str stop) {
    size_t n = stop.len - 1 < text.len ? stop.len - 1 : text.len;
    for (; n > 0; n--) {
        if (memcmp(text.ptr + text.len - n, stop.ptr, n) == 0) {
            return n;
        }
    }
    return 0;
}

bool csn_stop_find(csn_str held, const csn_str *stop, uint32_t n_stop, size_t *ret_tell,
                   uint32_t *ret_stop) {
    size_t first = SIZE_MAX;
    size_t longest = 0;
    for (uint32_t i = 0; i < n_stop; i++) {
        if (stop[i].len == 0) {
            continue;
        }
        size_t at = csn_str_find(held, stop[i], 0);
        if (at < first) {
            first = at;
            *ret_stop = i;
        }
        size_t n = partial(held, stop[i]);
        longest = n > longest ? n : longest;
    }
    if (first != SIZE_MAX) {
        *ret_tell = first;
        return true;
    }
    *ret_tell = held.len - longest;
    return false;
}
