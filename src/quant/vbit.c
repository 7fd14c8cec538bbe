/* SPDX-License-Identifier: Apache-2.0 */
/* vbit (CMF id 8) and vbit_ro (10), facts 4.6 and 4.7: rows of 3, 4, 5, 6 or 8 bits a weight.
 *
 *   vbit     [u8 bits: rows][f16 scale: rows * cols / 32][packed rows]
 *   vbit_ro  the same with u32 offset[rows + 1] before the packed rows
 *
 * A row takes ceil(cols * bits / 8) bytes. The payload's length follows from the widths, so they
 * are checked at open; decoding comes with the issue that runs these dtypes. */
#include "quant/quant_internal.h"

/* Bytes of widths, scales and, with offsets, of the table; false when it overflows. */
static bool prefix_bytes(const csn_shape *shape, bool has_offsets, uint64_t *ret) {
    uint64_t rows = shape->dim[0];
    uint64_t scales;
    uint64_t table = 0;
    return csn_mul(rows, shape->dim[1] / CSN_GROUP, &scales) && csn_mul(scales, 2, &scales) &&
           csn_add(rows, scales, ret) &&
           (!has_offsets || (csn_add(rows, 1, &table) && csn_mul(table, 4, &table))) &&
           csn_add(*ret, table, ret);
}

static bool is_level(uint8_t bits) {
    return bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}

static caisson_status check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                            bool has_offsets, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "vbit needs whole groups of 32", err));
    uint64_t rows = shape->dim[0];
    uint64_t cols = shape->dim[1];
    uint64_t prefix;
    if (!prefix_bytes(shape, has_offsets, &prefix)) {
        return csn_fail_nbytes(err);
    }
    if (prefix > nbytes) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload ends inside the widths and scales",
                        CSN_VALUES(prefix, nbytes));
    }
    const uint8_t *offsets = has_offsets ? data + (prefix - 4 * (rows + 1)) : data;
    uint64_t packed = 0;
    if (has_offsets && csn_load32(offsets) != 0) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "first row offset is not 0",
                        CSN_VALUES(0, csn_load32(offsets)));
    }
    for (uint64_t r = 0; r < rows; r++) {
        if (!is_level(data[r])) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "width of a row is not 3, 4, 5, 6 or 8",
                            CSN_VALUES(8, data[r]));
        }
        /* cols < 2^59 because rows * cols / 32 * 2 fitted and rows > 0 */
        if (!csn_add(packed, cols / 8 * data[r], &packed)) {
            return csn_fail_nbytes(err);
        }
        if (has_offsets && csn_load32(offsets + 4 * (r + 1)) != packed) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "row offset disagrees with the widths",
                            CSN_VALUES(packed, csn_load32(offsets + 4 * (r + 1))));
        }
    }
    if (packed != nbytes - prefix) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload bytes differ from the rows' widths",
                        CSN_VALUES(packed, nbytes - prefix));
    }
    return CAISSON_OK;
}

static caisson_status vbit_check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                                 caisson_error *err) {
    return check(shape, data, nbytes, false, err);
}

static caisson_status vbit_ro_check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                                    caisson_error *err) {
    return check(shape, data, nbytes, true, err);
}

static uint64_t vbit_check_bytes(const csn_shape *shape, uint64_t nbytes) {
    return shape->n_dims == 2 && shape->dim[0] < nbytes ? shape->dim[0] : nbytes;
}

static uint64_t vbit_ro_check_bytes(const csn_shape *shape, uint64_t nbytes) {
    uint64_t prefix;
    return shape->n_dims == 2 && prefix_bytes(shape, true, &prefix) && prefix < nbytes ? prefix
                                                                                       : nbytes;
}

const csn_dtype csn_dtype_vbit = {
    .name = "vbit",
    .cmf_id = 8,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = vbit_check,
    .check_bytes = vbit_check_bytes,
};

const csn_dtype csn_dtype_vbit_ro = {
    .name = "vbit_ro",
    .cmf_id = 10,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = vbit_ro_check,
    .check_bytes = vbit_ro_check_bytes,
};
