/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1 and q1s (ref/matmul_i8_q1_ref.c says what they mean), AVX2.
 *
 * Few vectors: four columns have sixteen sums of +-x, which are looked up with four signs: of
 * sixteen rows at once, whose bytes are transposed for it, and of two neighbouring groups, one in
 * each half. A sum is 32 * high + low + 16, low from -16 to 15, so that eight of them add up in
 * bytes. */
#include "kernels/x86/deltas_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/outliers_avx2.h"

enum {
    ROWS = DELTA_ROWS, /* at once: sixteen */
    QUADS = 8,         /* of columns of a group */
    PAIR_BYTES = 64,   /* of x, two groups */
    SUMS_BYTES = 64,   /* of the sums of a quad: high, then low; of one group, then the other */
    MOST_COLS = CSN_Q1S_COLS /* few vectors */
};

/* Four signs as factors: bits of `e`, 1 = plus. */
#define SIGN(e, k) (((e) >> (k)&1 ? 0x01U : 0xFFU) << 8 * (k))
#define SIGNS(e) ((int)(SIGN(e, 0) | SIGN(e, 1) | SIGN(e, 2) | SIGN(e, 3)))
#define SIGNS_OF_4(e) _mm_setr_epi32(SIGNS(e), SIGNS((e) + 1), SIGNS((e) + 2), SIGNS((e) + 3))

/* The sums of four columns; x: those of a group, four times, in each half. */
CSN_INLINE void sums_of_quad(__m256i x, uint8_t *out) {
    const __m128i signs[4] = {SIGNS_OF_4(0), SIGNS_OF_4(4), SIGNS_OF_4(8), SIGNS_OF_4(12)};
    __m256i s[4];
    CSN_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256i v = _mm256_sign_epi8(x, _mm256_broadcastsi128_si256(signs[i]));
        v = _mm256_maddubs_epi16(_mm256_set1_epi8(1), v);
        s[i] = _mm256_madd_epi16(v, _mm256_set1_epi16(1));
    }
    __m256i a = _mm256_packs_epi32(s[0], s[1]);
    __m256i b = _mm256_packs_epi32(s[2], s[3]);
    __m256i high = _mm256_packs_epi16(_mm256_srai_epi16(a, 5), _mm256_srai_epi16(b, 5));
    const __m256i mask = _mm256_set1_epi16(31);
    __m256i low = _mm256_packs_epi16(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
    _mm256_store_si256((void *)out, high);
    _mm256_store_si256((void *)(out + 32), _mm256_sub_epi8(low, _mm256_set1_epi8(16)));
}

/* Of all columns of a vector: [pair of groups][quad][SUMS_BYTES]. */
static void make_sums(const int8_t *q, uint64_t n_pairs, uint8_t *out) {
    const __m256i first = _mm256_set1_epi32(0x03020100);
    for (uint64_t i = 0; i < n_pairs; i++, q += PAIR_BYTES) {
        for (int h = 0; h < 32; h += 16) {
            __m256i x = _mm256_set_m128i(csn_load128(q + 32 + h), csn_load128(q + h));
            for (char k = 0; k < 16; k += 4, out += SUMS_BYTES) {
                __m256i order = _mm256_add_epi8(first, _mm256_set1_epi8(k));
                sums_of_quad(_mm256_shuffle_epi8(x, order), out);
            }
        }
    }
}

struct tiles {        /* of sixteen rows, two groups: one in each half */
    __m256i signs[4]; /* byte j of the signs of every row */
    __m256i scale[2]; /* f16 of rows 0 to 7, of the others */
};

/* Two tiles of row k of sixteen. Of the last eight bytes six are wanted; the last row has others
 * before them alone. */
CSN_INLINE __m256i load_tiles(const uint8_t *p, int k) {
    __m128i a = _mm_loadl_epi64((const void *)p);
    __m128i b = k < ROWS - 1 ? _mm_loadl_epi64((const void *)(p + CSN_Q1_TILE))
                             : _mm_srli_epi64(_mm_loadl_epi64((const void *)(p + 4)), 16);
    return _mm256_set_m128i(b, a);
}

