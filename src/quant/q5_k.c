/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q5_k: 256 elements in 176 bytes [f16 d][f16 dmin][12 B of 6-bit scales and minimums][32 B
 * high bits][128 B]. Nibbles and scales as q4_k; bit g of high byte k is bit 4 of element 32g + k.
 * w = (d * scale) * q - (dmin * min). */
#include "quant/ggml_block_internal.h"

static void q5_k_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p), dmin = csn_ggml_f16(p + 2);
    uint8_t scale[8], min[8];
    csn_ggml_k_scales(p + 4, scale, min);
    for (int g = 0; g < 8; g++) {
        float dl = d * (float)scale[g], ml = dmin * (float)min[g];
        const uint8_t *q = p + 48 + g / 2 * 32;
        for (int k = 0; k < 32; k++) {
            int code = (q[k] >> (g % 2 * 4) & 0x0f) | (p[16 + k] >> g & 1) << 4;
            out[32 * g + k] = dl * (float)code - ml;
        }
    }
}

CSN_GGML_DTYPE(q5_k, 13, 256, 176, 32, q5_k_block_decode);
