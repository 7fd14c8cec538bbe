/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_BASE_CLOCK_H
#define CSN_BASE_CLOCK_H

#include <stdint.h>

uint64_t csn_now_ns(void); /* monotonic */
/* Seconds that the host's local time is ahead of UTC at that moment; 0 where it cannot say. */
int32_t csn_utc_offset_s(int64_t unix_s);

#endif
