/* SPDX-License-Identifier: Apache-2.0 */
/* What q8g, q4g and q3g share, the dtypes of WARP's trunk (warp facts 3): a row is padded with
 * zeros to whole groups of 128; all rows of codes, then a binary16 scale a group, [rows][groups];
 * w = code * scale. Shapes are [rows, cols]. Nothing is aligned. */
#ifndef CSN_QUANT_GROUP128_H
#define CSN_QUANT_GROUP128_H

#include "quant/quant_internal.h"

enum { CSN_GROUP128 = 128 };

typedef struct csn_group128 {
    const csn_dtype *dtype;
    unsigned bits;  /* of a code */
    unsigned guard; /* bytes of zero behind each row */
    float max, min; /* codes; the largest magnitude of a group becomes max */
    void (*pack)(const int8_t code[CSN_GROUP128], uint8_t *out); /* 16 * bits bytes */
    void (*unpack)(const uint8_t *in, int8_t code[CSN_GROUP128]);
} csn_group128;

static inline uint64_t csn_group128_count(uint64_t cols) {
    return cols / CSN_GROUP128 + (cols % CSN_GROUP128 != 0);
}

caisson_status csn_group128_nbytes(const csn_group128 *g, const csn_shape *shape, uint64_t *ret,
                                   caisson_error *err);
void csn_group128_decode(const csn_group128 *g, const csn_matrix *m, uint64_t i0, uint64_t n,
                         float *out);
/* scale = max(largest magnitude, 1e-8) / g->max; codes are rounded half to even against the f32
 * scale, and its binary16 is stored. */
caisson_status csn_group128_encode(const csn_group128 *g, const float *x, const csn_shape *shape,
                                   const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                   caisson_error *err);

#endif
