/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q4_1: 32 elements in 20 bytes [f16 d][f16 m][16 B]; nibbles as q4_0. w = d * q + m, product
 * and sum rounded apart. */
#include "quant/ggml_block_internal.h"

static void q4_1_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p), m = csn_ggml_f16(p + 2);
    for (int k = 0; k < 16; k++) {
        out[k] = d * (float)(p[4 + k] & 0x0f) + m;
        out[k + 16] = d * (float)(p[4 + k] >> 4) + m;
    }
}

CSN_GGML_DTYPE(q4_1, 3, 32, 20, 32, q4_1_block_decode);
