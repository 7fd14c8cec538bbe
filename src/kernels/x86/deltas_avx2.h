/* SPDX-License-Identifier: Apache-2.0 */
/* The unpacked outliers of q1s (quant/q1.h) on top of the product of their tiles, AVX2: the sums of
 * outliers_template.h for one vector and some rows at once.
 *
 * Products are made eight at a time, of whatever rows. Then they are added for eight rows side by
 * side: a row that has none left adds +0, which changes no sum but -0, and that none is: the lanes
 * of the tiles begin at +0. */
#ifndef CSN_KERNELS_X86_DELTAS_AVX2_H
#define CSN_KERNELS_X86_DELTAS_AVX2_H

#include "kernels/x86/i8_avx2.h"
#include "quant/q1.h"

enum {
    DELTA_ROWS = 16,
    DELTA_PRODUCTS = 1024 /* at once: a multiple of eight */
};

/* Adds to eight sums: those of row i are product[first[i]] to product[first[i + 1]]. */
CSN_INLINE void add_products(const float *product, const uint32_t first[9], float *sum) {
    __m256i a = csn_load256(first);
    __m256i n = _mm256_sub_epi32(csn_load256(first + 1), a);
    __m256 s = _mm256_loadu_ps(sum);
    for (int k = 0;; k += 8) {
        __m256i left = _mm256_sub_epi32(n, _mm256_set1_epi32(k));
        __m256 v[8];
        if (_mm256_movemask_ps(
                _mm256_castsi256_ps(_mm256_cmpgt_epi32(left, _mm256_setzero_si256()))) == 0) {
            break;
        }
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = _mm256_loadu_ps(product + first[i] + k);
        }
        csn_lanes_of_rows(v);
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            __m256 has = _mm256_castsi256_ps(_mm256_cmpgt_epi32(left, _mm256_set1_epi32(i)));
            s = _mm256_add_ps(s, _mm256_and_ps(v[i], has));
        }
    }
    _mm256_storeu_ps(sum, s);
}

CSN_INLINE __m256 eight_of(const float *x, const uint16_t *i) {
    return _mm256_setr_ps(x[i[0]], x[i[1]], x[i[2]], x[i[3]], x[i[4]], x[i[5]], x[i[6]], x[i[7]]);
}

/* Adds the outliers of rows [r, r1), DELTA_ROWS at most, times the columns of x. */
CSN_OUTLINE void add_deltas(const csn_q1s_deltas *d, const float *x, uint64_t r, uint64_t r1,
                            float *y) {
    float product[2 * DELTA_PRODUCTS]; /* rows without any read as far as others */
    float sum[DELTA_ROWS] = {0};
    memcpy(sum, y + r, (r1 - r) * sizeof(float));
    for (uint64_t k0 = d->first[r]; k0 < d->first[r1]; k0 += DELTA_PRODUCTS) {
        const uint64_t n = d->first[r1] - k0 < DELTA_PRODUCTS ? d->first[r1] - k0 : DELTA_PRODUCTS;
        for (uint64_t k = 0; k < n; k += 8) {
            _mm256_storeu_ps(product + k, _mm256_mul_ps(_mm256_loadu_ps(d->delta + k0 + k),
                                                        eight_of(x, d->col + k0 + k)));
        }
        uint32_t first[DELTA_ROWS + 1];
        for (uint64_t i = 0; i <= DELTA_ROWS; i++) {
            uint64_t k = d->first[r + i < r1 ? r + i : r1];
            k = k > k0 ? k - k0 : 0;
            first[i] = (uint32_t)(k < n ? k : n);
        }
        add_products(product, first, sum);
        add_products(product, first + 8, sum + 8);
    }
    memcpy(y + r, sum, (r1 - r) * sizeof(float));
}

#endif
