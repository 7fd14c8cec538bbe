/* SPDX-License-Identifier: Apache-2.0 */
/* int8 product with one to three vectors for AVX2, included by a kernel file that says how two
 * groups of four rows meet them.
 *
 * A step is two neighbouring groups (g even) of four rows: eight sums in one vector, group g of the
 * four rows in its low half, group g + 1 in its high half. Step j adds to accumulator j mod 4,
 * which so holds lanes 2(j mod 4) and 2(j mod 4) + 1 of kernels.h for each row, and the halving
 * tree is three additions of vectors and one of halves.
 *
 * Rows are read from memory, once, and the four rows lie far apart: four streams read a third
 * faster than one (docs/decisions/003-streams-of-rows.md). They must be even: each load of
 * the loop goes through its stream in equal strides, else the hardware does not look ahead. It does
 * so better than a prefetch by software, but for int8 rows (few_kind.lead). Streams shorter than
 * some 20 KB lose the gain.
 */
#ifndef CSN_KERNELS_X86_FEW_I8_AVX2_H
#define CSN_KERNELS_X86_FEW_I8_AVX2_H

#include "kernels/x86/i8_avx2.h"

enum {
    FEW_ROWS = 4,
    FEW_LEAD = 4,  /* rows of a list that are asked for ahead */
    FEW_BATCH = 2, /* vectors that share one reading of the rows */
    FEW_EDGE = 96  /* bytes for the copy of a row's last step */
};

/* From four vectors on packing (gemm_i8_avx2.h) is faster. */
CSN_INLINE bool few_fits(const csn_x8 *x, uint64_t n) {
    return n <= CSN_FEW_VECTORS && x->pair != NULL;
}

struct few_rows { /* the first row of each stream; all are read at the same distance from these */
    const uint8_t *w[FEW_ROWS];
    const uint8_t *scale[FEW_ROWS]; /* of their groups */
};

struct few_at { /* bytes from few_rows on */
    uint64_t w, scale;
};

struct few_kind {
    /* f[c] = the scaled sums of step j, which is at `at`, with vector t + c, c < nc. */
    void (*step)(const struct few_rows *rows, struct few_at at, const csn_x8 *x, uint64_t t, int nc,
                 uint64_t j, __m256 *f);
    /* Copies the last step, which is not whole, with zeros behind it; *ret: where to. */
    void (*edge)(const void *ctx, const struct few_rows *rows, struct few_at at, uint8_t *copy,
                 struct few_rows *ret);
    /* Or NULL: unpacks the scales of quad i, rows r[0..3], to where first->scale of few_i8 points
     * for each of the four; returns how far behind. Unless r are the last rows, quad i + k is
     * r[0..3] + k. */
    uint64_t (*unpack)(const void *ctx, const uint64_t r[FEW_ROWS], uint64_t i);
    struct few_at step_bytes, row_bytes;
    uint64_t lead;    /* rows are asked for so many bytes ahead; 0: the hardware does as well */
    uint64_t n_steps; /* whole ones of a row */
    bool has_edge;
    const uint8_t *row_scale; /* f16 of every row, or NULL */
    bool adds_exact;          /* what take_exact took out; rows of int8 with row_scale only */
};

/* Two groups of int8 rows with the 64 codes at q: sums of the four rows with the first 32, then
 * with the others. */
CSN_INLINE __m256i few_sums_int8(const struct few_rows *rows, struct few_at at, const int8_t *q) {
    __m256i x0 = csn_load256(q);
    __m256i x1 = csn_load256(q + 32);
    __m256i v[8];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        v[k] = csn_dot_i8(csn_load256(rows->w[k] + at.w), x0);
        v[k + 4] = csn_dot_i8(csn_load256(rows->w[k] + at.w + 32), x1);
    }
    return csn_sums8(v);
}

/* What step j needs of vector t beside its codes. */
CSN_INLINE const csn_x8_pair *few_pair(const csn_x8 *x, uint64_t t, uint64_t j) {
    return x->pair + t * (x->g_stride / 2) + j;
}

/* The scaled sums of a step. */
CSN_INLINE __m256 few_scale(__m256 w_scale, const csn_x8_pair *x, __m256i sums) {
    return _mm256_mul_ps(_mm256_mul_ps(w_scale, _mm256_loadu_ps(x->scale)),
                         _mm256_cvtepi32_ps(sums));
}

/* Scales of the groups of 128 of four rows, in the order of a step. A step is half such a group and
 * moves at.scale by one byte of two. */
CSN_INLINE __m256 few_scales128(const struct few_rows *rows, struct few_at at) {
    const uint64_t i = at.scale & ~UINT64_C(1);
    __m128i h = _mm_cvtsi32_si128(csn_load16(rows->scale[0] + i));
    h = _mm_insert_epi16(h, csn_load16(rows->scale[1] + i), 1);
    h = _mm_insert_epi16(h, csn_load16(rows->scale[2] + i), 2);
    h = _mm_insert_epi16(h, csn_load16(rows->scale[3] + i), 3);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(h, h));
}

