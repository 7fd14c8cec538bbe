/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and decoding of vector-quantised matrices; products are in kernels/vq.h. */
#include "quant/vq.h"

#include "quant/quant_internal.h"

bool csn_vq_index_nbytes(const csn_vq_books *b, uint32_t rows, uint32_t cols, uint32_t block,
                         uint64_t *ret) {
    const uint64_t unit = block == 0 ? 1 : block;
    const uint64_t padded = (rows + unit - 1) / unit * unit; /* below 2^33 */
    uint64_t n;
    if (cols % CSN_VQ_DIM != 0 || !csn_mul(padded, cols / CSN_VQ_DIM, &n) ||
        !csn_mul(n, csn_vq_vector_bytes(b), &n)) {
        return false;
    }
    *ret = n;
    return true;
}

void csn_vq_decode_row(const csn_vq_matrix *m, uint32_t row, float *ret) {
    const csn_vq_books *b = m->books;
    const float scale = csn_half_to_f32(csn_load16(m->scale + 2 * (uint64_t)row));
    for (uint32_t v = 0; v < m->cols / CSN_VQ_DIM; v++, ret += CSN_VQ_DIM) {
        const uint8_t *vector = csn_vq_vector(m, row, v);
        float sum[CSN_VQ_DIM] = {0};
        for (uint32_t s = 0; s < b->stages; s++) {
            uint32_t i = csn_vq_index(b, vector, s);
            for (uint32_t d = 0; d < CSN_VQ_DIM && i < b->entries; d++) {
                sum[d] += b->entry[((uint64_t)s * b->entries + i) * CSN_VQ_DIM + d];
            }
        }
        for (uint32_t d = 0; d < CSN_VQ_DIM; d++) {
            ret[d] = scale * sum[d];
        }
    }
}
