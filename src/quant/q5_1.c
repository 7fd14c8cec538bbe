/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q5_1: 32 elements in 24 bytes [f16 d][f16 m][u32 high bits][16 B]; codes as q5_0.
 * w = d * q + m, product and sum rounded apart. */
#include "quant/ggml_block_internal.h"

static void q5_1_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p), m = csn_ggml_f16(p + 2);
    for (int k = 0; k < 16; k++) {
        int lo = (p[8 + k] & 0x0f) | (p[4 + k / 8] >> (k % 8) & 1) << 4;
        int hi = (p[8 + k] >> 4) | (p[6 + k / 8] >> (k % 8) & 1) << 4;
        out[k] = d * (float)lo + m;
        out[k + 16] = d * (float)hi + m;
    }
}

CSN_GGML_DTYPE(q5_1, 7, 32, 24, 32, q5_1_block_decode);
