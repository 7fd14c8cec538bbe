/* SPDX-License-Identifier: Apache-2.0 */
/* q2tp (CMF id 16, facts 4.12): q4tp with two bits a weight,
 * [2-bit plane: rows * gpr * 8][params: rows x 4][codes: rows x ceil(5 * gpr / 8)].
 * Known by size only; decoding comes with the issue that runs it. */
#include "quant/quant_internal.h"

static caisson_status q2tp_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q2tp needs whole groups of 32", err));
    uint64_t gpr = shape->dim[1] / CSN_GROUP;
    uint64_t row_bytes;
    return csn_mul(gpr, 8, &row_bytes) && csn_add(row_bytes, 4 + gpr / 8 * 5, &row_bytes) &&
                   csn_add(row_bytes, (gpr % 8 * 5 + 7) / 8, &row_bytes) &&
                   csn_mul(shape->dim[0], row_bytes, ret)
               ? CAISSON_OK
               : csn_fail_nbytes(err);
}

const csn_dtype csn_dtype_q2tp = {
    .name = "q2tp",
    .cmf_id = 16,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .nbytes = q2tp_nbytes,
};
