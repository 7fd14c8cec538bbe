/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of quantised activations in one buffer: codes, split codes, pairs, scales, offsets,
 * sums, exact elements. */
#include "base/size.h"
#include "kernels/kernels.h"

/* Rows whose stride is a multiple of a page share the sets of an L1 cache (64 sets of 64 bytes);
 * the four or more rows that a tile reads at once then evict one another. */
static uint64_t code_stride(uint64_t g_stride) {
    uint64_t bytes = g_stride * 32;
    return bytes % 2048 == 0 ? bytes + 64 : bytes;
}

bool csn_x8_nbytes(uint64_t n, uint64_t cols, uint64_t *ret) {
    uint64_t padded;
    uint64_t bytes; /* of a vector: two rows of codes, then 12 bytes a group, then exact elements */
    uint64_t pairs; /* of all: as many bytes a vector as codes */
    uint64_t n_few = n < CSN_FEW_VECTORS ? n : CSN_FEW_VECTORS;
    return csn_align_up(cols, 256, &padded) && csn_mul(padded, 3, &bytes) &&
           csn_add(bytes, 128 + 8 * CSN_X8_EXACT, &bytes) && csn_mul(bytes, n, &bytes) &&
           csn_mul(padded, n_few, &pairs) && csn_add(bytes, pairs, ret);
}

csn_x8 csn_x8_make(void *buf, uint64_t n, uint64_t cols) {
    csn_x8 x = {.n = n, .cols = cols, .n_groups = (cols + 31) / 32};
    x.g_stride = (x.n_groups + 7) / 8 * 8;
    x.q_stride = code_stride(x.g_stride);
    x.q = buf;
    x.split = x.q + n * x.q_stride;
    void *behind = x.split + n * x.q_stride;
    if (n <= CSN_FEW_VECTORS) {
        x.pair = behind;
        behind = x.pair + n * (x.g_stride / 2);
    }
    x.scale = behind;
    x.offset = (int16_t *)(void *)(x.scale + n * x.g_stride);
    x.minus = (int32_t *)(void *)(x.offset + n * x.g_stride * 2);
    x.exact_i = (uint32_t *)(void *)(x.minus + n * x.g_stride);
    x.exact_x = (float *)(void *)(x.exact_i + n * CSN_X8_EXACT);
    return x;
}
