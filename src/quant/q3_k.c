/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q3_k: 256 elements in 110 bytes [32 B high bits][64 B of 2-bit codes][12 B of 6-bit scales]
 * [f16 d]. Low codes lie as in q2_k; bit j of high byte k belongs to element 32j + k and means
 * "do not subtract 4". Scale s of 16 elements: low four bits in the nibbles of bytes 0..7 (0..7
 * low, 8..15 high), bits 4..5 in byte 8 + s % 4 at 2 * (s / 4). w = (d * (scale - 32)) * q. */
#include "quant/ggml_block_internal.h"

static void q3_k_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p + 108);
    const uint8_t *s = p + 96;
    for (int g = 0; g < 16; g++) {
        int low = s[g % 8] >> (g / 8 * 4) & 0x0f;
        int high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        float scale = d * (float)((low | high << 4) - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int q = p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            int keep = p[i % 32] >> (i / 32) & 1;
            out[i] = scale * (float)(q - (keep ? 0 : 4));
        }
    }
}

CSN_GGML_DTYPE(q3_k, 11, 256, 110, 16, q3_k_block_decode);
