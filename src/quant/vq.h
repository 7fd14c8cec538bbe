/* SPDX-License-Identifier: Apache-2.0 */
/* Residual vector quantisation, the form of WARP's routed experts (warp facts 4 to 6): eight
 * neighbouring weights of a row are the sum of one entry of each of several codebooks, times the
 * row's scale. VQ3R is 3 stages of 256 entries, VQ2R 2 of 256, VQ4P 4 of 64 with packed indices. */
#ifndef CSN_QUANT_VQ_H
#define CSN_QUANT_VQ_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CSN_VQ_DIM = 8,    /* weights of a vector */
    CSN_VQ_BLOCK = 64, /* rows of an index block */
    CSN_VQ_MAX_STAGES = 8,
    CSN_VQ_MAX_ENTRIES = 256
};

/* The codebooks of one kind of matrix (gate, up or down) of one layer; its experts share them. */
typedef struct csn_vq_books {
    uint32_t stages, entries;
    bool is_packed;     /* 6-bit indices of 4 stages in 3 bytes (64 entries); else a byte a stage */
    const float *entry; /* [stages][entries][8] */
    const float *column; /* [stages][8][entries] the same values */
} csn_vq_books;

/* Bytes of one vector's indices. */
static inline uint32_t csn_vq_vector_bytes(const csn_vq_books *b) {
    return b->is_packed ? 3 : b->stages;
}

typedef struct csn_vq_matrix { /* [rows][cols], cols a multiple of 8 */
    const csn_vq_books *books;
    /* [row block][vector of the row][row of the block][csn_vq_vector_bytes], blocks of `block`
     * rows, the last one padded; block 0: [row][vector][...] */
    const uint8_t *index;
    const uint8_t *scale; /* [rows] binary16, unaligned */
    uint32_t rows, cols, block;
} csn_vq_matrix;

/* Bytes of the index block of a matrix; false on overflow or when cols is no multiple of 8. */
bool csn_vq_index_nbytes(const csn_vq_books *b, uint32_t rows, uint32_t cols, uint32_t block,
                         uint64_t *ret);

/* The indices of vector v of a row. */
static inline const uint8_t *csn_vq_vector(const csn_vq_matrix *m, uint32_t row, uint32_t v) {
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t block = m->block == 0 ? 1 : m->block;
    return m->index +
           ((row / block * nv + v) * block + row % block) * csn_vq_vector_bytes(m->books);
}

/* The index of stage s. A byte may name an entry that does not exist where entries < 256: it stands
 * for eight zeros. */
static inline uint32_t csn_vq_index(const csn_vq_books *b, const uint8_t *vector, uint32_t s) {
    if (!b->is_packed) {
        return vector[s];
    }
    uint32_t w = vector[0] | (uint32_t)vector[1] << 8 | (uint32_t)vector[2] << 16;
    return w >> 6 * s & 63u;
}

/* Weights [cols] of a row: scale * (sum of entries, stage by stage from 0). */
void csn_vq_decode_row(const csn_vq_matrix *m, uint32_t row, float *ret);

#endif
