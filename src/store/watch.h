/* SPDX-License-Identifier: Apache-2.0 */
/* When a cache in memory is too large for the machine: pages that we use are taken away, and come
 * back one by one as major faults. A budget is then wrong, whatever was planned. */
#ifndef CSN_STORE_WATCH_H
#define CSN_STORE_WATCH_H

#include <stdint.h>

typedef struct csn_watch {
    uint64_t cache_bytes; /* now; its owner sets it */
    uint64_t faults;      /* seen so far */
    uint32_t n_steps, n_bad;
} csn_watch;

void csn_watch_init(csn_watch *w, uint64_t faults, uint64_t cache_bytes);
/* After each token, with the process's count of major faults: the size that the cache should have.
 * Smaller by an eighth after several tokens in a row with many faults; faults of the first tokens,
 * which read a mapped file for the first time, do not count. */
uint64_t csn_watch_step(csn_watch *w, uint64_t faults);

#endif
