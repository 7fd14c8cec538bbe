/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of quantised activations in one buffer: codes, split codes, scales, offsets, exact
 * elements; and how those are chosen. */
#include "base/size.h"
#include "kernels/kernels.h"
#include "quant/half.h"

/* Rows whose stride is a multiple of a page share the sets of an L1 cache (64 sets of 64 bytes);
 * the four or more rows that a tile reads at once then evict one another. */
static uint64_t code_stride(uint64_t g_stride) {
    uint64_t bytes = g_stride * 32;
    return bytes % 2048 == 0 ? bytes + 64 : bytes;
}

bool csn_x8_nbytes(uint64_t n, uint64_t cols, uint64_t *ret) {
    uint64_t padded;
    uint64_t bytes; /* of a vector: two rows of codes, then 8 bytes a group, then exact elements */
    if (!csn_align_up(cols, 256, &padded) || !csn_mul(padded, 3, &bytes) ||
        !csn_add(bytes, 128 + 8 * CSN_X8_EXACT, &bytes) || !csn_mul(bytes, n, &bytes)) {
        return false;
    }
    *ret = bytes;
    return true;
}

csn_x8 csn_x8_make(void *buf, uint64_t n, uint64_t cols) {
    csn_x8 x = {.n = n, .cols = cols, .n_groups = (cols + 31) / 32};
    x.g_stride = (x.n_groups + 7) / 8 * 8;
    x.q_stride = code_stride(x.g_stride);
    x.q = buf;
    x.split = x.q + n * x.q_stride;
    x.scale = (float *)(void *)(x.split + n * x.q_stride);
    x.offset = (int16_t *)(void *)(x.scale + n * x.g_stride);
    x.exact_i = (uint32_t *)(void *)(x.offset + n * x.g_stride * 2);
    x.exact_x = (float *)(void *)(x.exact_i + n * CSN_X8_EXACT);
    return x;
}

/* Magnitudes of finite floats are ordered as the integers of their bits are. */
static inline int32_t magnitude(float x) {
    return (int32_t)(csn_f32_bits(x) & 0x7fffffffu);
}

/* The largest of 32. */
static int32_t largest(const float *x) {
    int32_t m = 0;
    for (int i = 0; i < 32; i++) {
        int32_t a = magnitude(x[i]);
        m = a > m ? a : m;
    }
    return m;
}

static uint64_t find_largest(const float *x, uint64_t n) {
    uint64_t from = 0; /* the first element that may be it */
    uint64_t whole = n / 32 * 32;
    int32_t best = -1;
    for (uint64_t i = 0; i < whole; i += 32) {
        int32_t m = largest(x + i);
        if (m > best) {
            best = m;
            from = i;
        }
    }
    for (uint64_t i = whole; i < n; i++) {
        int32_t m = magnitude(x[i]);
        if (m > best) {
            best = m;
            from = i;
        }
    }
    while (magnitude(x[from]) != best) {
        from++;
    }
    return from;
}

void csn_x8_take_exact(float *x, const csn_x8 *x8, uint64_t t) {
    for (uint64_t k = 0; k < CSN_X8_EXACT; k++) {
        uint64_t i = find_largest(x, x8->cols);
        x8->exact_i[t * CSN_X8_EXACT + k] = (uint32_t)i;
        x8->exact_x[t * CSN_X8_EXACT + k] = x[i];
        x[i] = 0;
    }
}
