/* SPDX-License-Identifier: Apache-2.0 */
/* All heap memory of the library. Tests make the n-th allocation fail (csn_alloc_fail_after), so
 * that every path behind a failed allocation is walked.
 */
#ifndef CSN_BASE_ALLOC_H
#define CSN_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* count * size bytes, zeroed; *ret is NULL-safe to free. Fails with CAISSON_E_NOMEM. */
caisson_status csn_alloc(size_t count, size_t size, void **ret, caisson_error *err);
/* Grows or shrinks *p to count * size bytes; new bytes are not zeroed; on failure *p stays. */
caisson_status csn_realloc(void **p, size_t count, size_t size, caisson_error *err);
/* Aligned to 64 bytes, from 64 KiB on to a page (CSN_DIRECT_ALIGN), huge pages advised from 4 MiB
 * on; not zeroed; free with csn_free_aligned. */
caisson_status csn_alloc_aligned(size_t bytes, void **ret, caisson_error *err);
/* What it takes of the system for so many bytes. */
uint64_t csn_alloc_aligned_nbytes(uint64_t bytes);
void csn_free(void *p);
void csn_free_aligned(void *p);

/* Typed form: CSN_NEW(n, &ptr, err). */
#define CSN_NEW(count, ret, err) csn_alloc((count), sizeof(**(ret)), (void **)(ret), (err))
#define CSN_GROW(p, count, err) csn_realloc((void **)(p), (count), sizeof(**(p)), (err))

/* Tests only: the call that is n-th from now (0 = the next) and all later ones fail; -1 = never. */
void csn_alloc_fail_after(int64_t n);

#endif
