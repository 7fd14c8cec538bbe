/* SPDX-License-Identifier: Apache-2.0 */
/* The element conversions of dtype.h as functions; half.h holds what they do. */
#include "quant/half.h"

#include "quant/dtype.h"

float csn_f16_to_f32(uint16_t h) {
    return csn_half_to_f32(h);
}

uint16_t csn_f32_to_f16(float x) {
    return csn_half_from_f32(x);
}
