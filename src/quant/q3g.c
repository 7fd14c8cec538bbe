/* SPDX-License-Identifier: Apache-2.0 */
/* q3g (WARP fmt 7, warp facts 3): three bits of code + 4 from the lowest bit on, in groups of 128
 * (group128.h), which are 48 whole bytes; a byte of zero ends each row, so that reading two bytes
 * for a code is safe. */
#include "quant/group128_internal.h"

/* Eight codes are three bytes. */
static void pack(const int8_t code[CSN_GROUP128], uint8_t *out) {
    for (int i = 0; i < CSN_GROUP128; i += 8, out += 3) {
        uint32_t w = 0;
        for (int k = 0; k < 8; k++) {
            w |= (uint32_t)(code[i + k] + 4) << 3 * k;
        }
        csn_store16(out, (uint16_t)w);
        out[2] = (uint8_t)(w >> 16);
    }
}

static void unpack(const uint8_t *in, int8_t code[CSN_GROUP128]) {
    for (int i = 0; i < CSN_GROUP128; i += 8, in += 3) {
        uint32_t w = csn_load16(in) | (uint32_t)in[2] << 16;
        for (int k = 0; k < 8; k++) {
            code[i + k] = (int8_t)((int)(w >> 3 * k & 7u) - 4);
        }
    }
}

static const csn_group128 q3g = {.dtype = &csn_dtype_q3g,
                                 .bits = 3,
                                 .guard = 1,
                                 .max = 3,
                                 .min = -4,
                                 .pack = pack,
                                 .unpack = unpack};

static caisson_status q3g_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    return csn_group128_nbytes(&q3g, shape, ret, err);
}

static void q3g_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    csn_group128_decode(&q3g, m, i0, n, out);
}

static caisson_status q3g_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    return csn_group128_encode(&q3g, x, shape, options, pool, out, err);
}

static uint32_t q3g_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    return csn_group128_row_parts(&q3g, cols, ret);
}

static uint32_t q3g_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    return csn_group128_numbers(&q3g, m, ret);
}

const csn_dtype csn_dtype_q3g = {
    .name = "q3g",
    .cmf_id = CSN_NO_ID,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = 7,
    .group = 1, /* groups never cross rows: any number of columns will do */
    .nbytes = q3g_nbytes,
    .decode = q3g_decode,
    .row_parts = q3g_row_parts,
    .numbers = q3g_numbers,
    .encode = q3g_encode,
};
