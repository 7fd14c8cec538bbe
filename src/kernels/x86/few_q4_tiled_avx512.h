/* SPDX-License-Identifier: Apache-2.0 */
/* q4_tiled with one to three vectors, AVX-512 with VNNI.
 *
 * As few_i8_avx2.h: four rows at a time, one of each quarter of the call's rows, read once from
 * memory. A step is four groups (g a multiple of 4) of four rows, sixteen sums in one vector: the
 * four rows of group g + l in its quarter l. Step j adds to accumulator j mod 2, which so holds
 * lanes 4 (j mod 2) to 4 (j mod 2) + 3 of kernels.h.
 *
 * The sums of a step are added up and scaled behind the products of the next: nothing waits for the
 * other then, and 32 registers hold both. On a Zen 4 a step takes 28 cycles from the first cache,
 * the two of few_i8_avx2.h 36; its 46 operations alone would take 23.
 */
#ifndef CSN_KERNELS_X86_FEW_Q4_TILED_AVX512_H
#define CSN_KERNELS_X86_FEW_Q4_TILED_AVX512_H

#include "kernels/x86/i8_avx2.h"

enum {
    FEW_ROWS = 4,
    FEW_BATCH = 2,  /* vectors that share one reading of the rows */
    FEW_GROUPS = 4, /* of a step */
    TILE_BYTES = 18 /* a group: its scale, f16, then 16 bytes of nibbles */
};

struct few_tiles {
    const csn_x8 *x;
    uint64_t t; /* the first of nc vectors */
    const uint8_t *w[FEW_ROWS];
    uint64_t n_steps; /* of a row, the last with n_last groups */
    unsigned n_last;
};

struct few_sums { /* of a step: the four dwords of a quarter are those of a group */
    __m512i v[FEW_BATCH][FEW_ROWS];
    __m512 scale; /* of the weights */
};

/* low, and in place of its upper half that of the 64 bytes at p. */
CSN_INLINE __m512i few_upper_of(__m256i low, const void *p) {
    return _mm512_mask_loadu_epi64(_mm512_castsi256_si512(low), 0xF0, p);
}

/* The products of step j, which has n groups. */
CSN_INLINE void few_multiply(const struct few_tiles *m, int nc, uint64_t j, unsigned n,
                             struct few_sums *ret) {
    const __m512i low_nibble = _mm512_set1_epi8(15);
    /* words of the nibbles in the first 64 bytes of four groups, then in the 16 that end them */
    const __m512i nibbles =
        _mm512_set_epi16(39, 38, 37, 36, 35, 34, 33, 32, 26, 25, 24, 23, 22, 21, 20, 19, 17, 16, 15,
                         14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1);
    /* words of the scales of two rows, rows innermost, each pair twice */
    const __m512i scales = _mm512_castsi256_si512(
        _mm256_set_epi16(59, 27, 59, 27, 50, 18, 50, 18, 41, 9, 41, 9, 32, 0, 32, 0));
    __m512i even[FEW_BATCH]; /* columns of four groups */
    __m512i odd[FEW_BATCH];
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const int8_t *q = m->x->split + (m->t + (uint64_t)c) * m->x->q_stride + 128 * j;
        __m512i a = _mm512_loadu_si512(q);
        __m512i b = _mm512_loadu_si512(q + 64);
        even[c] = _mm512_shuffle_i64x2(a, b, 0x44);
        odd[c] = _mm512_shuffle_i64x2(a, b, 0xEE);
    }
    __m512i first[FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        const uint8_t *w = m->w[k] + j * FEW_GROUPS * TILE_BYTES;
        __m128i last = _mm_setzero_si128();
        if (n == FEW_GROUPS) {
            first[k] = _mm512_loadu_si512(w);
            last = csn_load128(w + 56);
        } else {
            first[k] = _mm512_maskz_loadu_epi8((UINT64_C(1) << TILE_BYTES * n) - 1, w);
        }
        __m512i v = _mm512_permutex2var_epi16(first[k], nibbles, _mm512_castsi128_si512(last));
        __m512i low = _mm512_and_si512(v, low_nibble);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_nibble);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, even[c]);
            ret->v[c][k] = _mm512_dpbusd_epi32(s, high, odd[c]);
        }
    }
    __m256i a = _mm512_castsi512_si256(_mm512_permutex2var_epi16(first[0], scales, first[1]));
    __m256i b = _mm512_castsi512_si256(_mm512_permutex2var_epi16(first[2], scales, first[3]));
    ret->scale = _mm512_cvtph_ps(_mm256_blend_epi32(a, b, 0xAA));
}

