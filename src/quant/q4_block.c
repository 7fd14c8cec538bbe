/* SPDX-License-Identifier: Apache-2.0 */
/* q4_block (CMF id 4, facts 4.3): G = ceil(n / 32) groups over the flattened tensor, zero padded,
 * [nibbles: 16 * G][f16 scale: G], w = (nibble - 8) * scale.
 *
 * Nibbles and scale of a group: nibbles.c. */
#include "quant/quant_internal.h"

static caisson_status q4_block_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n / CSN_GROUP + (n % CSN_GROUP != 0), 18, ret) ? CAISSON_OK
                                                                  : csn_fail_nbytes(err);
}

static void q4_block_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t n_groups = (m->rows * m->cols + CSN_GROUP - 1) / CSN_GROUP;
    const uint8_t *scales = m->data + 16 * n_groups;
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t g = i0 / CSN_GROUP;
        uint64_t stop = (g + 1) * CSN_GROUP < end ? (g + 1) * CSN_GROUP : end;
        float s = csn_half_to_f32(csn_load16(scales + 2 * g));
        for (; i0 < stop; i0++) {
            *out++ = csn_nibble(m->data + 16 * g, (unsigned)(i0 % CSN_GROUP)) * s;
        }
    }
}

static void encode_groups(csn_encode_job *job, uint64_t g0, uint64_t g1) {
    uint64_t n_groups = (job->n + CSN_GROUP - 1) / CSN_GROUP;
    for (uint64_t g = g0; g < g1; g++) {
        const float *x = job->x + g * CSN_GROUP;
        uint64_t n = job->n - g * CSN_GROUP < CSN_GROUP ? job->n - g * CSN_GROUP : CSN_GROUP;
        uint16_t h = csn_nibbles_encode(x, n, job->options->encoder, job->out + 16 * g);
        csn_note_inf(job, h);
        csn_store16(job->out + 16 * n_groups + 2 * g, h);
    }
}

static caisson_status q4_block_encode(const float *x, const csn_shape *shape,
                                      const csn_encode_options *options, csn_pool *pool,
                                      csn_buf *out, caisson_error *err) {
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q4_block, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_groups, (job.n + CSN_GROUP - 1) / CSN_GROUP);
    return csn_encode_end(&job, err);
}

static uint32_t q4_block_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, 0, 2);
    ret[0].first = 16 * ret[0].n;
    return 1;
}

const csn_dtype csn_dtype_q4_block = {
    .name = "q4_block",
    .cmf_id = 4,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .bytes_of_32 = 16,
    .parts = {{.of_32 = 16}, {.of_32 = 2}},
    .nbytes = q4_block_nbytes,
    .decode = q4_block_decode,
    .numbers = q4_block_numbers,
    .encode = q4_block_encode,
};
