/* SPDX-License-Identifier: Apache-2.0 */
/* q1 (CMF id 12, facts 4.8): one bit a weight, [f16 scale][4 bytes of signs] for each 32 elements
 * of the flattened tensor; bit k % 8 of byte k / 8 set: +scale, clear: -scale.
 *
 * The mean magnitude of a group is the scale of least squares for its signs: the search has nothing
 * to find. We write it only where rows are whole groups. */
#include "quant/q1_internal.h"

static caisson_status q1_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n / CSN_GROUP + (n % CSN_GROUP != 0), CSN_Q1_TILE, ret) ? CAISSON_OK
                                                                           : csn_fail_nbytes(err);
}

void csn_q1_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t g = i0 / CSN_GROUP;
        uint64_t stop = (g + 1) * CSN_GROUP < end ? (g + 1) * CSN_GROUP : end;
        const uint8_t *tile = m->data + CSN_Q1_TILE * g;
        uint32_t signs = ~csn_load32(tile + 2);
        uint32_t scale = csn_f32_bits(csn_half_to_f32(csn_load16(tile)));
        for (; i0 < stop; i0++) {
            *out++ = csn_f32_from_bits(scale ^ (signs >> i0 % CSN_GROUP & 1u) << 31);
        }
    }
}

static void encode_groups(csn_encode_job *job, uint64_t g0, uint64_t g1) {
    for (uint64_t g = g0; g < g1; g++) {
        const float *x = job->x + g * CSN_GROUP;
        uint8_t *tile = job->out + CSN_Q1_TILE * g;
        uint32_t signs = 0;
        float sum = 0;
        uint16_t h;
        for (unsigned k = 0; k < CSN_GROUP; k++) {
            sum += csn_magnitude(x[k]);
            signs |= (uint32_t)(x[k] >= 0) << k;
        }
        (void)csn_scale_rule(sum / CSN_GROUP, &h);
        csn_note_inf(job, h);
        csn_store16(tile, h);
        csn_store32(tile + 2, signs);
    }
}

static caisson_status q1_encode(const float *x, const csn_shape *shape,
                                const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q1 is written for whole groups of 32", err));
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q1, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_groups, job.n / CSN_GROUP);
    return csn_encode_end(&job, err);
}

static uint32_t q1_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    ret[0] = (csn_row_part){cols / CSN_GROUP * CSN_Q1_TILE, false};
    return cols % CSN_GROUP == 0 ? 1 : 0;
}

static uint32_t q1_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, 0, CSN_Q1_TILE);
    return 1;
}

const csn_dtype csn_dtype_q1 = {
    .name = "q1",
    .cmf_id = 12,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .nbytes = q1_nbytes,
    .decode = csn_q1_decode,
    .row_parts = q1_row_parts,
    .numbers = q1_numbers,
    .encode = q1_encode,
};