/* The scaled sums of step j with vector t + c. Eight products of a 4-bit code fit 16 bits, and two
 * of their sums do too. */
CSN_INLINE __m512 few_scaled(const struct few_tiles *m, const struct few_sums *s, int c,
                             uint64_t j) {
    const __m512i ones = _mm512_set1_epi16(1);
    const csn_x8_pair *p = m->x->pair + (m->t + (uint64_t)c) * (m->x->g_stride / 2) + 2 * j;
    __m512i minus = few_upper_of(csn_load256(p[0].minus), p + 1);
    __m512i x = few_upper_of(csn_load256(p[0].scale), p[0].minus);
    __m512i a = _mm512_madd_epi16(_mm512_packs_epi32(s->v[c][0], s->v[c][1]), ones);
    __m512i b = _mm512_madd_epi16(_mm512_packs_epi32(s->v[c][2], s->v[c][3]), ones);
    __m512i sums = _mm512_dpwssd_epi32(minus, _mm512_packs_epi32(a, b), ones);
    return _mm512_mul_ps(_mm512_mul_ps(s->scale, _mm512_castsi512_ps(x)), _mm512_cvtepi32_ps(sums));
}

/* Four rows, number r[0..3], and nc vectors. */
CSN_INLINE void few_quad(const struct few_tiles *m, int nc, const uint64_t r[FEW_ROWS], float *y,
                         uint64_t y_stride) {
    const uint64_t last = m->n_steps - 1;
    struct few_sums sums;
    __m512 acc[FEW_BATCH]; /* of step j, and of steps before and after */
    __m512 other[FEW_BATCH];
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        acc[c] = _mm512_setzero_ps();
        other[c] = _mm512_setzero_ps();
    }
    few_multiply(m, nc, 0, last == 0 ? m->n_last : FEW_GROUPS, &sums);
    for (uint64_t j = 0; j < m->n_steps; j++) {
        struct few_sums next = sums;
        if (j + 1 < last) {
            few_multiply(m, nc, j + 1, FEW_GROUPS, &next);
        } else if (j + 1 == last) {
            few_multiply(m, nc, j + 1, m->n_last, &next);
        }
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m512 sum = _mm512_add_ps(acc[c], few_scaled(m, &sums, c, j));
            acc[c] = other[c];
            other[c] = sum;
        }
        sums = next;
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m512 s = _mm512_add_ps(acc[c], other[c]);
        __m256 h = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
        float sum[FEW_ROWS];
        _mm_storeu_ps(sum, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
        CSN_UNROLL
        for (int k = 0; k < FEW_ROWS; k++) {
            y[(m->t + (uint64_t)c) * y_stride + r[k]] = sum[k];
        }
    }
}

/* y for rows [r0, r1), at least four, of w and n vectors. */
CSN_INLINE void few_q4_tiled(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t row_bytes = TILE_BYTES * x->n_groups;
    const uint64_t apart = (r1 - r0) / FEW_ROWS;
    const bool has_rest = apart * FEW_ROWS != r1 - r0; /* the last four, some of them again */
    struct few_tiles m = {.x = x,
                          .n_steps = (x->n_groups + FEW_GROUPS - 1) / FEW_GROUPS,
                          .n_last = (unsigned)((x->n_groups - 1) % FEW_GROUPS + 1)};
    for (uint64_t i = 0; i < apart + (has_rest ? 1 : 0); i++) {
        uint64_t r[FEW_ROWS];
        for (uint64_t k = 0; k < FEW_ROWS; k++) {
            r[k] = i == apart ? r1 - FEW_ROWS + k : r0 + i + k * apart;
            m.w[k] = w->data + r[k] * row_bytes;
        }
        for (m.t = 0; m.t + 2 <= n; m.t += 2) {
            few_quad(&m, 2, r, y, y_stride);
        }
        if (m.t < n) {
            few_quad(&m, 1, r, y, y_stride);
        }
    }
}

#endif
