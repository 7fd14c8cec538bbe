/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between systems and is not file access (io.h): os_<system>.c. */
#ifndef CSN_BASE_OS_H
#define CSN_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Puts zeroed, read-only memory in place of whole pages of a mapping. May be called in a signal
 * handler. False when the system refuses. */
bool csn_os_zero_pages(void *page, size_t bytes);
/* Makes pages of our own memory be there, whatever they hold already; where the system cannot, they
 * come when they are first touched. */
void csn_os_populate(void *page, size_t bytes);
/* Gives whole pages of our own memory back to the system; what they held is lost. */
void csn_os_discard(void *page, size_t bytes);
/* Pages that this process had to wait for because the system took them away, or because a mapped
 * file was not in memory. */
uint64_t csn_os_major_faults(void);

#endif
