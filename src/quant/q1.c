/* SPDX-License-Identifier: Apache-2.0 */
/* The one-bit family of CMF, known by size only; decoding comes with the issue that runs it.
 *
 *   q1   (id 12, facts 4.8)   [f16 scale][4 bytes of signs] for each 32 elements
 *   q1s  (id 13, facts 4.9)   q1, then [u32 count][count x {u32 index, f16 value}]
 *   q1t  (id 14, facts 4.10)  [f16 scale][7 bytes, base 3] a group, row pointers, entries
 *
 * The format defines no size for q1s and q1t (facts 1.5): their overlay may have any length. */
#include "quant/quant_internal.h"

static caisson_status q1_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n / CSN_GROUP + (n % CSN_GROUP != 0), 6, ret) ? CAISSON_OK
                                                                 : csn_fail_nbytes(err);
}

const csn_dtype csn_dtype_q1 = {
    .name = "q1",
    .cmf_id = 12,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .nbytes = q1_nbytes,
};

const csn_dtype csn_dtype_q1s = {
    .name = "q1s",
    .cmf_id = 13,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
};

const csn_dtype csn_dtype_q1t = {
    .name = "q1t",
    .cmf_id = 14,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
};
