/* SPDX-License-Identifier: Apache-2.0 */
/* The search of vector quantisation (quant/vq.h): for each of many vectors of eight the entry of a
 * codebook that lies nearest.
 *
 * What decides is |c|^2 - 2 c.x, as s = norm, then s = fmaf(twice[d], x[d], s) in rising d; of
 * equal ones the first entry. The same indices for every ISA. */
#ifndef CSN_KERNELS_VQ_NEAREST_H
#define CSN_KERNELS_VQ_NEAREST_H

#include "quant/vq.h"

typedef struct csn_vq_search {
    uint32_t entries;                            /* 1 to 256 */
    float norm[CSN_VQ_MAX_ENTRIES];              /* |c|^2 */
    float twice[CSN_VQ_MAX_ENTRIES][CSN_VQ_DIM]; /* -2 c */
} csn_vq_search;

/* x [n][8], finite; ret [n]. */
typedef void (*csn_vq_nearest_fn)(const csn_vq_search *s, const float *x, uint64_t n, uint8_t *ret);

void csn_vq_search_init(csn_vq_search *s, const float *entry /* [entries][8] */, uint32_t entries);
csn_vq_nearest_fn csn_kernel_vq_nearest(void);

#endif
