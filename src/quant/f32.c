/* SPDX-License-Identifier: Apache-2.0 */
/* f32 (CMF id 0): four bytes an element, little-endian. */
#include "quant/quant_internal.h"

static caisson_status f32_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n, 4, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

static void f32_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    const uint8_t *p = m->data + 4 * i0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (n > 0) {
        memcpy(out, p, n * 4);
    }
#else
    for (uint64_t i = 0; i < n; i++) {
        out[i] = csn_f32_from_bits(csn_load32(p + 4 * i));
    }
#endif
}

static void encode_units(csn_encode_job *job, uint64_t u0, uint64_t u1) {
    for (uint64_t i = u0; i < u1; i++) {
        uint32_t b = csn_f32_bits(job->x[i]);
        csn_store16(job->out + 4 * i, (uint16_t)b);
        csn_store16(job->out + 4 * i + 2, (uint16_t)(b >> 16));
    }
}

static caisson_status f32_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_f32, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_units, job.n);
    return CAISSON_OK;
}

static uint32_t f32_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    ret[0] = (csn_row_part){cols * 4, false};
    return 1;
}

static uint32_t f32_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = (csn_numbers){CSN_NUMBER_F32, true, 0, m->rows * m->cols, 4, m->cols};
    return 1;
}

const csn_dtype csn_dtype_f32 = {
    .name = "f32",
    .cmf_id = 0,
    .gguf_id = 0,
    .warp_fmt = 0,
    .safetensors = "F32",
    .group = 1,
    .is_float = true,
    .nbytes = f32_nbytes,
    .decode = f32_decode,
    .row_parts = f32_row_parts,
    .numbers = f32_numbers,
    .encode = f32_encode,
};
