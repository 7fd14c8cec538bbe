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

/* Unpacked outliers of a q1s matrix of at most CSN_Q1S_COLS columns: those of row r are first[r] to
 * first[r + 1]. Behind the last are CSN_Q1S_BEHIND that may be read. */
enum { CSN_Q1S_BEHIND = 7, CSN_Q1S_COLS = 8192 };
typedef struct csn_q1s_deltas {
    const uint32_t *first; /* [rows + 1] */
    const float *delta;    /* the outlier's value - (+-1 of the tile) * the tile's scale, in f32 */
    const uint16_t *col;
} csn_q1s_deltas;
csn_q1s_deltas csn_q1s_unpacked(const csn_matrix *m);

/* Whether rows [r0, r1) of a q1t matrix have any. */
bool csn_q1t_has_outliers(const csn_matrix *m, uint64_t r0, uint64_t r1);

/* Flat index of an outlier of q1s, column of one of q1t. */
static inline uint64_t csn_q1s_index(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t csn_q1t_column(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/* Weight k of a q1 tile: 1 stands for the scale, 0 for minus the scale. */
static inline int csn_q1_bit(const uint8_t *tile, unsigned k) {
    return (int)(csn_q1s_index(tile + 2) >> k & 1u); /* the four bytes of signs as one number */
}

/* Weight k of a q1t tile over its scale: 0, 1 or -1 for the digits 0, 1, 2. Times 2^16 / 3^(k % 5 +
 * 1), rounded up for byte 0 and tripled downwards, a byte modulo 2^16 is a fraction whose first
 * digit is the one that is wanted (tests/unit/quant/test_q1.c tries every byte). */
static inline int csn_q1t_weight(const uint8_t *tile, unsigned k) {
    static const uint16_t factor[5] = {21870, 7290, 2430, 810, 270};
    uint32_t fraction = (uint32_t)tile[2 + k / 5] * factor[k % 5] & 0xffffu;
    uint32_t digit = fraction * 3 >> 16;
    return digit == 2 ? -1 : (int)digit;
}

#endif
