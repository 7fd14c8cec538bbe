/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row and q8_2f (ref/matmul_i8_q8_ref.c says what they mean), AVX2.
 *
 * One vector: |w| times x with the sign of w is exact in vpmaddubsw (2 * 128 * 127 = 32512), then
 * eight groups of one row fill the eight lanes, so a row is read straight through.
 */
#include "kernels/x86/gemm_i8_avx2.h"

enum {
    FEW = 4,     /* below this many vectors packing costs more than it gives */
    AHEAD = 4096 /* bytes of prefetch: the hardware one stops at the end of a page */
};

struct q8 {
    const int8_t *codes; /* [rows][cols] */
    uint64_t cols;
    uint64_t last; /* valid columns of the last group, 1 to 32 */
    uint64_t n_groups;
};

/* Partial sums of a group: lane k of 8 holds columns 4k to 4k+3. */
CSN_INLINE __m256i dot(__m256i w, __m256i x) {
    __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}

CSN_INLINE __m256i load_group(const int8_t *w, uint64_t m) {
    if (m == 32) {
        return csn_load256(w);
    }
    _Alignas(32) int8_t part[32] = {0};
    memcpy(part, w, m);
    return _mm256_load_si256((const void *)part);
}

/* Adds the scaled sums of up to eight groups. */
CSN_INLINE __m256 add_groups(__m256 acc, const __m256i v[8], const float *xs) {
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_loadu_ps(xs), _mm256_cvtepi32_ps(csn_sums8(v))));
}

/* The eight lanes of one row. */
CSN_INLINE __m256 row_lanes(const struct q8 *m, const int8_t *w, const int8_t *x, const float *xs) {
    __m256 acc = _mm256_setzero_ps();
    __m256i v[8];
    uint64_t whole = m->last == 32 ? m->n_groups : m->n_groups - 1;
    uint64_t g = 0;
    for (; g + 8 <= whole; g += 8) {
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = dot(csn_load256(w + (g + (uint64_t)k) * 32),
                       csn_load256(x + (g + (uint64_t)k) * 32));
        }
        CSN_UNROLL
        for (uintptr_t k = 0; k < 4; k++) {
            csn_prefetch(w + g * 32, AHEAD + 64 * k);
        }
        acc = add_groups(acc, v, xs + g);
    }
    if (g < m->n_groups) {
        uint64_t rest = whole - g;
        __m256i part = _mm256_setzero_si256(); /* the last group, when it is short */
        if (whole < m->n_groups) {
            part = dot(load_group(w + whole * 32, m->last), csn_load256(x + whole * 32));
        }
        CSN_UNROLL
        for (uint64_t k = 0; k < 8; k++) {
            v[k] = k < rest    ? dot(csn_load256(w + (g + k) * 32), csn_load256(x + (g + k) * 32))
                   : k == rest ? part
                               : _mm256_setzero_si256();
        }
        acc = add_groups(acc, v, xs + g);
    }
    return acc;
}

/* Scaled sums of groups g and g + 1 of rows r to r + 3 (csn_add_last_two). */
CSN_INLINE __m256 last_terms(const struct q8 *m, uint64_t r, uint64_t g, const int8_t *x,
                             const float *xs) {
    __m256i v[8];
    CSN_UNROLL
    for (uint64_t k = 0; k < 4; k++) {
        const int8_t *w = m->codes + (r + k) * m->cols + g * 32;
        v[2 * k] = dot(csn_load256(w), csn_load256(x + g * 32));
        v[2 * k + 1] = dot(csn_load256(w + 32), csn_load256(x + g * 32 + 32));
    }
    return _mm256_mul_ps(csn_two_scales(xs + g), _mm256_cvtepi32_ps(csn_sums8(v)));
}

static void pack_q8(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q8 *m = ctx;
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i flip = _mm256_set1_epi8(-128);
    const int8_t *row[8];
    for (uint64_t i = 0; i < 8; i++) {
        row[i] = m->codes + (r + i < r1 ? r + i : r1 - 1) * m->cols + g0 * 32;
    }
    for (uint64_t g = 0; g < ng; g++) {
        __m256i v[8];
        uint64_t valid = g0 + g + 1 == m->n_groups ? m->last : 32;
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = _mm256_xor_si256(load_group(row[i] + g * 32, valid), flip);
        }
        csn_transpose8(v);
        CSN_UNROLL
        for (int j = 0; j < 8; j++) {
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[j], 4), low);
            _mm256_store_si256((void *)p->plane[g][j][0], high);
            _mm256_store_si256((void *)p->plane[g][j][1], _mm256_and_si256(v[j], low));
        }
    }
}

void csn_matmul_i8_q8_row_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint8_t *scales = w->data + w->rows * w->cols;
    const struct q8 m = {.codes = (const int8_t *)w->data,
                         .cols = w->cols,
                         .last = w->cols % 32 == 0 ? 32 : w->cols % 32,
                         .n_groups = x->n_groups};
    if (n >= FEW) {
        gemm_i8(pack_q8, &m, true, scales, x, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t b = r0; b < r1; b += 8) {
        uint64_t n_rows = r1 - b < 8 ? r1 - b : 8;
        uint8_t f16[16] = {0};
        memcpy(f16, scales + 2 * b, 2 * n_rows);
        __m256 row_scale = _mm256_cvtph_ps(_mm_loadu_si128((const void *)f16));
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *q = x->q + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            bool last_two = m.n_groups % 8 == 2 && m.last == 32 && n_rows == 8;
            struct q8 part = m;
            part.n_groups -= last_two ? 2 : 0;
            __m256 lanes[8];
            for (uint64_t i = 0; i < 8; i++) {
                lanes[i] = row_lanes(&part, m.codes + (b + (i < n_rows ? i : 0)) * m.cols, q, xs);
            }
            csn_lanes_of_rows(lanes);
            if (last_two) {
                uint64_t g = m.n_groups - 2;
                csn_add_last_two(lanes, last_terms(&m, b, g, q, xs),
                                 last_terms(&m, b + 4, g, q, xs));
            }
            csn_store_rows(y + t * y_stride + b, _mm256_mul_ps(row_scale, csn_tree_of_lanes(lanes)),
                           n_rows);
        }
    }
}

void csn_matmul_i8_q8_2f_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q8_row_avx2(w, x, n, y, y_stride, r0, r1);
}
