/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, groups and scales of group128.h for codes of any width. */
#ifndef CSN_QUANT_GROUP128_INTERNAL_H
#define CSN_QUANT_GROUP128_INTERNAL_H

#include "quant/group128.h"
#include "quant/quant_internal.h"

typedef struct csn_group128 {
    const csn_dtype *dtype;
    unsigned bits;  /* of a code */
    unsigned guard; /* bytes of zero behind each row */
    float max, min; /* codes; the largest magnitude of a group becomes max */
    void (*pack)(const int8_t code[CSN_GROUP128], uint8_t *out); /* 16 * bits bytes */
    void (*unpack)(const uint8_t *in, int8_t code[CSN_GROUP128]);
} csn_group128;

caisson_status csn_group128_nbytes(const csn_group128 *g, const csn_shape *shape, uint64_t *ret,
                                   caisson_error *err);
uint32_t csn_group128_row_parts(const csn_group128 *g, uint64_t cols,
                                csn_row_part ret[CSN_ROW_PARTS]);
uint32_t csn_group128_numbers(const csn_group128 *g, const csn_matrix *m,
                              csn_numbers ret[CSN_NUMBER_SPANS]);
void csn_group128_decode(const csn_group128 *g, const csn_matrix *m, uint64_t i0, uint64_t n,
                         float *out);
/* scale = max(largest magnitude, 1e-8) / g->max; codes are rounded half to even against the f32
 * scale, and its binary16 is stored. */
caisson_status csn_group128_encode(const csn_group128 *g, const float *x, const csn_shape *shape,
                                   const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                   caisson_error *err);

#endif
