/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work and the request to stop it, in one callback. */
#ifndef CSN_BASE_PROGRESS_H
#define CSN_BASE_PROGRESS_H

#include "base/error.h"

typedef struct csn_progress {
    /* done of total units (bytes or tokens); false = stop. NULL = nobody watches. */
    bool (*fn)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} csn_progress;

/* CAISSON_E_CANCELLED when the watcher asked to stop. `p` may be NULL. */
caisson_status csn_progress_tell(const csn_progress *p, const char *stage, uint64_t done,
                                 uint64_t total, caisson_error *err);

#endif
