/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, q4g (quant/group128.h), few vectors, AVX-512: the 32 lanes of kernels.h are two
 * registers. The product of a code and its scale is exact, so a register holds the 16 products of a
 * group, and vpermps looks 16 weights up: it takes the low four bits of each lane and needs no
 * mask. q8g reads at the memory's rate with AVX2. tests/kernels/test_f32_q4g_avx512.c runs this
 * file on any CPU. */
#include "kernels/x86/i8_avx2.h"
#include "quant/group128.h"

enum {
    FEW = 4,                  /* vectors; from here on decoding a piece once is faster */
    ROWS = 4,                 /* that meet a piece of x at once, a quarter of the call's apart */
    SCALES = 16,              /* of a row, converted at once */
    MOST = 8192,              /* columns */
    GROUP = CSN_GROUP128 / 2, /* bytes */
};

/* 16 columns come as one load into all pairs of lanes, which are shifted by their places: lane 2 j
 * is column j, lane 2 j + 1 is column 8 + j. */
CSN_INLINE __m512i columns(void) {
    return _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
}

CSN_INLINE __m512 weights(const uint8_t *p, __m512 products) {
    const __m512i place =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    int64_t codes;
    memcpy(&codes, p, sizeof(codes));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(codes), place), products);
}

CSN_INLINE __mmask16 first_of_16(uint64_t n) {
    return n >= 16 ? 0xFFFF : (__mmask16)((1u << n) - 1);
}

/* Vector x in the order of columns(), with zeros up to a multiple of 32. */
static void order_x(const float *x, uint64_t n, float *out) {
    for (uint64_t c = 0; c < (n + 31) / 32 * 32; c += 16) {
        const __mmask16 inside = first_of_16(c < n ? n - c : 0);
        const __m512 v = _mm512_maskz_loadu_ps(inside, x + c);
        _mm512_store_ps(out + c, _mm512_permutexvar_ps(columns(), v));
    }
}

/* The halving tree over lanes of columns c and 16 + c. */
CSN_INLINE float tree(__m512 a, __m512 b) {
    const __m512i lane = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m512 s = _mm512_permutexvar_ps(lane, _mm512_add_ps(a, b));
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(s), 1));
    return csn_tree_avx2(_mm256_add_ps(_mm512_castps512_ps256(s), high));
}

/* Converts the scales of the next SCALES groups of a row, or of the n that it has. */
CSN_INLINE void read_scales(const uint8_t *p, uint64_t n, float *out) {
    _mm512_store_ps(out, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_of_16(n), p)));
}

struct rows { /* that meet one vector */
    const uint8_t *codes[ROWS], *scales[ROWS];
    __m512 acc[ROWS][2]; /* columns c and 16 + c, modulo 32 */
};

/* Adds half h of 32 columns; lanes that are not `inside` stay as they are (adding 0 * 0 would turn
 * a -0 into +0). */
CSN_INLINE void add_half(struct rows *rows, int nr, uint64_t at, const __m512 *products,
                         const float *x, int h, __mmask16 inside) {
    const __m512 v = _mm512_load_ps(x + 16 * h);
    CSN_UNROLL
    for (int i = 0; i < nr; i++) {
        const __m512 w = weights(rows->codes[i] + at + 8 * h, products[i]);
        const __m512 sum = _mm512_fmadd_ps(w, v, rows->acc[i][h]);
        rows->acc[i][h] = _mm512_mask_mov_ps(rows->acc[i][h], inside, sum);
    }
}

/* Adds one group, whose codes begin at `at`. */
CSN_INLINE void add_group(struct rows *rows, int nr, uint64_t at, const __m512 *products,
                          const float *x) {
    CSN_UNROLL
    for (uint64_t c = 0; c < CSN_GROUP128; c += 32) {
        add_half(rows, nr, at + c / 2, products, x + c, 0, 0xFFFF);
        add_half(rows, nr, at + c / 2, products, x + c, 1, 0xFFFF);
    }
}

/* Adds the n columns of a group that is not whole. */
CSN_INLINE void add_columns(struct rows *rows, int nr, uint64_t at, const __m512 *products,
                            const float *x, uint64_t n) {
    uint64_t c = 0;
    for (; c + 32 <= n; c += 32, at += 16) {
        add_half(rows, nr, at, products, x + c, 0, 0xFFFF);
        add_half(rows, nr, at, products, x + c, 1, 0xFFFF);
    }
    if (c < n) {
        const __m512i left = _mm512_set1_epi32((int)(n - c));
        const __m512i other = _mm512_add_epi32(columns(), _mm512_set1_epi32(16));
        add_half(rows, nr, at, products, x + c, 0, _mm512_cmpgt_epi32_mask(left, columns()));
        add_half(rows, nr, at, products, x + c, 1, _mm512_cmpgt_epi32_mask(left, other));
    }
}

/* Rows r, r + apart, ..., nr of them, times one vector. */
CSN_INLINE void few_rows(const csn_matrix *w, uint64_t r, uint64_t apart, int nr, const float *x,
                         float *y) {
    const __m512 code = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const uint64_t n_groups = csn_group128_count(w->cols);
    _Alignas(64) float scale[ROWS][SCALES];
    struct rows rows;
    CSN_UNROLL
    for (int i = 0; i < nr; i++) {
        const uint64_t row = r + (uint64_t)i * apart;
        rows.codes[i] = w->data + row * n_groups * GROUP;
        rows.scales[i] = w->data + w->rows * n_groups * GROUP + 2 * row * n_groups;
        rows.acc[i][0] = _mm512_setzero_ps();
        rows.acc[i][1] = _mm512_setzero_ps();
    }
    for (uint64_t g = 0; g < n_groups; g++) {
        __m512 products[ROWS];
        CSN_UNROLL
        for (int i = 0; i < nr; i++) {
            if (g % SCALES == 0) {
                read_scales(rows.scales[i] + 2 * g, n_groups - g, scale[i]);
            }
            products[i] = _mm512_mul_ps(code, _mm512_set1_ps(scale[i][g % SCALES]));
        }
        const uint64_t c = g * CSN_GROUP128;
        if (w->cols - c >= CSN_GROUP128) {
            add_group(&rows, nr, g * GROUP, products, x + c);
        } else {
            add_columns(&rows, nr, g * GROUP, products, x + c, w->cols - c);
        }
    }
    CSN_UNROLL
    for (int i = 0; i < nr; i++) {
        y[r + (uint64_t)i * apart] = tree(rows.acc[i][0], rows.acc[i][1]);
    }
}

void csn_matmul_f32_q4g_avx512(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                               float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n >= FEW || w->cols > MOST) {
        csn_matmul_f32_q4g_avx2(w, x, x_stride, n, y, y_stride, r0, r1);
        return;
    }
    _Alignas(64) float ordered[FEW - 1][MOST];
    for (uint64_t t = 0; t < n; t++) {
        order_x(x + t * x_stride, w->cols, ordered[t]);
    }
    const uint64_t apart = (r1 - r0) / ROWS;
    for (uint64_t r = r0; r < r0 + apart; r++) {
        for (uint64_t t = 0; t < n; t++) {
            few_rows(w, r, apart, ROWS, ordered[t], y + t * y_stride);
        }
    }
    for (uint64_t r = r0 + ROWS * apart; r < r1; r++) {
        for (uint64_t t = 0; t < n; t++) {
            few_rows(w, r, 0, 1, ordered[t], y + t * y_stride);
        }
    }
}
