/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q8_0: 32 elements in 34 bytes [f16 d][32 x i8]. w = d * q. */
#include "quant/ggml_block_internal.h"

static void q8_0_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p);
    for (int k = 0; k < 32; k++) {
        out[k] = d * (float)(int8_t)p[2 + k];
    }
}

CSN_GGML_DTYPE(q8_0, 8, 32, 34, 32, q8_0_block_decode);