CSN_INLINE void transpose_tiles(const uint8_t *p, uint64_t row_bytes, struct tiles *ret) {
    __m256i a[8];
    __m256i b[4][2];
    __m256i c[2][3];
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        a[i] = _mm256_unpacklo_epi8(load_tiles(p + (uint64_t)i * row_bytes, i),
                                    load_tiles(p + (uint64_t)(i + 8) * row_bytes, i + 8));
    }
    CSN_UNROLL
    for (int i = 0; i < 4; i++) { /* bytes 0 to 3, 4 to 7 */
        b[i][0] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
        b[i][1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
    }
    CSN_UNROLL
    for (int i = 0; i < 2; i++) { /* bytes 0 and 1, 2 and 3, 4 and 5 */
        c[i][0] = _mm256_unpacklo_epi8(b[i][0], b[i + 2][0]);
        c[i][1] = _mm256_unpackhi_epi8(b[i][0], b[i + 2][0]);
        c[i][2] = _mm256_unpacklo_epi8(b[i][1], b[i + 2][1]);
    }
    CSN_UNROLL
    for (int i = 0; i < 2; i++) {
        ret->signs[2 * i] = _mm256_unpacklo_epi8(c[0][i + 1], c[1][i + 1]);
        ret->signs[2 * i + 1] = _mm256_unpackhi_epi8(c[0][i + 1], c[1][i + 1]);
    }
    __m256i s0 = _mm256_unpacklo_epi8(c[0][0], c[1][0]);
    __m256i s1 = _mm256_unpackhi_epi8(c[0][0], c[1][0]);
    ret->scale[0] = _mm256_unpacklo_epi8(s0, s1);
    ret->scale[1] = _mm256_unpackhi_epi8(s0, s1);
}

/* s[0]: i16 sums of rows 0 to 7 with both groups, s[1]: of the others. */
CSN_INLINE void sums_of_tiles(const struct tiles *t, const uint8_t *sums, __m256i s[2]) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i high = _mm256_setzero_si256();
    __m256i low = _mm256_setzero_si256();
    CSN_UNROLL
    for (int i = 0; i < QUADS / 2; i++) {
        __m256i a = _mm256_and_si256(t->signs[i], mask);
        __m256i b = _mm256_and_si256(_mm256_srli_epi16(t->signs[i], 4), mask);
        const uint8_t *of = sums + 2 * i * SUMS_BYTES;
        high = _mm256_add_epi8(high, _mm256_add_epi8(_mm256_shuffle_epi8(csn_load256(of), a),
                                                     _mm256_shuffle_epi8(csn_load256(of + 64), b)));
        low = _mm256_add_epi8(low, _mm256_add_epi8(_mm256_shuffle_epi8(csn_load256(of + 32), a),
                                                   _mm256_shuffle_epi8(csn_load256(of + 96), b)));
    }
    const __m256i factors = _mm256_set1_epi16(32 << 8 | 1);
    const __m256i less = _mm256_set1_epi16(16 * QUADS);
    s[0] = _mm256_maddubs_epi16(factors, _mm256_unpacklo_epi8(low, high));
    s[1] = _mm256_maddubs_epi16(factors, _mm256_unpackhi_epi8(low, high));
    s[0] = _mm256_add_epi16(s[0], less);
    s[1] = _mm256_add_epi16(s[1], less);
}

/* Adds two groups to lanes[0] and [1] of eight and eight rows. */
CSN_INLINE void add_tiles(const uint8_t *p, uint64_t row_bytes, const uint8_t *sums,
                          const float *x_scale, __m256 (*lanes)[2]) {
    struct tiles t;
    __m256i s[2];
    transpose_tiles(p, row_bytes, &t);
    sums_of_tiles(&t, sums, s);
    CSN_UNROLL
    for (int o = 0; o < 2; o++) {
        CSN_UNROLL
        for (int h = 0; h < 2; h++) {
            __m128i half =
                h == 0 ? _mm256_castsi256_si128(s[o]) : _mm256_extracti128_si256(s[o], 1);
            __m128i w = h == 0 ? _mm256_castsi256_si128(t.scale[o])
                               : _mm256_extracti128_si256(t.scale[o], 1);
            __m256 scale = _mm256_mul_ps(_mm256_cvtph_ps(w), _mm256_set1_ps(x_scale[h]));
            __m256 f = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(half)));
            lanes[h][o] = _mm256_add_ps(lanes[h][o], f);
        }
    }
}

