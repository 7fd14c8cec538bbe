/* SPDX-License-Identifier: Apache-2.0 */
/* int8 product with one to three vectors for AVX-512, for rows of codes of one and two bits,
 * included by a kernel file that says what sixteen groups of a row are.
 *
 * Sixteen neighbouring groups are the lanes of a vector, so that nothing is added across lanes
 * before a row ends: the codes of a group fill one dword, or two, and the columns of x are laid out
 * so that vpdpbusd adds what one dword has. The low half is groups 0 to 7 of the eight lanes of
 * kernels.h, the high half the next.
 *
 * Four rows at a time, which lie far apart (docs/decisions/003-streams-of-rows.md). */
#ifndef CSN_KERNELS_X86_LANES_AVX512_H
#define CSN_KERNELS_X86_LANES_AVX512_H

#include "kernels/x86/i8_avx2.h"

enum {
    LANES_GROUPS = 16,
    LANES_ROWS = 4,
    LANES_BATCH = 2,        /* vectors that share one reading of the rows */
    LANES_ROOM = 128 << 10, /* bytes of x, laid out */
};

/* Sixteen groups of a row, or at its end fewer. */
struct lanes_at {
    const uint8_t *w, *scale;
    uint64_t n; /* groups: 1 to 16 */
};

struct lanes_kind {
    /* *ws: the scales; sum[c]: the sums with the vector that is laid out at x + c * x_stride. Zeros
     * where there is no group. */
    void (*step)(const struct lanes_at *at, const int8_t *x, uint64_t x_stride, int nc, __m512 *ws,
                 __m512i *sum);
    /* Lays sixteen groups of x out, of which the first n are there and the others to be zeros. */
    void (*lay)(const csn_x8 *x, uint64_t t, uint64_t g, uint64_t n, int8_t *to);
    struct {
        uint64_t w, scale;
    } step_bytes, row_bytes;
    uint64_t x_bytes; /* of sixteen groups, laid out: a multiple of 64 */
};

/* Bytes [at, at + 64) of n_bytes at p, zeros behind them. */
CSN_INLINE __m512i lanes_load(const uint8_t *p, uint64_t at, uint64_t n_bytes) {
    const uint64_t n = n_bytes < at ? 0 : n_bytes - at;
    return n >= 64 ? _mm512_loadu_si512(p + at)
                   : _mm512_maskz_loadu_epi8((UINT64_C(1) << n) - 1, p + at);
}

CSN_INLINE __m512 lanes_floats(const float *p, uint64_t n) {
    return n >= LANES_GROUPS ? _mm512_loadu_ps(p)
                             : _mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), p);
}

/* Minus the sums of the codes of x of sixteen groups. */
CSN_INLINE __m512i lanes_minus_sums(const csn_x8 *x, uint64_t t, uint64_t g, uint64_t n) {
    const uint8_t *o = (const uint8_t *)(x->offset + (t * x->g_stride + g) * 2);
    return _mm512_srai_epi32(_mm512_madd_epi16(lanes_load(o, 0, 4 * n), _mm512_set1_epi16(1)), 3);
}

/* Of sixteen pairs of dwords in two vectors the sums. */
CSN_INLINE __m512i lanes_of_pairs(__m512i a, __m512i b) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                            _mm512_permutex2var_epi32(a, odd, b));
}

/* The halving trees of four rows. */
CSN_INLINE __m128 lanes_trees(const __m256 acc[LANES_ROWS]) {
    __m128 v[LANES_ROWS];
    CSN_UNROLL
    for (int k = 0; k < LANES_ROWS; k++) {
        v[k] = _mm_add_ps(_mm256_castps256_ps128(acc[k]), _mm256_extractf128_ps(acc[k], 1));
    }
    __m128 a = _mm_add_ps(_mm_movelh_ps(v[0], v[1]), _mm_movehl_ps(v[1], v[0]));
    __m128 b = _mm_add_ps(_mm_movelh_ps(v[2], v[3]), _mm_movehl_ps(v[3], v[2]));
    return _mm_add_ps(_mm_shuffle_ps(a, b, 0x88), _mm_shuffle_ps(a, b, 0xDD));
}

