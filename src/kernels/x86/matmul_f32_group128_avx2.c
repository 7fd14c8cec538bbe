/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, q8g and q4g (quant/group128.h), AVX2 with FMA. Few vectors: codes become floats in
 * registers and meet x there, two rows at a time; many: f32_avx2.h. */
#include "kernels/x86/f32_avx2.h"
#include "quant/group128.h"

enum {
    FEW = 4,     /* vectors; from here on decoding a piece once is faster */
    FEW_ROWS = 2 /* eight sums, so that none waits for the one before */
};

struct group128 {
    const uint8_t *codes, *scales;
    uint64_t row_bytes, n_scales; /* of a row */
    uint64_t cols;
};

/* ---- few vectors ---- */

/* The codes of 32 columns, lane j times 16^j where the scales are divided by that. */
typedef void (*codes_fn)(const uint8_t *p, __m256 w[4]);

CSN_INLINE void codes_q8g(const uint8_t *p, __m256 w[4]) {
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        w[k] = eight_codes((const int8_t *)p + 8 * k);
    }
}

/* Nibbles stay where they are in their 32 bits. */
CSN_INLINE void codes_q4g(const uint8_t *p, __m256 w[4]) {
    const __m256i place = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i mask = _mm256_sllv_epi32(_mm256_set1_epi32(15), place);
    const __m256i eight = _mm256_sllv_epi32(_mm256_set1_epi32(8), place);
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        __m256i n = _mm256_and_si256(_mm256_set1_epi32(csn_load32(p + 4 * k)), mask);
        w[k] = _mm256_cvtepi32_ps(_mm256_sub_epi32(n, eight));
    }
}

CSN_INLINE __m256 scale_of(uint64_t bytes_of_32, const uint8_t *scale) {
    const __m256 s = _mm256_set1_ps(csn_scale16(scale));
    return bytes_of_32 == 32
               ? s
               : _mm256_mul_ps(s, _mm256_setr_ps(0x1p-0f, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f,
                                                 0x1p-20f, 0x1p-24f, 0x1p-28f));
}

/* Columns past the last multiple of 32, m of them, of one row: its codes and scale. */
CSN_INLINE float finish_row(codes_fn codes, const uint8_t *p, __m256 scale, const float *x,
                            uint64_t m, const __m256 acc[4]) {
    _Alignas(32) float lane[32];
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        _mm256_store_ps(lane + 8 * k, acc[k]);
    }
    if (m > 0) {
        _Alignas(32) float buf[32];
        __m256 w[4];
        codes(p, w);
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            _mm256_store_ps(buf + 8 * k, _mm256_mul_ps(w[k], scale));
        }
        add_tail(buf, x, m, lane);
    }
    return tree32(lane);
}

/* Rows r and r + apart, or r alone, times one vector. */
CSN_INLINE void few_rows(codes_fn codes, uint64_t bytes_of_32, const struct group128 *m, uint64_t r,
                         uint64_t apart, int nr, const float *x, float *y) {
    __m256 acc[FEW_ROWS][4];
    const uint8_t *p[FEW_ROWS];
    const uint8_t *scale[FEW_ROWS];
    CSN_UNROLL
    for (int i = 0; i < nr; i++) {
        p[i] = m->codes + (r + (uint64_t)i * apart) * m->row_bytes;
        scale[i] = m->scales + 2 * (r + (uint64_t)i * apart) * m->n_scales;
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            acc[i][k] = _mm256_setzero_ps();
        }
    }
    for (uint64_t g = 0; g < m->cols / 32;) {
        __m256 s[FEW_ROWS];
        CSN_UNROLL
        for (int i = 0; i < nr; i++) {
            s[i] = scale_of(bytes_of_32, scale[i] + g / 4 * 2);
        }
        const uint64_t end = g + 4 < m->cols / 32 ? g + 4 : m->cols / 32;
        for (; g < end; g++) {
            CSN_UNROLL
            for (int i = 0; i < nr; i++) {
                __m256 w[4];
                codes(p[i] + g * bytes_of_32, w);
                CSN_UNROLL
                for (uint64_t k = 0; k < 4; k++) {
                    acc[i][k] = _mm256_fmadd_ps(_mm256_mul_ps(w[k], s[i]), load8(x, 32 * g + 8 * k),
                                                acc[i][k]);
                }
            }
        }
    }
    const uint64_t rest = m->cols % 32;
    const uint64_t g = m->cols / 32;
    CSN_UNROLL
    for (int i = 0; i < nr; i++) {
        __m256 last = rest > 0 ? scale_of(bytes_of_32, scale[i] + g / 4 * 2) : _mm256_setzero_ps();
        y[r + (uint64_t)i * apart] =
            finish_row(codes, p[i] + g * bytes_of_32, last, x + 32 * g, rest, acc[i]);
    }
}

