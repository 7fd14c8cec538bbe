/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

caisson_status csn_progress_tell(const csn_progress *p, const char *stage, uint64_t done,
                                 uint64_t total, caisson_error *err) {
    if (p == NULL || p->fn == NULL || p->fn(p->ctx, stage, done, total)) {
        return CAISSON_OK;
    }
    return CSN_FAIL(err, CAISSON_E_CANCELLED, .what = "stopped on request");
}
