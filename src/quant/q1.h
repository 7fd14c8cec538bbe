/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and outliers of q1, q1s and q1t (facts 4.8 to 4.10), for the decoders and for kernels.
 * Matrices have passed their dtype's check: outliers lie inside the payload and inside the tensor,
 * in rising order, none twice. */
#ifndef CSN_QUANT_Q1_H
#define CSN_QUANT_Q1_H

#include "quant/dtype.h"

enum {
    CSN_Q1_TILE = 6,  /* bytes of 32 weights of q1 and q1s: [f16 scale][4 bytes of signs] */
    CSN_Q1T_TILE = 9, /* of q1t: [f16 scale][7 bytes of five base-3 digits] */
    CSN_Q1S_OUTLIER = 6 /* bytes: [u32 flat index][f16 value] */,
    CSN_Q1T_OUTLIER = 4 /* [u16 column][f16 value] */
};

/* Weights that an overlay puts in place of those of the tiles. */
typedef struct csn_outliers {
    const uint8_t *p; /* n entries */
    uint64_t n;
} csn_outliers;

/* Those of the flat elements [i0, i1) of a q1s matrix. */
csn_outliers csn_q1s_outliers(const csn_matrix *m, uint64_t i0, uint64_t i1);
/* Those of columns [c0, c1) of a row of a q1t matrix. */
csn_outliers csn_q1t_outliers(const csn_matrix *m, uint64_t row, uint64_t c0, uint64_t c1);

/* Sign of weight k of a q1 tile: 1 or -1. */
static inline int csn_q1_sign(const uint8_t *tile, unsigned k) {
    return (tile[2 + k / 8] >> k % 8 & 1) * 2 - 1;
}

/* Weight k of a q1t tile over its scale: 0, 1 or -1 for the digits 0, 1, 2. */
static inline int csn_q1t_weight(const uint8_t *tile, unsigned k) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    unsigned digit = tile[2 + k / 5] / power[k % 5] % 3u;
    return digit == 2 ? -1 : (int)digit;
}

#endif
