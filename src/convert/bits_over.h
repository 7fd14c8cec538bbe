/* SPDX-License-Identifier: Apache-2.0 */
/* One budget of bits for several tensors of vbit (CMF 3.2: a family): the pass over the source that
 * comes before the one that writes. */
#ifndef CSN_CONVERT_BITS_OVER_H
#define CSN_CONVERT_BITS_OVER_H

#include "convert/plan.h"

/* Sets bits_bias of the items that become vbit or vbit_ro. Reads those that share a budget, and
 * nothing with CSN_BITS_OVER_TENSOR. Memory: one tensor as f32 and 4 bytes a row of a family.
 * Errors: those of csn_tensor_read_f32, CANCELLED. */
caisson_status csn_convert_share_bits(const csn_source *s, csn_convert_plan *plan,
                                      const csn_convert_options *o, csn_pool *pool, csn_buf *piece,
                                      caisson_error *err);

#endif
