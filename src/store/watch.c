/* SPDX-License-Identifier: Apache-2.0 */
#include "store/watch.h"

enum {
    WARM_UP = 8,         /* tokens */
    MANY_FAULTS = 64,    /* of one token: 64 x 0.1 ms, or 256 KiB that had to be read again */
    TOKENS_IN_A_ROW = 3, /* one may be a neighbour's doing */
    SHARE = 8
};

void csn_watch_init(csn_watch *w, uint64_t faults, uint64_t cache_bytes) {
    *w = (csn_watch){.cache_bytes = cache_bytes, .faults = faults};
}

uint64_t csn_watch_step(csn_watch *w, uint64_t faults) {
    uint64_t more = faults - w->faults;
    w->faults = faults;
    if (w->n_steps < WARM_UP) {
        w->n_steps++;
        return w->cache_bytes;
    }
    w->n_bad = more >= MANY_FAULTS ? w->n_bad + 1 : 0;
    if (w->n_bad < TOKENS_IN_A_ROW) {
        return w->cache_bytes;
    }
    w->n_bad = 0;
    return w->cache_bytes - w->cache_bytes / SHARE;
}
