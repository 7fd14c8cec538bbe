/* SPDX-License-Identifier: Apache-2.0 */
/* f16 (CMF id 1): IEEE half precision. A finite value above 65504 makes encoding fail, so that no
 * infinity is stored silently (facts 4.1). */
#include "quant/quant_internal.h"

#include <float.h>
#include <math.h>

static caisson_status f16_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n, 2, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

static void f16_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    const uint8_t *p = m->data + 2 * i0;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = csn_half_to_f32(csn_load16(p + 2 * i));
    }
}

static void encode_units(csn_encode_job *job, uint64_t u0, uint64_t u1) {
    for (uint64_t i = u0; i < u1; i++) {
        uint16_t h = csn_half_from_f32(job->x[i]);
        if (fabsf(job->x[i]) <= FLT_MAX) {
            csn_note_inf(job, h);
        }
        csn_store16(job->out + 2 * i, h);
    }
}

static caisson_status f16_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_f16, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_units, job.n);
    return csn_encode_end(&job, err);
}

static uint32_t f16_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    ret[0] = (csn_row_part){cols * 2, false};
    return 1;
}

static uint32_t f16_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = (csn_numbers){CSN_NUMBER_F16, true, 0, m->rows * m->cols, 2, m->cols};
    return 1;
}

const csn_dtype csn_dtype_f16 = {
    .name = "f16",
    .cmf_id = 1,
    .gguf_id = 1,
    .warp_fmt = 1,
    .safetensors = "F16",
    .group = 1,
    .is_float = true,
    .nbytes = f16_nbytes,
    .decode = f16_decode,
    .row_parts = f16_row_parts,
    .numbers = f16_numbers,
    .encode = f16_encode,
};
