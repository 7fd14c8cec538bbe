/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, groups and scales of q8g, q4g and q3g; how codes are packed is in their own files. */
#include "quant/group128_internal.h"

static uint64_t row_bytes(const csn_group128 *g, uint64_t n_groups) {
    return n_groups * 16 * g->bits + g->guard;
}

caisson_status csn_group128_nbytes(const csn_group128 *g, const csn_shape *shape, uint64_t *ret,
                                   caisson_error *err) {
    uint64_t n;
    if (shape->n_dims != 2) {
        char text[160];
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "this dtype is for matrices",
                        CSN_TEXTS(CSN_STR("[rows, cols]"),
                                  csn_str_from(csn_shape_text(shape, text, sizeof(text)))));
    }
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    /* at most 2^57 groups: the bytes of a row cannot overflow */
    uint64_t n_groups = csn_group128_count(shape->dim[1]);
    uint64_t row;
    if (!csn_mul(n_groups, 16 * g->bits + 2, &row) || !csn_add(row, g->guard, &row) ||
        !csn_mul(row, shape->dim[0], ret)) {
        return csn_fail_nbytes(err);
    }
    return CAISSON_OK;
}

uint32_t csn_group128_row_parts(const csn_group128 *g, uint64_t cols,
                                csn_row_part ret[CSN_ROW_PARTS]) {
    uint64_t n_groups = csn_group128_count(cols);
    ret[0] = (csn_row_part){row_bytes(g, n_groups), false};
    ret[1] = (csn_row_part){n_groups * 2, false};
    return 2;
}

uint32_t csn_group128_numbers(const csn_group128 *g, const csn_matrix *m,
                              csn_numbers ret[CSN_NUMBER_SPANS]) {
    uint64_t of_row = csn_group128_count(m->cols);
    ret[0] = (csn_numbers){CSN_NUMBER_F16,   false, m->rows * row_bytes(g, of_row),
                           m->rows * of_row, 2,     of_row};
    return 1;
}

/* A count that the compiler knows: vectors without a rest. */
static void scale_whole(const int8_t *restrict code, float s, float *restrict out) {
    for (int i = 0; i < CSN_GROUP128; i++) {
        out[i] = (float)code[i] * s;
    }
}

void csn_group128_decode(const csn_group128 *g, const csn_matrix *m, uint64_t i0, uint64_t n,
                         float *out) {
    const uint64_t n_groups = csn_group128_count(m->cols);
    const uint64_t stride = row_bytes(g, n_groups);
    const uint8_t *scales = m->data + m->rows * stride;
    const uint64_t end = i0 + n;
    while (i0 < end) {
        int8_t code[CSN_GROUP128];
        uint64_t row = i0 / m->cols;
        uint64_t col = i0 % m->cols;
        uint64_t group = col / CSN_GROUP128;
        uint64_t stop = (group + 1) * CSN_GROUP128 < m->cols ? (group + 1) * CSN_GROUP128 : m->cols;
        stop = end - i0 < stop - col ? col + (end - i0) : stop;
        float s = csn_half_to_f32(csn_load16(scales + 2 * (row * n_groups + group)));
        g->unpack(m->data + row * stride + group * 16 * g->bits, code);
        if (stop - col == CSN_GROUP128) {
            scale_whole(code, s, out);
        } else {
            for (uint64_t c = col; c < stop; c++) {
                out[c - col] = (float)code[c % CSN_GROUP128] * s;
            }
        }
        out += stop - col;
        i0 += stop - col;
    }
}

/* Half to even, subnormals too; csn_half_from_f32 rounds their ties away from zero. */
static uint16_t half_of_scale(float s) {
    return s < 0x1p-14f ? (uint16_t)csn_round_even(s * 0x1p24f) : csn_half_from_f32(s);
}

static void encode_rows(csn_encode_job *job, uint64_t u0, uint64_t u1) {
    const csn_group128 *g = job->extra;
    const uint64_t n_groups = csn_group128_count(job->cols);
    const uint64_t stride = row_bytes(g, n_groups);
    uint8_t *scales = job->out + job->rows * stride;
    for (uint64_t r = u0; r < u1; r++) {
        uint8_t *row = job->out + r * stride;
        for (uint64_t k = 0; k < n_groups; k++) {
            const float *x = job->x + r * job->cols + k * CSN_GROUP128;
            uint64_t left = job->cols - k * CSN_GROUP128;
            uint64_t n = left < CSN_GROUP128 ? left : CSN_GROUP128;
            int8_t code[CSN_GROUP128] = {0};
            float most = csn_absmax(x, n);
            float s = (most < 1e-8f ? 1e-8f : most) / g->max;
            for (uint64_t i = 0; i < n; i++) {
                code[i] = (int8_t)csn_clamp(csn_round_even(x[i] / s), g->min, g->max);
            }
            g->pack(code, row + k * 16 * g->bits);
            uint16_t h = half_of_scale(s);
            csn_note_inf(job, h);
            csn_store16(scales + 2 * (r * n_groups + k), h);
        }
        memset(row + n_groups * 16 * g->bits, 0, g->guard);
    }
}

caisson_status csn_group128_encode(const csn_group128 *g, const float *x, const csn_shape *shape,
                                   const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                   caisson_error *err) {
    csn_encode_job job;
    csn_group128 copy = *g;
    CSN_TRY(csn_encode_begin(g->dtype, x, shape, options, out, &job, err));
    job.extra = &copy;
    csn_encode_split(pool, &job, encode_rows, job.rows);
    return csn_encode_end(&job, err);
}