/* Adds groups [g, g + n) of four rows. */
CSN_INLINE void lanes_add(const struct lanes_kind *kind, const uint8_t *const w[LANES_ROWS],
                          const uint8_t *const scale[LANES_ROWS], const csn_x8 *x,
                          const int8_t *laid, uint64_t x_stride, uint64_t t, int nc, uint64_t g,
                          uint64_t n, __m256 acc[LANES_BATCH][LANES_ROWS]) {
    const uint64_t i = g / LANES_GROUPS;
    CSN_UNROLL
    for (int k = 0; k < LANES_ROWS; k++) {
        const struct lanes_at at = {w[k] + i * kind->step_bytes.w,
                                    scale[k] + i * kind->step_bytes.scale, n};
        __m512 ws;
        __m512i sum[LANES_BATCH];
        kind->step(&at, laid + i * kind->x_bytes, x_stride, nc, &ws, sum);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m512 xs = lanes_floats(x->scale + (t + (uint64_t)c) * x->g_stride + g, n);
            __m512 f = _mm512_mul_ps(_mm512_mul_ps(ws, xs), _mm512_cvtepi32_ps(sum[c]));
            acc[c][k] = _mm256_add_ps(acc[c][k], _mm512_castps512_ps256(f));
            acc[c][k] = _mm256_add_ps(acc[c][k], _mm512_extractf32x8_ps(f, 1));
        }
    }
}

/* Rows r[0..3] and the vectors t to t + nc - 1, laid out from `laid` on. */
CSN_INLINE void lanes_products(const struct lanes_kind *kind, const uint8_t *w,
                               const uint8_t *scale, const uint64_t r[LANES_ROWS], const csn_x8 *x,
                               const int8_t *laid, uint64_t x_stride, uint64_t t, int nc, float *y,
                               uint64_t y_stride) {
    const uint8_t *of[LANES_ROWS];
    const uint8_t *scale_of[LANES_ROWS];
    __m256 acc[LANES_BATCH][LANES_ROWS];
    CSN_UNROLL
    for (int k = 0; k < LANES_ROWS; k++) {
        of[k] = w + r[k] * kind->row_bytes.w;
        scale_of[k] = scale + r[k] * kind->row_bytes.scale;
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            acc[c][k] = _mm256_setzero_ps();
        }
    }
    uint64_t g = 0;
    for (; g + LANES_GROUPS <= x->n_groups; g += LANES_GROUPS) {
        lanes_add(kind, of, scale_of, x, laid, x_stride, t, nc, g, LANES_GROUPS, acc);
    }
    if (g < x->n_groups) {
        lanes_add(kind, of, scale_of, x, laid, x_stride, t, nc, g, x->n_groups - g, acc);
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        float sum[LANES_ROWS];
        _mm_storeu_ps(sum, lanes_trees(acc[c]));
        CSN_UNROLL
        for (int k = 0; k < LANES_ROWS; k++) {
            y[(t + (uint64_t)c) * y_stride + r[k]] = sum[k];
        }
    }
}

/* Bytes of a vector of x, laid out. */
CSN_INLINE uint64_t lanes_x_bytes(const struct lanes_kind *kind, const csn_x8 *x) {
    return (x->n_groups + LANES_GROUPS - 1) / LANES_GROUPS * kind->x_bytes;
}

CSN_INLINE bool lanes_fit(const struct lanes_kind *kind, const csn_x8 *x, uint64_t n,
                          uint64_t n_rows) {
    return n <= CSN_FEW_VECTORS && n_rows >= LANES_ROWS && n * lanes_x_bytes(kind, x) <= LANES_ROOM;
}

/* y for rows [r0, r1) and n vectors, where they fit. */
CSN_INLINE void lanes_i8(const struct lanes_kind *kind, const uint8_t *w, const uint8_t *scale,
                         const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride, uint64_t r0,
                         uint64_t r1) {
    _Alignas(64) int8_t laid[LANES_ROOM];
    const uint64_t x_stride = lanes_x_bytes(kind, x);
    for (uint64_t t = 0; t < n; t++) {
        for (uint64_t g = 0; g < x->n_groups; g += LANES_GROUPS) {
            const uint64_t left = x->n_groups - g;
            kind->lay(x, t, g, left < LANES_GROUPS ? left : LANES_GROUPS,
                      laid + t * x_stride + g / LANES_GROUPS * kind->x_bytes);
        }
    }
    const uint64_t apart = (r1 - r0) / LANES_ROWS;
    const bool has_rest = apart * LANES_ROWS != r1 - r0; /* the last four, some of them again */
    for (uint64_t i = 0; i < apart + (has_rest ? 1 : 0); i++) {
        const uint64_t a = i == apart ? r1 - LANES_ROWS : r0 + i;
        const uint64_t step = i == apart ? 1 : apart;
        const uint64_t r[LANES_ROWS] = {a, a + step, a + 2 * step, a + 3 * step};
        uint64_t t = 0;
        for (; t + 2 <= n; t += 2) {
            lanes_products(kind, w, scale, r, x, laid + t * x_stride, x_stride, t, 2, y, y_stride);
        }
        if (t < n) {
            lanes_products(kind, w, scale, r, x, laid + t * x_stride, x_stride, t, 1, y, y_stride);
        }
    }
}

#endif
