/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q2_k: 256 elements in 84 bytes [16 x (4-bit scale, 4-bit min)][64 B of 2-bit codes][f16 d]
 * [f16 dmin]. Sixteen elements share a scale; bits 2j..2j+1 of byte 32h + k are element
 * 128h + 32j + k. w = (d * scale) * q - (dmin * min). */
#include "quant/ggml_block_internal.h"

static void q2_k_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p + 80), dmin = csn_ggml_f16(p + 82);
    for (int i = 0; i < 256; i++) {
        int g = i / 16;
        int q = p[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        float scale = d * (float)(p[g] & 0x0f);
        float min = dmin * (float)(p[g] >> 4);
        out[i] = scale * (float)q - min;
    }
}

CSN_GGML_DTYPE(q2_k, 10, 256, 84, 16, q2_k_block_decode);
