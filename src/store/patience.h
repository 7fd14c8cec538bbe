/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for those who read: for a moment at a time, so that the host is asked whether to go on,
 * and with an end when the disk has long given nothing. */
#ifndef CSN_STORE_PATIENCE_H
#define CSN_STORE_PATIENCE_H

#include <pthread.h>

#include "base/progress.h"

enum { CSN_STALL_MS = 30000 }; /* a disk that is silent for so long has failed */

typedef struct csn_patience {
    uint32_t stall_ms;
    const char *section; /* of the error; NULL: none */
    const char *stage;   /* as progress hears it */
    /* How long the caller has waited in vain. Moments are counted, not the clock: a process that
     * was stopped for a while has not waited. */
    uint32_t quiet_ms;
    uint64_t n_done; /* what the readers had done before the last moment */
} csn_patience;

/* A condition on whose monotonic clock csn_patience_wait waits. */
void csn_patience_cond_init(pthread_cond_t *done);
/* With the mutex: asks the host, without it; then waits on `done`, for a moment. n_done grows as
 * long as the disk gives something. *ret_is_quiet: nobody signalled. CAISSON_E_CANCELLED;
 * CAISSON_E_IO when the disk was silent for stall_ms. */
caisson_status csn_patience_wait(csn_patience *p, pthread_mutex_t *mutex, pthread_cond_t *done,
                                 const uint64_t *n_done, const csn_progress *progress,
                                 bool *ret_is_quiet, caisson_error *err);

#endif
