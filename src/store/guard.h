/* SPDX-License-Identifier: Apache-2.0 */
/* SIGBUS inside our mappings, turned into a flag. A page of a mapped file that is not there any
 * more (the file was cut, the disk failed) raises SIGBUS in whichever thread touches it. While a
 * guard exists, the handler puts a page of zeros there, notes the loss in that guard, and the
 * thread goes on; whoever runs guarded work asks for the flag afterwards.
 *
 * The handler is installed with the first guard, chained to the previous one for all other
 * addresses, and removed with the last, unless someone installed theirs on top meanwhile: then it
 * stays below, and theirs has to pass on to it what it does not handle.
 */
#ifndef CSN_STORE_GUARD_H
#define CSN_STORE_GUARD_H

#include <stdint.h>

#include "base/error.h"

typedef struct csn_guard csn_guard;

/* Guards [base, base + size), base on a page border. CAISSON_E_LIMIT: too many guards at once. */
caisson_status csn_guard_new(const void *base, uint64_t size, csn_guard **ret, caisson_error *err);
/* Before the range is unmapped. NULL is fine. */
void csn_guard_free(csn_guard *g);
/* True once a page was lost; *ret_offset = where in the range it was first noticed. It stays true:
 * the zeros stay as well. */
bool csn_guard_is_lost(const csn_guard *g, uint64_t *ret_offset);

#endif
