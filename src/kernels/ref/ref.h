/* SPDX-License-Identifier: Apache-2.0 */
/* What the plain C kernels share. */
#ifndef CSN_KERNELS_REF_REF_H
#define CSN_KERNELS_REF_REF_H

#include <string.h>

#include "kernels/types.h"

/* Lane l += lane l+16 (l < 16), then +8, +4, +2, +1: the sum of 32 lanes. Destroys `lane`. */
float csn_tree32(float *lane);

/* The same for the 8 lanes of int8 mode. */
static inline float csn_tree8(const float *l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static inline uint16_t csn_load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

#endif