/* Sixteen rows and one vector. */
static void multiply_rows(const uint8_t *w, uint64_t n_groups, const uint8_t *sums,
                          const float *x_scale, float *y) {
    const uint64_t row_bytes = n_groups * CSN_Q1_TILE;
    __m256 lanes[8][2];
    uint64_t g = 0;
    for (int i = 0; i < 8; i++) {
        lanes[i][0] = lanes[i][1] = _mm256_setzero_ps();
    }
    for (; g + 2 <= n_groups; g += 2) {
        const uint64_t next = ROWS * (row_bytes + g * CSN_Q1_TILE); /* of the rows that follow */
        for (uint64_t b = 0; b < ROWS * 2 * CSN_Q1_TILE; b += 64) {
            csn_prefetch(w, next + b);
        }
        add_tiles(w + g * CSN_Q1_TILE, row_bytes, sums + g / 2 * QUADS * SUMS_BYTES, x_scale + g,
                  lanes + g % 8);
    }
    if (g < n_groups) { /* and a group of zeros */
        uint8_t last[ROWS][2 * CSN_Q1_TILE] = {{0}};
        for (uint64_t i = 0; i < ROWS; i++) {
            memcpy(last[i], w + i * row_bytes + g * CSN_Q1_TILE, CSN_Q1_TILE);
        }
        add_tiles(last[0], sizeof(last[0]), sums + g / 2 * QUADS * SUMS_BYTES, x_scale + g,
                  lanes + g % 8);
    }
    for (int o = 0; o < 2; o++) {
        __m256 v[8];
        for (int i = 0; i < 8; i++) {
            v[i] = lanes[i][o];
        }
        _mm256_storeu_ps(y + 8 * o, csn_tree_of_lanes(v));
    }
}

/* deltas: NULL where none are to be added. The last rows, when they are no whole sixteen, are
 * computed first, with others that come again. */
CSN_OUTLINE void few_q1(const csn_q1s_deltas *deltas, const csn_matrix *w, const csn_x8 *x,
                        uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(32) uint8_t sums[MOST_COLS * SUMS_BYTES / 8];
    float floats[MOST_COLS];
    const uint64_t row_bytes = x->n_groups * CSN_Q1_TILE;
    const uint64_t whole = r1 - (r1 - r0) % ROWS;
    for (uint64_t t = 0; t < n; t++, y += y_stride) {
        const float *x_scale = x->scale + t * x->g_stride;
        make_sums(x->q + t * x->q_stride, (x->n_groups + 1) / 2, sums);
        if (deltas != NULL) {
            x_floats(x, t, n, 1, 0, w->cols, floats);
        }
        if (whole < r1) {
            multiply_rows(w->data + (r1 - ROWS) * row_bytes, x->n_groups, sums, x_scale,
                          y + r1 - ROWS);
        }
        for (uint64_t r = r0; r < r1; r += ROWS) {
            if (r < whole) {
                multiply_rows(w->data + r * row_bytes, x->n_groups, sums, x_scale, y + r);
            }
            if (deltas != NULL) {
                add_deltas(deltas, floats, r, r < whole ? r + ROWS : r1, y);
            }
        }
    }
}

/* ---- many vectors ---- */

/* Codes 8 + weight of one tile in the order of the columns. */
CSN_INLINE __m256i q1_codes(const uint8_t *tile) {
    const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i signs = _mm256_shuffle_epi8(_mm256_set1_epi32(csn_load32(tile + 2)), order);
    __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);
    return _mm256_add_epi8(_mm256_set1_epi8(7), _mm256_and_si256(mask, _mm256_set1_epi8(2)));
}

static void pack_q1(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    gemm_pack_tiles(q1_codes, ctx, CSN_Q1_TILE, r, r1, g0, ng, p);
}

CSN_OUTLINE void many_q1(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    gemm_i8(pack_q1, w, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void add_q1s(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_outliers(false, w, x, n, y, y_stride, r0, r1);
}

CSN_INLINE bool few_fits_q1(const csn_x8 *x, uint64_t n, uint64_t n_rows) {
    return n <= CSN_FEW_VECTORS && x->cols <= MOST_COLS && n_rows >= ROWS;
}

void csn_matmul_i8_q1_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (few_fits_q1(x, n, r1 - r0)) {
        few_q1(NULL, w, x, n, y, y_stride, r0, r1);
    } else {
        many_q1(w, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q1s_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const bool is_few = few_fits_q1(x, n, r1 - r0);
    if (is_few && w->unpacked != NULL) {
        const csn_q1s_deltas deltas = csn_q1s_unpacked(w);
        few_q1(&deltas, w, x, n, y, y_stride, r0, r1);
        return;
    }
    if (is_few) {
        few_q1(NULL, w, x, n, y, y_stride, r0, r1);
    } else {
        many_q1(w, x, n, y, y_stride, r0, r1);
    }
    add_q1s(w, x, n, y, y_stride, r0, r1);
}
