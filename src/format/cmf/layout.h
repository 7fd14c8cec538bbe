/* SPDX-License-Identifier: Apache-2.0 */
/* Where a new file's parts lie, from its plan alone (facts 3.2). */
#ifndef CSN_FORMAT_CMF_LAYOUT_H
#define CSN_FORMAT_CMF_LAYOUT_H

#include "format/cmf/cmf_internal.h"

typedef struct csn_cmf_layout {
    csn_directory dir;  /* names, dtypes, shapes, absolute offsets, bytes; hashes still 0 */
    uint64_t dir_bytes; /* of the directory section */
    uint64_t data_off, data_len;
    uint64_t plan_id; /* of fingerprint, names, dtypes, shapes */
} csn_cmf_layout;

/* CAISSON_E_ARG for a plan that no file can hold (dtype without a CMF id, name of 64 KiB, a
 * dimension of 2^32), PARSE for a name given twice, BOUNDS, LIMIT, NOMEM. */
caisson_status csn_cmf_layout_make(const csn_cmf_plan *plan, csn_arena *arena, csn_cmf_layout *ret,
                                   caisson_error *err);
/* Stores tensor i as f32, whatever the plan says; those behind it move. BOUNDS: past 2^63. */
caisson_status csn_cmf_layout_to_f32(csn_cmf_layout *l, uint32_t i, caisson_error *err);
/* The payload of tensor i has nbytes bytes: of a dtype whose size depends on the payload any
 * number, and those behind it move; of another the plan's (ARG). BOUNDS: past 2^63. */
caisson_status csn_cmf_layout_resize(csn_cmf_layout *l, uint32_t i, uint64_t nbytes,
                                     caisson_error *err);

/* Fills t for p, but for its place: CAISSON_E_ARG for a tensor that no file can hold. */
caisson_status csn_cmf_describe(const csn_cmf_plan_tensor *p, csn_arena *arena, csn_tensor *t,
                                caisson_error *err);
/* The directory section: so many bytes, and the bytes. Offsets of `dir` are absolute. */
uint64_t csn_cmf_directory_bytes(const csn_directory *dir);
void csn_cmf_directory_write(const csn_directory *dir, uint64_t data_off, uint8_t *ret);

#endif
