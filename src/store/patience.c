/* SPDX-License-Identifier: Apache-2.0 */
#include "store/patience.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

enum { TICK_MS = 20 }; /* how soon a waiting caller notices that it was cancelled */

void csn_patience_cond_init(pthread_cond_t *done) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(done, &attr);
    pthread_condattr_destroy(&attr);
}

caisson_status csn_patience_wait(csn_patience *p, pthread_mutex_t *mutex, pthread_cond_t *done,
                                 const uint64_t *n_done, const csn_progress *progress,
                                 bool *ret_is_quiet, caisson_error *err) {
    pthread_mutex_unlock(mutex); /* it is the host that is asked */
    caisson_status status = csn_progress_tell(progress, p->stage, 0, 0, err);
    pthread_mutex_lock(mutex);
    CSN_TRY(status);
    p->quiet_ms = p->n_done == *n_done ? p->quiet_ms : 0;
    p->n_done = *n_done;
    if (p->quiet_ms >= p->stall_ms) {
        return CSN_FAIL(err, CAISSON_E_IO, .section = p->section,
                        .what = "the disk does not answer (milliseconds)",
                        CSN_VALUES(p->stall_ms, p->quiet_ms));
    }
    uint64_t until_ns = csn_now_ns() + TICK_MS * UINT64_C(1000000);
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    *ret_is_quiet = pthread_cond_timedwait(done, mutex, &until) == ETIMEDOUT;
    p->quiet_ms += *ret_is_quiet ? TICK_MS : 0;
    return CAISSON_OK;
}
