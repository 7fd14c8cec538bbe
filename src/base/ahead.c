/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ahead.h"

enum { STEP = 256 /* bytes of each stream */ };

void csn_ahead_set(csn_ahead *a, const csn_ahead_span *spans, unsigned n) {
    for (unsigned i = 0; i < CSN_AHEAD_SPANS; i++) {
        csn_ahead_span s = i < n ? spans[i] : (csn_ahead_span){0};
        atomic_store_explicit(&a->first[i], s.first, memory_order_relaxed);
        atomic_store_explicit(&a->apart[i], s.apart, memory_order_relaxed);
        atomic_store_explicit(&a->nbytes[i], s.nbytes, memory_order_relaxed);
    }
    unsigned v = atomic_load_explicit(&a->version, memory_order_relaxed);
    atomic_store_explicit(&a->version, v + 1, memory_order_release);
}

bool csn_ahead_step(csn_ahead *a) {
    unsigned version = atomic_load_explicit(&a->version, memory_order_acquire);
    if (version != a->seen) {
        a->seen = version;
        a->i_span = 0;
        a->n_done = 0;
    }
    while (a->i_span < CSN_AHEAD_SPANS) {
        if (a->n_done < atomic_load_explicit(&a->nbytes[a->i_span], memory_order_relaxed)) {
            break;
        }
        a->i_span++;
        a->n_done = 0;
    }
    if (a->i_span == CSN_AHEAD_SPANS) {
        return false;
    }
    uintptr_t at = a->n_done + atomic_load_explicit(&a->first[a->i_span], memory_order_relaxed);
    size_t apart = atomic_load_explicit(&a->apart[a->i_span], memory_order_relaxed);
    csn_ahead_fetch(at, apart, STEP);
    a->n_done += STEP;
    return true;
}
