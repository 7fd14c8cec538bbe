/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices into residual vector quantisation (quant/vq.h, warp facts 9): codebooks by k-means over
 * a sample, then indices and row scales. The same bytes for any number of threads. */
#ifndef CSN_CONVERT_VQ_ENCODE_H
#define CSN_CONVERT_VQ_ENCODE_H

#include "base/random.h"
#include "base/threads.h"
#include "format/warp/writer.h"
#include "kernels/vq_nearest.h"

/* Up to `most` vectors of x [rows][cols], drawn without repetition, each over the scale of its row,
 * into out [most][8]. x is finite, cols a multiple of 8. */
caisson_status csn_vq_sample(const float *x, uint32_t rows, uint32_t cols, csn_random *r,
                             uint32_t most, float *out, uint32_t *ret_n, caisson_error *err);

/* Codebooks for x [n][8], n >= 1, which is used up: stage by stage on what the stages before leave,
 * 20 Lloyd iterations each from entries drawn at random. What is left is measured against the
 * values that are stored. ret: binary16 [stages][entries][8]. */
caisson_status csn_vq_train(float *x, uint32_t n, const csn_warp_coding *coding, csn_random *r,
                            csn_pool *pool, uint16_t *ret, caisson_error *err);

typedef struct csn_vq_encoder {
    const csn_warp_coding *coding;
    csn_vq_search search[CSN_VQ_MAX_STAGES];
    float entry[CSN_VQ_MAX_STAGES][CSN_VQ_MAX_ENTRIES][CSN_VQ_DIM];
} csn_vq_encoder;

void csn_vq_encoder_init(csn_vq_encoder *e, const csn_warp_coding *coding, const uint16_t *books);

/* Squares, summed over a matrix: of what coding lost, and of the weights. */
typedef struct csn_vq_error {
    double lost, whole;
} csn_vq_error;

/* x [rows][cols], finite. index: csn_vq_index_nbytes in blocks of 64 rows; scale: binary16 [rows].
 * A row's scale is its largest magnitude, or what minimises its error with the indices found, if
 * that is less. CAISSON_E_BOUNDS: a weight that binary16 cannot hold. */
caisson_status csn_vq_encode(const csn_vq_encoder *e, const float *x, uint32_t rows, uint32_t cols,
                             csn_pool *pool, uint8_t *index, uint8_t *scale, csn_vq_error *ret,
                             caisson_error *err);

#endif
