/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 (CMF id 2): the upper half of an f32 (facts 4.1). A finite value that rounds to infinity
 * makes encoding fail, as in f16. */
#include "quant/quant_internal.h"

#include <float.h>
#include <math.h>

static caisson_status bf16_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n, 2, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

static void bf16_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    const uint8_t *p = m->data + 2 * i0;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = csn_bfloat_to_f32(csn_load16(p + 2 * i));
    }
}

static void encode_units(csn_encode_job *job, uint64_t u0, uint64_t u1) {
    for (uint64_t i = u0; i < u1; i++) {
        uint16_t h = csn_bfloat_from_f32(job->x[i]);
        if (fabsf(job->x[i]) <= FLT_MAX && (h & 0x7f80u) == 0x7f80u) {
            atomic_store_explicit(&job->has_inf, true, memory_order_relaxed);
        }
        csn_store16(job->out + 2 * i, h);
    }
}

static caisson_status bf16_encode(const float *x, const csn_shape *shape,
                                  const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                  caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_bf16, x, shape, options, out, &job, err));
    job.largest = "at most 3.3895e+38";
    csn_encode_split(pool, &job, encode_units, job.n);
    return csn_encode_end(&job, err);
}

static uint32_t bf16_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    ret[0] = (csn_row_part){cols * 2, false};
    return 1;
}

static uint32_t bf16_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = (csn_numbers){CSN_NUMBER_BF16, true, 0, m->rows * m->cols, 2, m->cols};
    return 1;
}

const csn_dtype csn_dtype_bf16 = {
    .name = "bf16",
    .cmf_id = 2,
    .gguf_id = 30,
    .warp_fmt = CSN_NO_ID,
    .safetensors = "BF16",
    .group = 1,
    .is_float = true,
    .nbytes = bf16_nbytes,
    .decode = bf16_decode,
    .row_parts = bf16_row_parts,
    .numbers = bf16_numbers,
    .encode = bf16_encode,
};
