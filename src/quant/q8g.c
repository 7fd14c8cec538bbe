/* SPDX-License-Identifier: Apache-2.0 */
/* q8g (WARP fmt 2, warp facts 3): int8 codes, -127 to 127, in groups of 128 (group128.h). */
#include "quant/group128_internal.h"

static void pack(const int8_t code[CSN_GROUP128], uint8_t *out) {
    memcpy(out, code, CSN_GROUP128);
}

static void unpack(const uint8_t *in, int8_t code[CSN_GROUP128]) {
    memcpy(code, in, CSN_GROUP128);
}

static const csn_group128 q8g = {.dtype = &csn_dtype_q8g,
                                 .bits = 8,
                                 .guard = 0,
                                 .max = 127,
                                 .min = -127,
                                 .pack = pack,
                                 .unpack = unpack};

static caisson_status q8g_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    return csn_group128_nbytes(&q8g, shape, ret, err);
}

static void q8g_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    csn_group128_decode(&q8g, m, i0, n, out);
}

static caisson_status q8g_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    return csn_group128_encode(&q8g, x, shape, options, pool, out, err);
}

static uint32_t q8g_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    return csn_group128_row_parts(&q8g, cols, ret);
}

static uint32_t q8g_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    return csn_group128_numbers(&q8g, m, ret);
}

const csn_dtype csn_dtype_q8g = {
    .name = "q8g",
    .cmf_id = CSN_NO_ID,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = 2,
    .group = 1, /* groups never cross rows: any number of columns will do */
    .nbytes = q8g_nbytes,
    .decode = q8g_decode,
    .row_parts = q8g_row_parts,
    .numbers = q8g_numbers,
    .encode = q8g_encode,
};
