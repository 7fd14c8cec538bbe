/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between systems and is not file access (io.h): os_<system>.c. */
#ifndef CSN_BASE_OS_H
#define CSN_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>

/* Puts zeroed, read-only memory in place of whole pages of a mapping. May be called in a signal
 * handler. False when the system refuses. */
bool csn_os_zero_pages(void *page, size_t bytes);

#endif
