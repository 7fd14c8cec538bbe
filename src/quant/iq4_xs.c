/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF iq4_xs: 256 elements in 136 bytes [f16 d][u16 high scale bits][4 B low scale nibbles]
 * [128 B]. Group g of 32: scale = low nibble g | bits 2g..2g+1 << 4, minus 32; its 16 bytes hold
 * element k (low nibble) and k + 16 (high). w = (d * scale) * value[q], values as iq4_nl. */
#include "quant/ggml_block_internal.h"

static void iq4_xs_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p);
    for (int g = 0; g < 8; g++) {
        int low = p[4 + g / 2] >> (g % 2 * 4) & 0x0f;
        int high = p[2 + g / 4] >> (g % 4 * 2) & 3;
        float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *q = p + 8 + 16 * g;
        for (int k = 0; k < 16; k++) {
            out[32 * g + k] = scale * (float)csn_ggml_iq4_values[q[k] & 0x0f];
            out[32 * g + 16 + k] = scale * (float)csn_ggml_iq4_values[q[k] >> 4];
        }
    }
}

CSN_GGML_DTYPE(iq4_xs, 23, 256, 136, 32, iq4_xs_block_decode);