/* Adds what was taken out of vector t to four sums, while the rows at `at`, of int8 codes, are
 * still in the first cache. */
CSN_INLINE __m128 few_exact(const struct few_rows *rows, uint64_t at, __m128 scale, const csn_x8 *x,
                            uint64_t t, __m128 sum) {
    CSN_UNROLL
    for (uint64_t i = t * CSN_X8_EXACT; i < (t + 1) * CSN_X8_EXACT; i++) {
        uint64_t c = at + x->exact_i[i];
        uint32_t codes = rows->w[0][c] | (uint32_t)rows->w[1][c] << 8 |
                         (uint32_t)rows->w[2][c] << 16 | (uint32_t)rows->w[3][c] << 24;
        __m128 w = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128((int32_t)codes)));
        w = _mm_mul_ps(w, scale);
        sum = _mm_add_ps(sum, _mm_mul_ps(w, _mm_set1_ps(x->exact_x[i])));
    }
    return sum;
}

/* Minus the sums of the codes of x, for each of four rows. */
CSN_INLINE __m256i few_minus_sums(const csn_x8_pair *x) {
    return _mm256_srai_epi32(csn_load256(x->minus), 3);
}

/* Asks for what a later step reads of four rows, which is read once: not by way of the second
 * cache. */
CSN_INLINE void few_look_ahead(const struct few_kind *kind, const struct few_rows *rows,
                               uint64_t at) {
    if (kind->lead == 0) {
        return;
    }
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        _mm_prefetch((const char *)((uintptr_t)rows->w[k] + at + kind->lead), _MM_HINT_NTA);
    }
}

/* Adds step j to accumulator number k and moves on. */
CSN_INLINE void few_add(const struct few_kind *kind, const struct few_rows *rows, struct few_at *at,
                        const csn_x8 *x, uint64_t t, int nc, uint64_t j, int k,
                        __m256 acc[4][FEW_BATCH]) {
    __m256 f[FEW_BATCH];
    few_look_ahead(kind, rows, at->w);
    kind->step(rows, *at, x, t, nc, j, f);
    at->w += kind->step_bytes.w;
    at->scale += kind->step_bytes.scale;
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        acc[k][c] = _mm256_add_ps(acc[k][c], f[c]);
    }
}

/* The same for any j: accumulators stay in registers, so each has its own addition. */
CSN_INLINE void few_add_any(const struct few_kind *kind, const struct few_rows *rows,
                            struct few_at *at, const csn_x8 *x, uint64_t t, int nc, uint64_t j,
                            __m256 acc[4][FEW_BATCH]) {
    __m256 f[FEW_BATCH];
    few_look_ahead(kind, rows, at->w);
    kind->step(rows, *at, x, t, nc, j, f);
    at->w += kind->step_bytes.w;
    at->scale += kind->step_bytes.scale;
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        if (j % 4 == (uint64_t)k) {
            CSN_UNROLL
            for (int c = 0; c < nc; c++) {
                acc[k][c] = _mm256_add_ps(acc[k][c], f[c]);
            }
        }
    }
}

/* All whole steps. */
CSN_INLINE void few_steps(const struct few_kind *kind, const struct few_rows *rows,
                          struct few_at at, const csn_x8 *x, uint64_t t, int nc,
                          __m256 acc[4][FEW_BATCH]) {
    uint64_t j = 0;
    for (; j + 4 <= kind->n_steps; j += 4) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            few_add(kind, rows, &at, x, t, nc, j + (uint64_t)k, k, acc);
        }
    }
    while (j < kind->n_steps) {
        few_add_any(kind, rows, &at, x, t, nc, j++, acc);
    }
}

/* Four rows at `at`, number r[0..3], and the vectors t to t + nc - 1. */
CSN_INLINE void few_products(const struct few_kind *kind, const struct few_rows *rows,
                             struct few_at at, const struct few_rows *edge,
                             const uint64_t r[FEW_ROWS], const csn_x8 *x, uint64_t t, int nc,
                             float *y, uint64_t y_stride) {
    __m256 acc[4][FEW_BATCH];
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            acc[k][c] = _mm256_setzero_ps();
        }
    }
    few_steps(kind, rows, at, x, t, nc, acc);
    if (kind->has_edge) {
        struct few_at first = {0, 0};
        few_add_any(kind, edge, &first, x, t, nc, kind->n_steps, acc);
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m256 s =
            _mm256_add_ps(_mm256_add_ps(acc[0][c], acc[2][c]), _mm256_add_ps(acc[1][c], acc[3][c]));
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        if (kind->row_scale != NULL) {
            const uint8_t *p = kind->row_scale;
            __m128 scale = _mm_setr_ps(csn_scale16(p + 2 * r[0]), csn_scale16(p + 2 * r[1]),
                                       csn_scale16(p + 2 * r[2]), csn_scale16(p + 2 * r[3]));
            four = _mm_mul_ps(scale, four);
            if (kind->adds_exact) {
                four = few_exact(rows, at.w, scale, x, t + (uint64_t)c, four);
            }
        }
        float sum[FEW_ROWS];
        _mm_storeu_ps(sum, four);
        CSN_UNROLL
        for (int k = 0; k < FEW_ROWS; k++) {
            y[(t + (uint64_t)c) * y_stride + r[k]] = sum[k];
        }
    }
}

