/* SPDX-License-Identifier: Apache-2.0 */
/* q8_row (CMF id 3, facts 4.2): [i8: rows * cols][f16 scale: rows], w = q * scale[row].
 *
 * scale = S(absmax(row) / 127), q = round half even(v / scale) in -128..127; the error of a weight
 * is at most scale / 2. */
#include "quant/quant_internal.h"

static caisson_status q8_row_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    uint64_t rows = shape->n_dims == 0 ? 1 : shape->dim[0];
    uint64_t scales;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(rows, 2, &scales) && csn_add(n, scales, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

static void q8_row_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    const int8_t *q = (const int8_t *)m->data;
    const uint8_t *scales = m->data + m->rows * m->cols;
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t row = i0 / m->cols;
        uint64_t stop = (row + 1) * m->cols < end ? (row + 1) * m->cols : end;
        float s = csn_half_to_f32(csn_load16(scales + 2 * row));
        for (; i0 < stop; i0++) {
            *out++ = (float)q[i0] * s;
        }
    }
}

static void encode_rows(csn_encode_job *job, uint64_t u0, uint64_t u1) {
    for (uint64_t r = u0; r < u1; r++) {
        const float *x = job->x + r * job->cols;
        int8_t *q = (int8_t *)job->out + r * job->cols;
        uint16_t h;
        float s = csn_scale_rule(csn_row_absmax(x, job->cols) / 127.0f, &h);
        csn_note_inf(job, h);
        csn_store16(job->out + job->n + 2 * r, h);
        csn_row_to_bytes(x, job->cols, s, q);
    }
}

static caisson_status q8_row_encode(const float *x, const csn_shape *shape,
                                    const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                    caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q8_row, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_rows, job.rows);
    return csn_encode_end(&job, err);
}

static uint32_t q8_row_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = (csn_numbers){CSN_NUMBER_F16, false, m->rows * m->cols, m->rows, 2, 1};
    return 1;
}

const csn_dtype csn_dtype_q8_row = {
    .name = "q8_row",
    .cmf_id = 3,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = 1,
    .bytes_of_32 = 32,
    .parts = {{.of_32 = 32}, {.of_row = 2}},
    .nbytes = q8_row_nbytes,
    .decode = q8_row_decode,
    .numbers = q8_row_numbers,
    .encode = q8_row_encode,
};
