/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor of a plan as f32: read in pieces, decoded, rows turned into our order, block scales
 * and offsets applied. */
#ifndef CSN_CONVERT_TENSOR_H
#define CSN_CONVERT_TENSOR_H

#include "convert/plan.h"

/* Told after each piece, with the bytes just read. */
typedef struct csn_tensor_watch {
    caisson_status (*fn)(void *ctx, uint64_t n_bytes, caisson_error *err);
    void *ctx;
} csn_tensor_watch;

/* out: [count of item->shape]. `piece`: scratch that grows to CSN_PIECE_BYTES (of a .cmf
 * or a WARP trunk, to the size of what is asked for). A value that is not
 * finite is refused with its index (CAISSON_E_PARSE). */
enum { CSN_PIECE_BYTES = 8 << 20 };
caisson_status csn_tensor_read_f32(const csn_source *s, const csn_convert_item *item,
                                   csn_pool *pool, csn_buf *piece, const csn_tensor_watch *watch,
                                   float *out, caisson_error *err);
/* Room for the values of a tensor of the plan; csn_free_aligned. *ret_n: how many. */
caisson_status csn_tensor_alloc_f32(const csn_convert_item *item, float **ret, uint64_t *ret_n,
                                    caisson_error *err);
/* x in another dtype: *out is replaced. CAISSON_E_BOUNDS: f16 cannot hold a value or scale. */
caisson_status csn_tensor_encode(const csn_dtype *to, const csn_shape *shape, const float *x,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err);
/* The payload of a .cmf's tensor, in place of what `ret` held. CAISSON_E_HASH when it is damaged.
 */
caisson_status csn_tensor_read_payload(const csn_source *s, const csn_tensor *t,
                                       const csn_tensor_watch *watch, csn_buf *ret,
                                       caisson_error *err);
/* Of a matrix csn_tensor_read_f32 reads some rows alone, when the item has fewer rows
 * (shape.dim[0]) from another on (row0), both multiples of this; 0: it is read whole. */
uint64_t csn_tensor_row_unit(const csn_source *s, const csn_convert_item *item);
/* The sums of (decoded - x)^2 and of x^2 of an encoded tensor; the same bits for any number of
 * threads. */
caisson_status csn_tensor_error_sums(const csn_convert_item *item, csn_str bytes, const float *x,
                                     uint64_t n, csn_pool *pool, double ret[2], caisson_error *err);
double csn_tensor_error_of(const double sums[2]); /* the root of their quotient */
/* ||decoded - x|| / ||x|| */
caisson_status csn_tensor_error(const csn_convert_item *item, csn_str bytes, const float *x,
                                uint64_t n, csn_pool *pool, double *ret, caisson_error *err);

#endif
