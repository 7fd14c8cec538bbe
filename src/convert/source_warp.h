/* SPDX-License-Identifier: Apache-2.0 */
/* A WARP directory as a source: its trunk, and each matrix of each routed expert, under CMF's
 * names.
 */
#ifndef CSN_CONVERT_SOURCE_WARP_H
#define CSN_CONVERT_SOURCE_WARP_H

#include "convert/source.h"

/* Fills an empty source. */
caisson_status csn_source_read_warp(csn_source *s, csn_fs *fs, const char *path, const csn_log *log,
                                    caisson_error *err);

/* The bytes that tensor t of s->dir is made of, in place of what `buf` held; a record of an expert
 * whose checksum is wrong is CAISSON_E_HASH. */
caisson_status csn_source_warp_fetch(const csn_source *s, const csn_tensor *t, csn_buf *buf,
                                     caisson_error *err);
/* Row `row` of what was fetched, [cols]. Any thread. */
typedef struct csn_warp_view {
    csn_matrix trunk;      /* dtype NULL: an expert */
    csn_vq_matrix experts; /* of one */
} csn_warp_view;
caisson_status csn_source_warp_view(const csn_source *s, const csn_tensor *t, const csn_buf *buf,
                                    csn_warp_view *ret, caisson_error *err);
void csn_source_warp_decode(const csn_warp_view *r, uint64_t row, float *out);

#endif
