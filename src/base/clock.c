/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

uint64_t csn_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

int32_t csn_utc_offset_s(int64_t unix_s) {
    time_t t = (time_t)unix_s;
    struct tm local;
    return localtime_r(&t, &local) != NULL ? (int32_t)local.tm_gmtoff : 0;
}
