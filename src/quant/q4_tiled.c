/* SPDX-License-Identifier: Apache-2.0 */
/* q4_tiled (CMF id 11, facts 4.4): the values of q4_block, group by group:
 * [f16 scale][16 bytes of nibbles] for each 32 elements of the flattened tensor.
 *
 * Readers take any shape; we write it only where rows are whole groups (cols % 32 == 0). */
#include "quant/quant_internal.h"

enum { TILE = 18 };

static caisson_status q4_tiled_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return csn_mul(n / CSN_GROUP + (n % CSN_GROUP != 0), TILE, ret) ? CAISSON_OK
                                                                    : csn_fail_nbytes(err);
}

static void q4_tiled_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t g = i0 / CSN_GROUP;
        uint64_t stop = (g + 1) * CSN_GROUP < end ? (g + 1) * CSN_GROUP : end;
        const uint8_t *tile = m->data + TILE * g;
        float s = csn_half_to_f32(csn_load16(tile));
        for (; i0 < stop; i0++) {
            *out++ = csn_nibble(tile + 2, (unsigned)(i0 % CSN_GROUP)) * s;
        }
    }
}

static void encode_groups(csn_encode_job *job, uint64_t g0, uint64_t g1) {
    for (uint64_t g = g0; g < g1; g++) {
        uint8_t *tile = job->out + TILE * g;
        uint16_t h =
            csn_nibbles_encode(job->x + g * CSN_GROUP, CSN_GROUP, job->options->encoder, tile + 2);
        csn_note_inf(job, h);
        csn_store16(tile, h);
    }
}

static caisson_status q4_tiled_encode(const float *x, const csn_shape *shape,
                                      const csn_encode_options *options, csn_pool *pool,
                                      csn_buf *out, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q4_tiled is written for whole groups of 32", err));
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q4_tiled, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_groups, job.n / CSN_GROUP);
    return csn_encode_end(&job, err);
}

static uint32_t q4_tiled_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, 0, TILE);
    return 1;
}

const csn_dtype csn_dtype_q4_tiled = {
    .name = "q4_tiled",
    .cmf_id = 11,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .bytes_of_32 = 18,
    .parts = {{.of_32 = 18}},
    .nbytes = q4_tiled_nbytes,
    .decode = q4_tiled_decode,
    .numbers = q4_tiled_numbers,
    .encode = q4_tiled_encode,
};
