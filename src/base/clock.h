/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_BASE_CLOCK_H
#define CSN_BASE_CLOCK_H

#include <stdint.h>

uint64_t csn_now_ns(void); /* monotonic */

#endif
