/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, AVX2 with FMA: the 32 lanes of kernels.h are four vectors. Rows of weights are decoded
 * piece by piece, three at a time, and meet all vectors of x before the next piece, so that a
 * decoded weight is used n times. Three rows with one vector are 12 sums: what the registers hold.
 * Included by kernel files that say how to decode. */
#ifndef CSN_KERNELS_X86_F32_AVX2_H
#define CSN_KERNELS_X86_F32_AVX2_H

#include "kernels/x86/i8_avx2.h"

enum {
    ROWS = 3,     /* rows decoded together */
    PIECE = 1024, /* columns decoded at once: three rows are 12 KiB, in L1 */
    CHUNK = 32    /* vectors whose lanes are kept between pieces: 12 KiB */
};

/* Values of columns [c, c + m) of row r: in `buf`, or where they lie. Unaligned. m <= PIECE. */
typedef const void *(*decode_fn)(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                 float *buf);

CSN_INLINE __m256 load8(const void *p, uint64_t i) {
    return _mm256_loadu_ps((const float *)p + i);
}

/* The last columns of a row, fewer than 32: lanes past them stay as they are (adding 0 * 0 would
 * turn a -0 into +0). */
static inline void add_tail(const void *w, const float *x, uint64_t m, float *lane) {
    _Alignas(32) float wt[32] = {0};
    _Alignas(32) float xt[32] = {0};
    memcpy(wt, w, m * sizeof(float));
    memcpy(xt, x, m * sizeof(float));
    for (int k = 0; k < 4; k++) {
        __m256i i =
            _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * k));
        __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)m), i);
        __m256 old = _mm256_load_ps(lane + 8 * k);
        __m256 sum = _mm256_fmadd_ps(_mm256_load_ps(wt + 8 * k), _mm256_load_ps(xt + 8 * k), old);
        _mm256_store_ps(lane + 8 * k, _mm256_blendv_ps(old, sum, _mm256_castsi256_ps(inside)));
    }
}

/* Adds m columns of nr rows times one vector to the lanes. */
CSN_INLINE void add_piece(const void *const w[ROWS], int nr, const float *x, uint64_t m,
                          float (*lane)[32]) {
    __m256 acc[ROWS][4];
    CSN_UNROLL
    for (int r = 0; r < nr; r++) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            acc[r][k] = _mm256_load_ps(lane[r] + 8 * k);
        }
    }
    uint64_t i = 0;
    for (; i + 32 <= m; i += 32) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256 v = load8(x, i + 8 * (uint64_t)k);
            CSN_UNROLL
            for (int r = 0; r < nr; r++) {
                acc[r][k] = _mm256_fmadd_ps(load8(w[r], i + 8 * (uint64_t)k), v, acc[r][k]);
            }
        }
    }
    CSN_UNROLL
    for (int r = 0; r < nr; r++) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            _mm256_store_ps(lane[r] + 8 * k, acc[r][k]);
        }
        if (i < m) {
            add_tail((const float *)w[r] + i, x + i, m - i, lane[r]);
        }
    }
}

CSN_INLINE float tree32(const float *lane) {
    __m256 a = _mm256_add_ps(_mm256_load_ps(lane), _mm256_load_ps(lane + 16));
    __m256 b = _mm256_add_ps(_mm256_load_ps(lane + 8), _mm256_load_ps(lane + 24));
    return csn_tree_avx2(_mm256_add_ps(a, b));
}

CSN_INLINE void matmul(decode_fn decode, const csn_matrix *w, const float *x, uint64_t x_stride,
                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(64) float buf[ROWS][PIECE];
    _Alignas(64) float lane[CHUNK][ROWS][32];
    for (uint64_t t0 = 0; t0 < n; t0 += CHUNK) {
        uint64_t nt = n - t0 < CHUNK ? n - t0 : CHUNK;
        for (uint64_t r = r0; r < r1; r += ROWS) {
            int nr = r1 - r < ROWS ? (int)(r1 - r) : ROWS;
            memset(lane, 0, nt * sizeof(lane[0]));
            for (uint64_t c = 0; c < w->cols; c += PIECE) {
                uint64_t m = w->cols - c < PIECE ? w->cols - c : PIECE;
                const void *rows[ROWS] = {0};
                for (int i = 0; i < ROWS; i++) {
                    rows[i] = i < nr ? decode(w, r + (uint64_t)i, c, m, buf[i]) : rows[0];
                }
                for (uint64_t t = 0; t < nt; t++) {
                    const float *xt = x + (t0 + t) * x_stride + c;
                    if (nr == ROWS) {
                        add_piece(rows, ROWS, xt, m, lane[t]);
                    } else {
                        for (int i = 0; i < nr; i++) {
                            add_piece(rows + i, 1, xt, m, lane[t] + i);
                        }
                    }
                }
            }
            for (uint64_t t = 0; t < nt; t++) {
                for (int i = 0; i < nr; i++) {
                    y[(t0 + t) * y_stride + r + (uint64_t)i] = tree32(lane[t][i]);
                }
            }
        }
    }
}

/* The kernel of a dtype by its decode_<dtype>. */
#define CSN_DEFINE_F32(dtype)                                                                      \
    void csn_matmul_f32_##dtype##_avx2(const csn_matrix *w, const float *x, uint64_t x_stride,     \
                                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0,       \
                                       uint64_t r1) {                                              \
        matmul(decode_##dtype, w, x, x_stride, n, y, y_stride, r0, r1);                            \
    }

/* ---- what decoders share ---- */

CSN_INLINE const void *decode_any(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    w->dtype->decode(w, r * w->cols + c, m, buf);
    return buf;
}

CSN_INLINE __m256 eight_codes(const int8_t *q) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)q)));
}

/* One group: 16 bytes of nibbles, low ones the even columns. */
CSN_INLINE void decode_nibbles(const uint8_t *nib, float scale, float *out) {
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i eight = _mm_set1_epi8(8);
    __m128i n = _mm_loadu_si128((const void *)nib);
    __m128i even = _mm_sub_epi8(_mm_and_si128(n, mask), eight);
    __m128i odd = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(n, 4), mask), eight);
    __m128i half[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
    for (int h = 0; h < 2; h++) {
        __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half[h]));
        __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half[h], 8)));
        _mm256_store_ps(out + 16 * h, _mm256_mul_ps(a, _mm256_set1_ps(scale)));
        _mm256_store_ps(out + 16 * h + 8, _mm256_mul_ps(b, _mm256_set1_ps(scale)));
    }
}

#endif
