/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1t (ref/matmul_i8_q1_ref.c says what it means), AVX2.
 *
 * Few vectors: digit k of the seven bytes of a group meets columns k, k + 5 ... of x, so x is laid
 * out by digits first. */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/outliers_avx2.h"
#include "kernels/x86/q1t_avx2.h"

enum {
    DIGITS = 5,
    STEP_X = 96,           /* bytes of x of two groups, by digits */
    MOST_BYTES = 128 << 10 /* of x by digits, few vectors */
};

/* Bytes of a vector of x in the same order. */
CSN_INLINE uint64_t x_bytes(uint64_t gpr) {
    return (gpr + 1) / 2 * STEP_X;
}

static void x_by_digits(const csn_x8 *x, uint64_t n, uint64_t stride, int8_t *out) {
    memset(out, 0, n * stride);
    for (uint64_t t = 0; t < n; t++) {
        for (uint64_t g = 0; g < x->n_groups; g++) {
            const int8_t *q = x->q + t * x->q_stride + 32 * g;
            int8_t *to = out + t * stride + g / 2 * STEP_X + g % 2 * 16;
            for (int j = 0; j < 6; j++) {
                to[2 * j] = q[DIGITS * j];
                to[2 * j + 1] = q[DIGITS * j + 2];
                to[2 * j + 32] = q[DIGITS * j + 1];
                to[2 * j + 33] = q[DIGITS * j + 3];
                to[2 * j + 64] = q[DIGITS * j + 4];
            }
            to[12] = q[30];
            to[12 + 32] = q[31];
        }
    }
}

/* The bytes of two tiles as words, the scale as the eighth. */
CSN_INLINE __m256i load_tiles(const uint8_t *p) {
    const __m256i order =
        _mm256_setr_epi8(2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, 0, 1, /* from p on */
                         9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15, -1, 7, 8 /* p + 2 */);
    __m256i two =
        _mm256_inserti128_si256(_mm256_castsi128_si256(csn_load128(p)), csn_load128(p + 2), 1);
    return _mm256_shuffle_epi8(two, order);
}

/* The eighth words of four rows in the order of few_i8_avx2.h. */
CSN_INLINE __m256 scales_of(const __m256i tiles[FEW_ROWS]) {
    __m256i a = _mm256_unpackhi_epi16(tiles[0], tiles[1]);
    __m256i b = _mm256_unpackhi_epi16(tiles[2], tiles[3]);
    __m256i both = _mm256_permute4x64_epi64(_mm256_unpackhi_epi32(a, b), 0x0D);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(both));
}

/* x->split: by digits, x->q_stride of that. */
CSN_INLINE void q1t_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x, uint64_t t,
                         int nc, uint64_t j, __m256 *f) {
    __m256i tiles[FEW_ROWS];
    __m256i v[FEW_BATCH][FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        __m256i d[3];
        tiles[k] = load_tiles(rows->w[k] + at.w);
        q1t_digits(tiles[k], d);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x->split + (t + (uint64_t)c) * x->q_stride + STEP_X * j;
            __m256i ab = _mm256_add_epi16(_mm256_maddubs_epi16(d[0], csn_load256(q)),
                                          _mm256_maddubs_epi16(d[1], csn_load256(q + 32)));
            v[c][k] = _mm256_add_epi16(ab, _mm256_maddubs_epi16(d[2], csn_load256(q + 64)));
        }
    }
    __m256 ws = scales_of(tiles);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const csn_x8_pair *p = few_pair(x, t + (uint64_t)c, j);
        f[c] = few_scale(ws, p, _mm256_add_epi32(csn_sums_of_halves(v[c]), few_minus_sums(p)));
    }
}

static void q1t_edge(const void *ctx, const struct few_rows *rows, struct few_at at, uint8_t *copy,
                     struct few_rows *ret) {
    (void)ctx;
    for (int k = 0; k < FEW_ROWS; k++) {
        ret->w[k] = memcpy(copy + k * FEW_EDGE, rows->w[k] + at.w, CSN_Q1T_TILE);
    }
}

/* ---- many vectors ---- */

CSN_INLINE __m256i q1t_codes(const uint8_t *tile) {
    return _mm256_add_epi8(q1t_weights(tile), _mm256_set1_epi8(7));
}

static void pack_q1t(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                     struct gemm_panel *p) {
    gemm_pack_tiles(q1t_codes, ctx, CSN_Q1T_TILE, r, r1, g0, ng, p);
}

CSN_OUTLINE void few_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(32) int8_t room[MOST_BYTES];
    const uint64_t gpr = x->n_groups;
    const struct few_kind kind = {.step = q1t_step,
                                  .edge = q1t_edge,
                                  .step_bytes = {.w = 2 * CSN_Q1T_TILE},
                                  .row_bytes = {.w = gpr * CSN_Q1T_TILE},
                                  .n_steps = gpr / 2,
                                  .has_edge = gpr % 2 != 0};
    csn_x8 by_digits = *x;
    by_digits.split = room;
    by_digits.q_stride = x_bytes(gpr);
    x_by_digits(x, n, by_digits.q_stride, room);
    few_i8(&kind, w, &(struct few_rows){{w->data}, {w->data}}, &by_digits, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void many_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                          uint64_t y_stride, uint64_t r0, uint64_t r1) {
    gemm_i8(pack_q1t, w, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void add_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_outliers(true, w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q1t_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (!few_fits(x, n) || n * x_bytes(x->n_groups) > MOST_BYTES) {
        many_q1t(w, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 >= FEW_ROWS) {
        few_q1t(w, x, n, y, y_stride, r0, r1);
    } else {
        csn_matmul_i8_q1t_ref(w, x, n, y, y_stride, r0, r1);
        return;
    }
    if (csn_q1t_has_outliers(w, r0, r1)) {
        add_q1t(w, x, n, y, y_stride, r0, r1);
    }
}
