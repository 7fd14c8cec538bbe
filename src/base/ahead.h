/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a thread will read next: while it waits for others it asks the caches for it, in
 * small steps. Only advice: nothing is read through these addresses, so they may be wrong, unmapped
 * or a mixture of two settings; the caches are then asked for something else. */
#ifndef CSN_BASE_AHEAD_H
#define CSN_BASE_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CSN_AHEAD_STREAMS = 4, CSN_AHEAD_SPANS = 3 };

/* Stream k of a span is [first + k * apart, first + k * apart + nbytes). */
typedef struct csn_ahead_span {
    uintptr_t first;
    size_t apart, nbytes;
} csn_ahead_span;

/* What one thread asks for. Set by any thread, stepped by the one that waits. Zeroed = nothing. */
typedef struct csn_ahead {
    _Atomic uintptr_t first[CSN_AHEAD_SPANS];
    _Atomic size_t apart[CSN_AHEAD_SPANS], nbytes[CSN_AHEAD_SPANS];
    _Atomic unsigned version; /* raised when the spans change */
    unsigned seen, i_span;    /* the waiting thread's own, as is n_done */
    size_t n_done;            /* bytes of each stream of span i_span */
} csn_ahead;

/* Asks for the first nbytes of four streams. */
static inline void csn_ahead_fetch(uintptr_t first, size_t apart, size_t nbytes) {
    for (int k = 0; k < CSN_AHEAD_STREAMS; k++, first += apart) {
        for (size_t i = 0; i < nbytes; i += 64) { /* lines */
            __builtin_prefetch((const void *)(first + i), 0,
                               3); // NOLINT(performance-no-int-to-ptr)
        }
    }
}

/* Replaces the spans, which are fetched in this order. */
void csn_ahead_set(csn_ahead *a, const csn_ahead_span *spans, unsigned n);
/* Asks for the next piece, some 100 ns of work; false: nothing is left. */
bool csn_ahead_step(csn_ahead *a);

#endif
