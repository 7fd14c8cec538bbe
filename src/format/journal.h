/* SPDX-License-Identifier: Apache-2.0 */
/* The journal beside an unfinished file: which leading tensors of which plan are on the disk.
 *
 *   header  "CSNJRNL4", u64 plan id, u64 check
 *   record  u64 hash64 of the tensor's payload, its digest (16 bytes), u64 CMF id of the dtype it
 *           is stored in, u64 bytes of the payload, u64 check (one a tensor, in plan order)
 *
 * A check binds a record to plan and position, so a torn or foreign tail ends the list. A record is
 * written only after the payload was synced.
 */
#ifndef CSN_FORMAT_JOURNAL_H
#define CSN_FORMAT_JOURNAL_H

#include "base/digest.h"
#include "base/io.h"

typedef struct csn_journal_entry {
    uint64_t hash;
    uint8_t digest[CSN_DIGEST_BYTES];
    uint64_t dtype_id, nbytes;
} csn_journal_entry;

typedef struct csn_journal {
    csn_file *file; /* NULL: not open */
    uint64_t plan_id;
    uint32_t n; /* records written */
} csn_journal;

/* Makes a new one at path, which must not exist. */
caisson_status csn_journal_create(csn_fs *fs, const char *path, uint64_t plan_id, csn_journal *ret,
                                  caisson_error *err);
/* Opens the one at path and reads up to max records into entries. CAISSON_E_PARSE when it is of
 * another plan or not a journal. */
caisson_status csn_journal_resume(csn_fs *fs, const char *path, uint64_t plan_id, uint32_t max,
                                  csn_journal_entry *entries, csn_journal *ret, caisson_error *err);
/* Forgets the records from n on. */
caisson_status csn_journal_cut(csn_journal *j, uint32_t n, caisson_error *err);
/* Adds records j->n .. n - 1. */
caisson_status csn_journal_append(csn_journal *j, const csn_journal_entry *entries, uint32_t n,
                                  caisson_error *err);
void csn_journal_close(csn_journal *j);

/* Order-sensitive mixing of 64-bit values, for ids of plans. */
uint64_t csn_journal_mix(uint64_t id, uint64_t value);

#endif
