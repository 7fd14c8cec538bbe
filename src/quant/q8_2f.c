/* SPDX-License-Identifier: Apache-2.0 */
/* q8_2f (CMF id 9, facts 4.5): [i8: rows * cols][f16 row: rows][f16 col: cols],
 * w = (q * row[r]) * col[c], multiplied in this order.
 *
 * The column field takes the root mean square of each column out before rows get their scale, so
 * that a loud input channel does not cost the others their precision. Its sums are f64 over blocks
 * of 256 rows, the blocks added in order: the stored bytes depend on it. */
#include "quant/quant_internal.h"

#include <math.h>

#include "base/alloc.h"

enum { ROW_BLOCK = 256 };

static caisson_status q8_2f_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    uint64_t rows = shape->n_dims == 0 ? 1 : shape->dim[0];
    uint64_t row_bytes;
    uint64_t col_bytes;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(rows, 2, &row_bytes) && csn_mul(n / (rows == 0 ? 1 : rows), 2, &col_bytes) &&
                   csn_add(n, row_bytes, &n) && csn_add(n, col_bytes, ret)
               ? CAISSON_OK
               : csn_fail_nbytes(err);
}

static void q8_2f_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    const int8_t *q = (const int8_t *)m->data;
    const uint8_t *row_field = m->data + m->rows * m->cols;
    const uint8_t *col_field = row_field + 2 * m->rows;
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t row = i0 / m->cols;
        uint64_t first = row * m->cols;
        uint64_t stop = first + m->cols < end ? first + m->cols : end;
        float s = csn_half_to_f32(csn_load16(row_field + 2 * row));
        for (; i0 < stop; i0++) {
            float c = csn_half_to_f32(csn_load16(col_field + 2 * (i0 - first)));
            *out++ = ((float)q[i0] * s) * c;
        }
    }
}

struct sums {
    double *total, *block; /* [cols] */
    float *col;            /* [cols] what the column is divided by */
};

/* Columns [c0, c1): column sums of squares, then the stored column field. */
static void encode_cols(csn_encode_job *job, uint64_t c0, uint64_t c1) {
    struct sums *s = job->extra;
    for (uint64_t r = 0; r < job->rows; r++) {
        if (r % ROW_BLOCK == 0) {
            for (uint64_t c = c0; c < c1; c++) {
                s->total[c] += s->block[c];
                s->block[c] = 0;
            }
        }
        const float *x = job->x + r * job->cols;
        for (uint64_t c = c0; c < c1; c++) {
            s->block[c] += (double)x[c] * (double)x[c];
        }
    }
    for (uint64_t c = c0; c < c1; c++) {
        double mean = (s->total[c] + s->block[c]) / (double)job->rows;
        double rms = sqrt(mean);
        uint16_t h;
        s->col[c] = csn_scale_rule((float)(rms > 1e-12 ? rms : 1e-12), &h);
        csn_note_inf(job, h);
        csn_store16(job->out + job->n + 2 * job->rows + 2 * c, h);
    }
}

static void encode_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    const float *col = ((struct sums *)job->extra)->col;
    for (uint64_t r = r0; r < r1; r++) {
        const float *x = job->x + r * job->cols;
        int8_t *q = (int8_t *)job->out + r * job->cols;
        float m = 1e-12f;
        for (uint64_t c = 0; c < job->cols; c++) {
            float a = x[c] / col[c];
            a = a < 0 ? -a : a;
            m = a > m ? a : m;
        }
        uint16_t h;
        float s = csn_scale_rule(m / 127.0f, &h);
        csn_note_inf(job, h);
        csn_store16(job->out + job->n + 2 * r, h);
        for (uint64_t c = 0; c < job->cols; c++) {
            q[c] = (int8_t)csn_round_even(csn_clamp((x[c] / col[c]) / s, -127.0f, 127.0f));
        }
    }
}

static caisson_status q8_2f_encode(const float *x, const csn_shape *shape,
                                   const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                   caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q8_2f, x, shape, options, out, &job, err));
    struct sums s = {0};
    job.extra = &s;
    caisson_status status = CSN_NEW(job.cols, &s.total, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(job.cols, &s.block, err);
    }
    if (status == CAISSON_OK) {
        status = CSN_NEW(job.cols, &s.col, err);
    }
    if (status == CAISSON_OK) {
        csn_encode_split(pool, &job, encode_cols, job.cols);
        csn_encode_split(pool, &job, encode_rows, job.rows);
        status = csn_encode_end(&job, err);
    }
    csn_free(s.total);
    csn_free(s.block);
    csn_free(s.col);
    return status;
}

static uint32_t q8_2f_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    uint64_t fields = m->rows * m->cols;
    ret[0] = (csn_numbers){CSN_NUMBER_F16, false, fields, m->rows, 2, 1};
    ret[1] = (csn_numbers){CSN_NUMBER_F16, false, fields + 2 * m->rows, m->cols, 2, 0};
    return 2;
}

const csn_dtype csn_dtype_q8_2f = {
    .name = "q8_2f",
    .cmf_id = 9,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = 1,
    .bytes_of_32 = 32,
    .parts = {{.of_32 = 32}, {.of_row = 2}, {.of_col = 2}},
    .nbytes = q8_2f_nbytes,
    .decode = q8_2f_decode,
    .numbers = q8_2f_numbers,
    .encode = q8_2f_encode,
};
