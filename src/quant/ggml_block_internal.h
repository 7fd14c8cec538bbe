/* SPDX-License-Identifier: Apache-2.0 */
/* What the block dtypes of GGUF share: each row (innermost dimension) is a whole number of blocks
 * of `block` elements in `block_bytes` bytes, blocks follow each other without gaps. */
#ifndef CSN_QUANT_GGML_BLOCK_INTERNAL_H
#define CSN_QUANT_GGML_BLOCK_INTERNAL_H

#include "quant/quant_internal.h"

enum { CSN_GGML_MAX_BLOCK = 256 };

typedef struct csn_ggml_block {
    uint32_t block, block_bytes;
    void (*decode)(const uint8_t *bytes, float *out); /* one block: out[block] */
} csn_ggml_block;

caisson_status csn_ggml_nbytes(const csn_ggml_block *b, const csn_shape *shape, uint64_t *ret,
                               caisson_error *err);
void csn_ggml_decode(const csn_ggml_block *b, const csn_matrix *m, uint64_t i0, uint64_t n,
                     float *out);

static inline float csn_ggml_f16(const uint8_t *p) { /* little-endian */
    return csn_f16_to_f32((uint16_t)(p[0] | (uint16_t)p[1] << 8));
}

/* The six-bit scales and minimums of q4_k and q5_k, 8 each from 12 bytes. */
void csn_ggml_k_scales(const uint8_t s[12], uint8_t scale[8], uint8_t min[8]);
/* The 16 values of the non-linear four-bit code of iq4_nl and iq4_xs. */
extern const int8_t csn_ggml_iq4_values[16];

/* The row of one dtype: NAME, Type id of GGUF, elements and bytes of a block, elements a scale. */
#define CSN_GGML_DTYPE(NAME, GGUF_ID, BLOCK, BYTES, GROUP, DECODE)                                 \
    static const csn_ggml_block NAME##_block = {BLOCK, BYTES, DECODE};                             \
    static caisson_status NAME##_nbytes(const csn_shape *shape, uint64_t *ret,                     \
                                        caisson_error *err) {                                      \
        return csn_ggml_nbytes(&NAME##_block, shape, ret, err);                                    \
    }                                                                                              \
    static void NAME##_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {          \
        csn_ggml_decode(&NAME##_block, m, i0, n, out);                                             \
    }                                                                                              \
    const csn_dtype csn_dtype_##NAME = {                                                           \
        .name = #NAME,                                                                             \
        .cmf_id = CSN_NO_ID,                                                                       \
        .gguf_id = (GGUF_ID),                                                                      \
        .warp_fmt = CSN_NO_ID,                                                                     \
        .group = (GROUP),                                                                          \
        .nbytes = NAME##_nbytes,                                                                   \
        .decode = NAME##_decode,                                                                   \
    }

#endif
