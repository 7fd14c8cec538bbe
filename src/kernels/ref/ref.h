/* SPDX-License-Identifier: Apache-2.0 */
/* What the plain C kernels share. */
#ifndef CSN_KERNELS_REF_REF_H
#define CSN_KERNELS_REF_REF_H

#include <string.h>

#include "kernels/kernels.h"

/* Lane l += lane l+16 (l < 16), then +8, +4, +2, +1: the sum of 32 lanes. Destroys `lane`. */
float csn_tree32(float *lane);

void csn_matmul_f32_any_ref(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                            float *y, uint64_t y_stride, uint64_t r0, uint64_t r1);

static inline uint16_t csn_load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

#endif
