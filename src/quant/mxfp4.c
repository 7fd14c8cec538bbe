/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF mxfp4 (OCP microscaling): 32 elements in 17 bytes [u8 e][16 B]; nibbles as q4_0, each an
 * E2M1 number. The table holds twice its value and the scale is half of 2^(e - 127), so that all
 * is exact. */
#include "quant/ggml_block_internal.h"

#include <string.h>

static const int8_t mxfp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128); e of 0 and 1 give subnormal numbers. */
static float mxfp4_half_scale(uint8_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void mxfp4_block_decode(const uint8_t *p, float *out) {
    float d = mxfp4_half_scale(p[0]);
    for (int k = 0; k < 16; k++) {
        out[k] = d * (float)mxfp4_doubled[p[1 + k] & 0x0f];
        out[k + 16] = d * (float)mxfp4_doubled[p[1 + k] >> 4];
    }
}

CSN_GGML_DTYPE(mxfp4, 39, 32, 17, 32, mxfp4_block_decode);
