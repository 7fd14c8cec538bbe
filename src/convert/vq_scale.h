/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of a row of vector-quantised weights. */
#ifndef CSN_CONVERT_VQ_SCALE_H
#define CSN_CONVERT_VQ_SCALE_H

#include <math.h>

#include "quant/half.h"

/* binary16 of the largest magnitude, which is taken for 1e-8 where it is less. */
static inline uint16_t csn_vq_scale(const float *row, uint32_t cols) {
    float most = 1e-8f;
    for (uint32_t i = 0; i < cols; i++) {
        float a = fabsf(row[i]);
        most = a > most ? a : most;
    }
    return csn_half_from_f32(most);
}

/* What weights are divided by: the scale as stored. A row so small that this is 0 decodes to zeros
 * whatever its indices are. */
static inline float csn_vq_divisor(uint16_t scale) {
    float s = csn_half_to_f32(scale);
    return s > 0 ? s : 1;
}

#endif