CSN_INLINE void few(codes_fn codes, uint64_t bytes_of_32, const csn_matrix *w, const float *x,
                    uint64_t x_stride, uint64_t n, float *y, uint64_t y_stride, uint64_t r0,
                    uint64_t r1) {
    const uint64_t n_scales = csn_group128_count(w->cols);
    struct group128 m = {.codes = w->data,
                         .row_bytes = n_scales * 4 * bytes_of_32,
                         .n_scales = n_scales,
                         .cols = w->cols};
    m.scales = w->data + w->rows * m.row_bytes;
    const uint64_t apart = (r1 - r0) / FEW_ROWS;
    for (uint64_t r = r0; r < r0 + apart; r++) {
        for (uint64_t t = 0; t < n; t++) {
            few_rows(codes, bytes_of_32, &m, r, apart, FEW_ROWS, x + t * x_stride,
                     y + t * y_stride);
        }
    }
    for (uint64_t r = r0 + FEW_ROWS * apart; r < r1; r++) {
        for (uint64_t t = 0; t < n; t++) {
            few_rows(codes, bytes_of_32, &m, r, 0, 1, x + t * x_stride, y + t * y_stride);
        }
    }
}

/* ---- many vectors ---- */

/* f16 scales of row r from the group of column c on; c is a multiple of 128, as is PIECE. */
CSN_INLINE const uint8_t *scales128(const csn_matrix *w, uint64_t row_bytes, uint64_t r,
                                    uint64_t c) {
    return w->data + w->rows * row_bytes + 2 * (r * csn_group128_count(w->cols) + c / CSN_GROUP128);
}

/* Rows are padded to whole groups, so eight columns may be decoded where fewer are left. */
CSN_INLINE const void *decode_q8g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t row_bytes = csn_group128_count(w->cols) * CSN_GROUP128;
    const int8_t *q = (const int8_t *)w->data + r * row_bytes + c;
    const uint8_t *scales = scales128(w, row_bytes, r, c);
    for (uint64_t i = 0; i < m; scales += 2) {
        const __m256 s = _mm256_set1_ps(csn_scale16(scales));
        for (uint64_t end = i + CSN_GROUP128; i < m && i < end; i += 8) {
            _mm256_store_ps(buf + i, _mm256_mul_ps(eight_codes(q + i), s));
        }
    }
    return buf;
}

CSN_INLINE const void *decode_q4g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t row_bytes = csn_group128_count(w->cols) * (CSN_GROUP128 / 2);
    const uint8_t *nib = w->data + r * row_bytes + c / 2;
    const uint8_t *scales = scales128(w, row_bytes, r, c);
    for (uint64_t i = 0; i < m; scales += 2) {
        const float s = csn_scale16(scales);
        for (uint64_t end = i + CSN_GROUP128; i < m && i < end; i += 32) {
            decode_nibbles(nib + i / 2, s, buf + i);
        }
    }
    return buf;
}

void csn_matmul_f32_q8g_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                             float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n < FEW) {
        few(codes_q8g, 32, w, x, x_stride, n, y, y_stride, r0, r1);
    } else {
        matmul(decode_q8g, w, x, x_stride, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_f32_q4g_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                             float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n < FEW) {
        few(codes_q4g, 16, w, x, x_stride, n, y, y_stride, r0, r1);
    } else {
        matmul(decode_q4g, w, x, x_stride, n, y, y_stride, r0, r1);
    }
}
