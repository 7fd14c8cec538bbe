/* SPDX-License-Identifier: Apache-2.0 */
/* 32 weights as one f16 scale and 32 nibbles, w = (nibble - 8) * scale: the encoder of q4_block and
 * q4_tiled. The reference takes S(absmax / 7), the search any scale (scale_search.c). */
#include "quant/quant_internal.h"

uint16_t csn_nibbles_encode(const float *x, uint64_t n, csn_encoder encoder, uint8_t out[16]) {
    float padded[CSN_GROUP] = {0};
    float code[CSN_GROUP];
    uint16_t h;
    memcpy(padded, x, (size_t)n * sizeof(float));
    float s = csn_scale_rule(csn_row_absmax(padded, CSN_GROUP) / 7.0f, &h);
    (void)csn_codes_measure(padded, csn_nibble_codes, s, code);
    if (encoder == CSN_ENCODER_SEARCH) {
        csn_codes_search(padded, csn_nibble_codes, &h, code);
    }
    uint8_t nibble[CSN_GROUP];
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        nibble[k] = (uint8_t)((int)code[k] + 8);
    }
    for (unsigned k = 0; k < 16; k++) {
        out[k] = (uint8_t)(nibble[2 * k] | nibble[2 * k + 1] << 4);
    }
    return h;
}
