/* SPDX-License-Identifier: Apache-2.0 */
/* Size rule and piecewise decoding of the block dtypes that come from GGUF. */
#include "quant/ggml_block_internal.h"

#include <string.h>

#include "base/size.h"

const int8_t csn_ggml_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

caisson_status csn_ggml_nbytes(const csn_ggml_block *b, const csn_shape *shape, uint64_t *ret,
                               caisson_error *err) {
    uint64_t n, bytes;
    if (shape->n_dims == 0 || !csn_shape_count(shape, &n)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "shape has no size in this dtype");
    }
    uint64_t cols = shape->dim[shape->n_dims - 1];
    if (cols % b->block != 0) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "row length is not a multiple of the block",
                        CSN_VALUES(b->block, cols));
    }
    if (!csn_mul(n / b->block, b->block_bytes, &bytes)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "tensor size overflows");
    }
    *ret = bytes;
    return CAISSON_OK;
}

void csn_ggml_decode(const csn_ggml_block *b, const csn_matrix *m, uint64_t i0, uint64_t n,
                     float *out) {
    float tmp[CSN_GGML_MAX_BLOCK];
    uint64_t i = i0, end = i0 + n;
    while (i < end) {
        uint64_t i_block = i / b->block;
        uint32_t skip = (uint32_t)(i % b->block);
        const uint8_t *bytes = m->data + i_block * b->block_bytes;
        uint64_t take = b->block - skip;
        if (take > end - i) {
            take = end - i;
        }
        if (take == b->block) {
            b->decode(bytes, out);
        } else {
            b->decode(bytes, tmp);
            memcpy(out, tmp + skip, (size_t)take * sizeof(float));
        }
        out += take;
        i += take;
    }
}

/* Bytes 0..3: scale 0..3 low six bits, two high bits of scale 4..7; bytes 4..7 the same for the
 * minimums; bytes 8..11: low four bits of scale 4..7 and of minimum 4..7. */
void csn_ggml_k_scales(const uint8_t s[12], uint8_t scale[8], uint8_t min[8]) {
    for (int i = 0; i < 4; i++) {
        scale[i] = s[i] & 0x3f;
        min[i] = s[4 + i] & 0x3f;
        scale[4 + i] = (uint8_t)((s[8 + i] & 0x0f) | ((s[i] >> 2) & 0x30));
        min[4 + i] = (uint8_t)((s[8 + i] >> 4) | ((s[4 + i] >> 2) & 0x30));
    }
}
