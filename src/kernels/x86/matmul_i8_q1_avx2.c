/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1 and q1s (ref/matmul_i8_q1_ref.c says what they mean), AVX2.
 *
 * Few vectors: masks of the signs let through the codes of x whose weight is +1; twice their sum
 * less the sum of all, which csn_x8.offset has as -8 * sum, is the product. */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/outliers_avx2.h"

enum { EDGE_AT = 16 }; /* of the tile in the copy of an edge: reads begin before it */

/* Two tiles of row k of four, in both halves. Of the 16 bytes of a load 12 are wanted; three rows
 * have another behind them, the last has three before it. */
CSN_INLINE __m256i load_tiles(const uint8_t *p, int k) {
    __m128i v = k < FEW_ROWS - 1 ? csn_load128(p) : _mm_bsrli_si128(csn_load128(p - 4), 4);
    return _mm256_broadcastsi128_si256(v);
}

/* Bytes of signs, each as often as columns of one parity belong to it; first tile | second. */
CSN_INLINE __m256i spread_signs(__m256i tiles) {
    const __m256i order = _mm256_setr_epi8(2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 8, 8, 8,
                                           8, 9, 9, 9, 9, 10, 10, 10, 10, 11, 11, 11, 11);
    return _mm256_shuffle_epi8(tiles, order);
}

/* The codes of x whose bit is set, two neighbours added. */
CSN_INLINE __m256i masked_sums(__m256i signs, __m256i bits, __m256i x) {
    __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);
    return _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_and_si256(mask, x));
}

/* The f16 scales of four rows in the order of few_i8_avx2.h: words 0 and 3 of their two tiles. */
CSN_INLINE __m256 scales_of(const __m256i tiles[FEW_ROWS]) {
    __m128i t[FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        t[k] = _mm256_castsi256_si128(tiles[k]);
    }
    __m128i a = _mm_unpacklo_epi16(t[0], t[1]);
    __m128i b = _mm_unpacklo_epi16(t[2], t[3]);
    return _mm256_cvtph_ps(
        _mm_blend_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b), 0xC));
}

CSN_INLINE void q1_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x, uint64_t t,
                        int nc, uint64_t j, __m256 *f) {
    const __m256i even = _mm256_set1_epi32(0x40100401);
    const __m256i odd = _mm256_slli_epi32(even, 1);
    __m256i tiles[FEW_ROWS];
    __m256i v[FEW_BATCH][FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        tiles[k] = load_tiles(rows->w[k] + at.w, k);
        __m256i signs = spread_signs(tiles[k]);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x->split + (t + (uint64_t)c) * x->q_stride + 64 * j;
            v[c][k] = _mm256_add_epi16(masked_sums(signs, even, csn_load256(q)),
                                       masked_sums(signs, odd, csn_load256(q + 32)));
        }
    }
    __m256 ws = scales_of(tiles);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const csn_x8_pair *p = few_pair(x, t + (uint64_t)c, j);
        __m256i twice = _mm256_slli_epi32(csn_sums_of_halves(v[c]), 1);
        f[c] = few_scale(ws, p, _mm256_add_epi32(twice, few_minus_sums(p)));
    }
}

static void q1_edge(const void *ctx, const struct few_rows *rows, struct few_at at, uint8_t *copy,
                    struct few_rows *ret) {
    (void)ctx;
    for (int k = 0; k < FEW_ROWS; k++) {
        ret->w[k] = memcpy(copy + k * FEW_EDGE + EDGE_AT, rows->w[k] + at.w, CSN_Q1_TILE);
    }
}

/* ---- many vectors ---- */

/* Codes 8 + weight of one tile in the order of the columns. */
CSN_INLINE __m256i codes_of(const uint8_t *tile) {
    const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i signs = _mm256_shuffle_epi8(_mm256_set1_epi32(csn_load32(tile + 2)), order);
    __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);
    return _mm256_add_epi8(_mm256_set1_epi8(7), _mm256_and_si256(mask, _mm256_set1_epi8(2)));
}

static void pack_q1(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const csn_matrix *w = ctx;
    for (uint64_t o = 0; o < 2; o++) {
        const uint8_t *row[8];
        for (uint64_t i = 0; i < 8; i++) {
            uint64_t a = r + o * 8 + i < r1 ? r + o * 8 + i : r1 - 1;
            row[i] = w->data + (a * (w->cols / 32) + g0) * CSN_Q1_TILE;
        }
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (int i = 0; i < 8; i++) {
                v[i] = codes_of(row[i] + g * CSN_Q1_TILE);
                p->scale[g][o][i] = csn_scale16(row[i] + g * CSN_Q1_TILE);
            }
            gemm_store_codes(v, p->plane[g], o);
        }
    }
}

void csn_matmul_i8_q1_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct few_kind kind = {.step = q1_step,
                                  .edge = q1_edge,
                                  .step_bytes = {.w = 2 * CSN_Q1_TILE},
                                  .row_bytes = {.w = x->n_groups * CSN_Q1_TILE},
                                  .n_steps = x->n_groups / 2,
                                  .has_edge = x->n_groups % 2 != 0};
    if (!few_fits(x, n)) {
        gemm_i8(pack_q1, w, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q1_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, w, &(struct few_rows){{w->data}, {w->data}}, x, n, y, y_stride, r0, r1);
    }
}

CSN_OUTLINE void add_q1s(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_outliers(false, w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q1s_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q1_avx2(w, x, n, y, y_stride, r0, r1);
    add_q1s(w, x, n, y, y_stride, r0, r1);
}
