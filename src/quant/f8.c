/* SPDX-License-Identifier: Apache-2.0 */
/* The two eight-bit floats of safetensors.
 *
 *   f8_e4m3  (E4M3FN) sign, 4 exponent bits (bias 7), 3 of mantissa; no infinity, 0x7f and 0xff NaN
 *   f8_e5m2  sign, 5 exponent bits (bias 15), 2 of mantissa; infinities and NaN as IEEE: it is the
 *            upper byte of an f16
 *
 * A block scale beside the tensor (weight_scale_inv) is not part of the dtype: convert applies it.
 */
#include "base/size.h"
#include "quant/quant_internal.h"

static float e4m3_to_f32(uint8_t b) {
    int e = b >> 3 & 0x0f, m = b & 7;
    if (e == 15 && m == 7) {
        return csn_f16_to_f32((uint16_t)(0x7e00u | (uint16_t)(b & 0x80) << 8));
    }
    /* 2^(e - 7) * (1 + m/8), or 2^-6 * m/8: as an integer over 2^9, exact in f32. */
    float v = e == 0 ? (float)m / 512.0f : (float)((8 + m) << e) / 1024.0f;
    return b & 0x80 ? -v : v;
}

static caisson_status f8_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    if (!csn_shape_count(shape, &n)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "tensor size overflows");
    }
    *ret = n;
    return CAISSON_OK;
}

static void e4m3_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    for (uint64_t i = 0; i < n; i++) {
        out[i] = e4m3_to_f32(m->data[i0 + i]);
    }
}

static void e5m2_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    for (uint64_t i = 0; i < n; i++) {
        out[i] = csn_f16_to_f32((uint16_t)((uint16_t)m->data[i0 + i] << 8));
    }
}

const csn_dtype csn_dtype_f8_e4m3 = {
    .name = "f8_e4m3",
    .cmf_id = CSN_NO_ID,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .safetensors = "F8_E4M3",
    .group = 1,
    .nbytes = f8_nbytes,
    .decode = e4m3_decode,
};
const csn_dtype csn_dtype_f8_e5m2 = {
    .name = "f8_e5m2",
    .cmf_id = CSN_NO_ID,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .safetensors = "F8_E5M2",
    .group = 1,
    .nbytes = f8_nbytes,
    .decode = e5m2_decode,
};
