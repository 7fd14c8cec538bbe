/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q6_k: 256 elements in 210 bytes [128 B low nibbles][64 B high pairs][16 x i8 scale][f16 d].
 * In half h (128 elements): nibble byte 64h + k holds element 128h + k (low) and 128h + 64 + k
 * (high), k < 64; bits 2j..2j+1 of pair byte 32h + k are bits 4..5 of element 128h + 32j + k.
 * w = (d * scale) * (q - 32), sixteen elements a scale. */
#include "quant/ggml_block_internal.h"

static void q6_k_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p + 208);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, in_half = i % 128;
        int low = p[64 * h + in_half % 64] >> (in_half / 64 * 4) & 0x0f;
        int high = p[128 + 32 * h + in_half % 32] >> (in_half / 32 * 2) & 3;
        float scale = d * (float)(int8_t)p[192 + i / 16];
        out[i] = scale * (float)((low | high << 4) - 32);
    }
}

CSN_GGML_DTYPE(q6_k, 14, 256, 210, 16, q6_k_block_decode);
