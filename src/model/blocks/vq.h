/* SPDX-License-Identifier: Apache-2.0 */
/* Experts whose matrices are vector-quantised (kernels/vq.h). The tables of a chunk's vectors are
 * made once for all experts of a layer, those behind the activation once an expert. In f32, where
 * tables are large, chunks of more than a few vectors do without. */
#ifndef CSN_MODEL_BLOCKS_VQ_H
#define CSN_MODEL_BLOCKS_VQ_H

#include "kernels/vq.h"
#include "model/ops.h"

enum {
    CSN_VQ_ROWS = 64,              /* results of one csn_block_vq_run */
    CSN_VQ_TABLE_BYTES = 96 << 20, /* of the tables of a chunk: a longer one is cut */
    CSN_VQ_FEW = 8                 /* vectors of a chunk that have tables in f32 */
};

typedef struct csn_vq_memory {
    csn_vq_kernel kernel;
    csn_vq_sizes sizes;
    uint64_t in_bytes, down_bytes; /* of one table */
    uint8_t *in;                   /* [n][2][in_bytes] of gate and of up */
    const float *x;                /* the chunk's vectors where they have no tables, else NULL */
    uint8_t *down;                 /* [CSN_VQ_ROWS][down_bytes] */
    float *gate, *up;              /* [CSN_VQ_ROWS][width] */
    float *y;                      /* [CSN_VQ_ROWS][hidden] results */
    void *bytes;
} csn_vq_memory;

/* Vectors of a chunk that the tables leave room for, at least 8. */
uint32_t csn_vq_max_chunk(const csn_vq_sizes *sizes, csn_compute compute);
caisson_status csn_vq_memory_new(const csn_vq_sizes *sizes, csn_compute compute, uint32_t max_n,
                                 csn_vq_memory *ret, caisson_error *err);
/* Bytes that it allocates; UINT64_MAX: more than there can be. */
uint64_t csn_vq_memory_nbytes(const csn_vq_sizes *sizes, csn_compute compute, uint32_t max_n);
void csn_vq_memory_done(csn_vq_memory *m); /* of a zeroed one too */

typedef struct csn_vq_job { /* an expert, and the vectors of the chunk that go through it */
    csn_vq_matrix gate, up, down;
    const uint32_t *rows; /* [n] */
    uint32_t n;
    uint32_t first; /* results are y[first] to y[first + n - 1] */
} csn_vq_job;

/* The n vectors x [n][hidden] that meet the experts of a layer; they stay until that is done. */
void csn_block_vq_begin(csn_ops *ops, csn_vq_memory *m, const csn_vq_books *gate,
                        const csn_vq_books *up, const float *x, uint64_t n);
/* y[first + i] = down (act(gate x) * (up x)), x = vector rows[i], of all jobs at once; the sum of
 * their n is at most CSN_VQ_ROWS. */
void csn_block_vq_run(csn_ops *ops, csn_vq_memory *m, const csn_vec_act *act,
                      const csn_vq_job *jobs, uint32_t n_jobs);

#endif
