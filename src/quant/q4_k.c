/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q4_k: 256 elements in 144 bytes [f16 d][f16 dmin][12 B of 6-bit scales and minimums][128 B].
 * Byte 32h + k holds elements 64h + k (low nibble) and 64h + 32 + k (high); 32 elements share a
 * scale. w = (d * scale) * q - (dmin * min). */
#include "quant/ggml_block_internal.h"

static void q4_k_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p), dmin = csn_ggml_f16(p + 2);
    uint8_t scale[8], min[8];
    csn_ggml_k_scales(p + 4, scale, min);
    for (int g = 0; g < 8; g++) {
        float dl = d * (float)scale[g], ml = dmin * (float)min[g];
        const uint8_t *q = p + 16 + g / 2 * 32;
        for (int k = 0; k < 32; k++) {
            out[32 * g + k] = dl * (float)(q[k] >> (g % 2 * 4) & 0x0f) - ml;
        }
    }
}

CSN_GGML_DTYPE(q4_k, 12, 256, 144, 32, q4_k_block_decode);