/* All n vectors; the weights come from memory for the first two. */
CSN_INLINE void few_quad(const struct few_kind *kind, const void *ctx, const struct few_rows *rows,
                         struct few_at at, const uint64_t r[FEW_ROWS], const csn_x8 *x, uint64_t n,
                         float *y, uint64_t y_stride) {
    struct few_rows edge;
    _Alignas(32) uint8_t copy[FEW_ROWS][FEW_EDGE];
    if (kind->has_edge) {
        const struct few_at last = {at.w + kind->n_steps * kind->step_bytes.w,
                                    at.scale + kind->n_steps * kind->step_bytes.scale};
        memset(copy, 0, sizeof(copy));
        kind->edge(ctx, rows, last, copy[0], &edge);
    }
    uint64_t t = 0;
    for (; t + 2 <= n; t += 2) {
        few_products(kind, rows, at, &edge, r, x, t, 2, y, y_stride);
    }
    if (t < n) {
        few_products(kind, rows, at, &edge, r, x, t, 1, y, y_stride);
    }
}

/* y for rows [r0, r1), at least four, and n vectors. */
CSN_INLINE void few_i8(const struct few_kind *kind, const void *ctx, const struct few_rows *first,
                       const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride, uint64_t r0,
                       uint64_t r1) {
    const uint64_t apart = (r1 - r0) / FEW_ROWS;
    const bool has_rest = apart * FEW_ROWS != r1 - r0; /* the last four, some of them again */
    struct few_rows rows;
    struct few_rows rest;
    for (uint64_t k = 0; k < FEW_ROWS; k++) {
        uint64_t a = r0 + k * apart;
        uint64_t b = r1 - FEW_ROWS + k;
        rows.w[k] = first->w[0] + a * kind->row_bytes.w;
        rows.scale[k] = first->scale[0] + a * kind->row_bytes.scale;
        rest.w[k] = first->w[0] + b * kind->row_bytes.w;
        rest.scale[k] = first->scale[0] + b * kind->row_bytes.scale;
        if (kind->unpack != NULL) {
            rows.scale[k] = first->scale[k];
            rest.scale[k] = first->scale[k];
        }
    }
    for (uint64_t i = 0; i < apart + (has_rest ? 1 : 0); i++) {
        const bool is_rest = i == apart;
        const uint64_t a = is_rest ? r1 - FEW_ROWS : r0 + i;
        const uint64_t step = is_rest ? 1 : apart;
        const uint64_t r[FEW_ROWS] = {a, a + step, a + 2 * step, a + 3 * step};
        const uint64_t n_before = is_rest ? 0 : i;
        struct few_at at = {n_before * kind->row_bytes.w, n_before * kind->row_bytes.scale};
        if (kind->unpack != NULL) {
            at.scale = kind->unpack(ctx, r, n_before);
        }
        few_quad(kind, ctx, is_rest ? &rest : &rows, at, r, x, n, y, y_stride);
    }
}

/* y for the listed rows, at least four (not for kinds that unpack scales), and n vectors. Four
 * streams again, whose gaps the hardware does not foresee: rows are asked for by software. */
CSN_INLINE void few_i8_rows(const struct few_kind *kind, const void *ctx, const uint8_t *w,
                            const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                            const uint32_t *list, uint64_t n_list) {
    const uint64_t apart = (n_list + FEW_ROWS - 1) / FEW_ROWS;
    for (uint64_t i = 0; i < apart; i++) {
        struct few_rows rows = {{NULL}, {NULL}};
        uint64_t r[FEW_ROWS];
        for (uint64_t k = 0; k < FEW_ROWS; k++) {
            uint64_t at = k * apart + i < n_list ? k * apart + i : n_list - 1;
            r[k] = list[at];
            rows.w[k] = w + r[k] * kind->row_bytes.w;
            if (at + FEW_LEAD < n_list) {
                const uint8_t *next = w + list[at + FEW_LEAD] * kind->row_bytes.w;
                for (uint64_t b = 0; b < kind->row_bytes.w; b += 64) {
                    csn_prefetch(next, b);
                }
            }
        }
        few_quad(kind, ctx, &rows, (struct few_at){0, 0}, r, x, n, y, y_stride);
    }
}

#endif
