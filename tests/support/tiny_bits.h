/* SPDX-License-Identifier: Apache-2.0 */
/* The bits of a tiny model's logits as one number. */
#ifndef TESTS_SUPPORT_TINY_BITS_H
#define TESTS_SUPPORT_TINY_BITS_H

#include "engine/session.h"
#include "support/tiny_model.h"

#define TINY_BITS_START UINT64_C(14695981039346656037)

static inline uint64_t tiny_hash(uint64_t h, const float *logits, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, &logits[k], sizeof(bits));
        h = (h ^ bits) * UINT64_C(1099511628211);
    }
    return h;
}

/* FNV-1a over the bits of the rows that csn_session_eval hands out; ctx: uint64_t *. */
static inline caisson_status tiny_hash_row(void *ctx, uint32_t i, const float *logits,
                                           caisson_error *err) {
    uint64_t *h = ctx;
    (void)i;
    (void)err;
    *h = tiny_hash(*h, logits, TINY_VOCAB);
    return CAISSON_OK;
}

#endif
