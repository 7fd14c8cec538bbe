/* SPDX-License-Identifier: Apache-2.0 */
/* q4g (WARP fmt 3, warp facts 3): nibbles of code + 8, the even column in the low one, in groups of
 * 128 (group128.h). */
#include "quant/group128_internal.h"

static void pack(const int8_t code[CSN_GROUP128], uint8_t *out) {
    for (int i = 0; i < CSN_GROUP128 / 2; i++) {
        out[i] = (uint8_t)((code[2 * i] + 8) | (code[2 * i + 1] + 8) << 4);
    }
}

static void unpack(const uint8_t *restrict in, int8_t code[restrict CSN_GROUP128]) {
    for (int i = 0; i < CSN_GROUP128 / 2; i++) {
        code[2 * i] = (int8_t)((in[i] & 15) - 8);
        code[2 * i + 1] = (int8_t)((in[i] >> 4) - 8);
    }
}

static const csn_group128 q4g = {.dtype = &csn_dtype_q4g,
                                 .bits = 4,
                                 .guard = 0,
                                 .max = 7,
                                 .min = -8,
                                 .pack = pack,
                                 .unpack = unpack};

static caisson_status q4g_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    return csn_group128_nbytes(&q4g, shape, ret, err);
}

static void q4g_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    csn_group128_decode(&q4g, m, i0, n, out);
}

static caisson_status q4g_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    return csn_group128_encode(&q4g, x, shape, options, pool, out, err);
}

static uint32_t q4g_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    return csn_group128_row_parts(&q4g, cols, ret);
}

static uint32_t q4g_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    return csn_group128_numbers(&q4g, m, ret);
}

const csn_dtype csn_dtype_q4g = {
    .name = "q4g",
    .cmf_id = CSN_NO_ID,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = 3,
    .group = 1, /* groups never cross rows: any number of columns will do */
    .nbytes = q4g_nbytes,
    .decode = q4g_decode,
    .row_parts = q4g_row_parts,
    .numbers = q4g_numbers,
    .encode = q4g_encode,
};
