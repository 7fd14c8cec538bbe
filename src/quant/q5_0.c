/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q5_0: 32 elements in 22 bytes [f16 d][u32 high bits][16 B]; nibbles as q4_0, bit i of the
 * word is bit 4 of element i. w = d * (q - 16). */
#include "quant/ggml_block_internal.h"

static void q5_0_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p);
    for (int k = 0; k < 16; k++) {
        int lo = (p[6 + k] & 0x0f) | (p[2 + k / 8] >> (k % 8) & 1) << 4;
        int hi = (p[6 + k] >> 4) | (p[4 + k / 8] >> (k % 8) & 1) << 4;
        out[k] = d * (float)(lo - 16);
        out[k + 16] = d * (float)(hi - 16);
    }
}

CSN_GGML_DTYPE(q5_0, 6, 32, 22, 32, q5_0_block_decode);
