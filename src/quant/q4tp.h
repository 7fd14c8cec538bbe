/* SPDX-License-Identifier: Apache-2.0 */
/* The scale ladder of q4tp and q2tp rows, for decoders and for kernels (facts 4.11, 4.12). */
#ifndef CSN_QUANT_Q4TP_H
#define CSN_QUANT_Q4TP_H

#include <stdint.h>

#include "quant/dtype.h"

enum { CSN_Q4TP_RUNGS = 32 };

/* t[0] = exp2(lo), t[c] = t[c - 1] * exp2(step) in f32: the sequential product is the definition.
 * lo, step: the row's f16 parameters. Same bits on every machine. */
void csn_q4tp_ladder(uint16_t lo, uint16_t step, float t[CSN_Q4TP_RUNGS]);
/* q2tp: rung 0 is 0, rung c is t[c - 1] of the same ladder. */
void csn_q2tp_ladder(uint16_t lo, uint16_t step, float t[CSN_Q4TP_RUNGS]);

/* Unpacked: f32 [rows][csn_ladder_stride(cols)], what the integer sum of each group of 32 is
 * multiplied with (kernels/ref). */
static inline uint64_t csn_ladder_stride(uint64_t cols) { /* even, the last may be a zero */
    return (cols / 32 + 1) / 2 * 2;
}
uint64_t csn_ladder_unpacked_nbytes(const csn_matrix *m);
/* Of a matrix whose ladders lie behind group_bytes bytes of codes a group; each rung of each ladder
 * times `factor`. */
typedef void (*csn_ladder_fn)(uint16_t lo, uint16_t step, float t[CSN_Q4TP_RUNGS]);
void csn_ladder_scales(const csn_matrix *m, uint64_t group_bytes, csn_ladder_fn ladder,
                       float factor, float *out);

/* Bytes of the codes of a row of gpr groups. */
static inline uint64_t csn_q4tp_code_bytes(uint64_t gpr) {
    return (5 * gpr + 7) / 8;
}

/* Code of group g of a row whose code bytes begin at p: 5 bits, LSB first, at bit 5 * g. Reads the
 * second byte only when the code reaches into it. */
static inline unsigned csn_q4tp_code(const uint8_t *p, uint64_t g) {
    uint64_t bit = 5 * g;
    unsigned shift = (unsigned)(bit % 8);
    unsigned v = p[bit / 8];
    if (shift > 3) {
        v |= (unsigned)p[bit / 8 + 1] << 8;
    }
    return v >> shift & 31u;
}

#endif
