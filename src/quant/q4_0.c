/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF q4_0: 32 elements in 18 bytes [f16 d][16 B]; byte k holds element k (low nibble) and k + 16
 * (high). w = d * (q - 8). */
#include "quant/ggml_block_internal.h"

static void q4_0_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p);
    for (int k = 0; k < 16; k++) {
        out[k] = d * (float)((p[2 + k] & 0x0f) - 8);
        out[k + 16] = d * (float)((p[2 + k] >> 4) - 8);
    }
}

CSN_GGML_DTYPE(q4_0, 2, 32, 18, 32, q4_0_block_decode);
