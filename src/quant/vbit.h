/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a vbit or vbit_ro payload, for the decoder and for kernels, and the choice of widths
 * (facts 4.6, 4.7).
 *
 * A row of `bits` b is cols * b / 8 bytes: codes of b bits, the first in the highest bits, and so
 * 4 b whole bytes a group of 32. A weight is (code - csn_vbit_zero(b)) * scale of its group.
 */
#ifndef CSN_QUANT_VBIT_H
#define CSN_QUANT_VBIT_H

#include "quant/dtype.h"

typedef struct csn_vbit {
    const uint8_t *bits;   /* [rows] width of each row: 3, 4, 5, 6 or 8 */
    const uint8_t *scales; /* f16 [rows][n_groups], no alignment */
    const uint8_t *packed; /* the rows, one behind the other */
    uint64_t packed_bytes;
    uint64_t rows, n_groups; /* n_groups: of a row */
    bool has_offsets;        /* vbit_ro: u32 [rows + 1] lie before `packed` and count from there */
} csn_vbit;

/* m: a checked payload of either dtype. */
csn_vbit csn_vbit_parts(const csn_matrix *m);

static inline int csn_vbit_zero(unsigned bits) {
    return (1 << (bits - 1)) - 1;
}

/* ---- rows ----
 * The payload was checked when it was opened, but somebody may have changed the file under its
 * mapping since. Widths and offsets are therefore read once a row, and whatever they say a row lies
 * inside the payload and has one of the five widths. */
typedef struct csn_vbit_row {
    const uint8_t *p;
    unsigned bits;
} csn_vbit_row;

/* A place among the rows, for callers that want one row after the other and some of them again. */
typedef struct csn_vbit_at {
    uint64_t row, offset; /* in `packed` */
} csn_vbit_at;

/* Without offsets it adds up the widths of the rows before it, some 3000 cycles for 24,000 of them:
 * callers do so once and then walk. */
csn_vbit_at csn_vbit_begin(const csn_vbit *v, uint64_t row);

static inline unsigned csn_vbit_bits(const csn_vbit *v, uint64_t row) {
    static const uint8_t width[16] = {3, 3, 3, 3, 4, 5, 6, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    return width[v->bits[row] & 15];
}

static inline csn_vbit_row csn_vbit_walk(const csn_vbit *v, csn_vbit_at *at, uint64_t row) {
    const uint64_t per_bit = 4 * v->n_groups;
    for (; at->row < row; at->row++) {
        at->offset += per_bit * csn_vbit_bits(v, at->row);
    }
    while (at->row > row) {
        at->offset -= per_bit * csn_vbit_bits(v, --at->row);
    }
    const unsigned bits = csn_vbit_bits(v, row);
    const uint64_t n = per_bit * bits;
    if (n > v->packed_bytes || at->offset > v->packed_bytes - n) {
        return (csn_vbit_row){v->packed, 3};
    }
    return (csn_vbit_row){v->packed + at->offset, bits};
}

/* Code i of a row. Reads the second byte only when the code reaches into it. */
static inline unsigned csn_vbit_code(const uint8_t *row, unsigned bits, uint64_t i) {
    uint64_t bit = i * bits;
    unsigned end = (unsigned)(bit % 8) + bits; /* behind the code, from the first byte's top on */
    unsigned v = (unsigned)row[bit / 8] << 8;
    if (end > 8) {
        v |= row[bit / 8 + 1];
    }
    return v >> (16 - end) & ((1u << bits) - 1);
}

/* ---- choosing widths ----
 * What a row needs grows with the logarithm of its largest magnitude, its level: the width is the
 * nearest of 3, 4, 5, 6 and 8 to mean_bits + level - mean of the levels. */
#define CSN_VBIT_MEAN_BITS 4.25f
static inline float csn_vbit_mean_bits(const csn_encode_options *o) {
    return o->mean_bits != 0 ? o->mean_bits : CSN_VBIT_MEAN_BITS;
}

/* level[r] of each row of x. Same values for any number of threads. */
void csn_vbit_levels(const float *x, const csn_shape *shape, csn_pool *pool, float *level);
/* Widths of n rows; `bias`: more or fewer bits than mean_bits for these rows (0 for a tensor by
 * itself). */
void csn_vbit_widths(const float *level, uint64_t n, float mean_bits, float bias, uint8_t *bits);
/* One budget for a family of tensors: a loud one gets more bits than a quiet one, and the widths of
 * all rows together have mean_bits as their mean, as far as widths from 3 to 8 can. Tensor i has
 * the rows level[first[i]] to level[first[i + 1] - 1], at least one. bias: [n], for
 * csn_vbit_widths. */
void csn_vbit_biases(const float *level, const uint64_t *first, uint32_t n, float mean_bits,
                     float *bias);

#endif
