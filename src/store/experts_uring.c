/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring for the expert store. */
#include "store/experts_internal.h"

caisson_status csn_uring_start(csn_experts *e, caisson_error *err) {
    (void)e;
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .what = "this build has no io_uring");
}

void csn_uring_wake(csn_uring *u) {
    (void)u;
}

void csn_uring_stop(csn_uring *u) {
    (void)u;
}
