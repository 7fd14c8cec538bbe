/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF iq4_nl: 32 elements in 18 bytes [f16 d][16 B]; nibbles as q4_0, each an index into sixteen
 * unevenly spaced values. w = d * value[q]. */
#include "quant/ggml_block_internal.h"

static void iq4_nl_block_decode(const uint8_t *p, float *out) {
    float d = csn_ggml_f16(p);
    for (int k = 0; k < 16; k++) {
        out[k] = d * (float)csn_ggml_iq4_values[p[2 + k] & 0x0f];
        out[k + 16] = d * (float)csn_ggml_iq4_values[p[2 + k] >> 4];
    }
}

CSN_GGML_DTYPE(iq4_nl, 20, 32, 18, 32, iq4_nl_block_decode);
