/* SPDX-License-Identifier: Apache-2.0 */
/* Eight vectors at a time, one a lane: their eight dims lie in eight registers while the codebook,
 * 9 KB, passes by from L1. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/types.h"

enum { LANES = 8 };

/* x [8][8] -> dims [8] of a vector a lane. */
static inline void transpose(const float *x, __m256 dim[CSN_VQ_DIM]) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(x + i * CSN_VQ_DIM);
    }
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        dim[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        dim[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
}

#define STEP(d) sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&s->twice[c][d]), dim[d], sum)

static inline __m256 distance(const csn_vq_search *s, uint32_t c, const __m256 dim[CSN_VQ_DIM]) {
    __m256 sum = _mm256_broadcast_ss(&s->norm[c]);
    STEP(0);
    STEP(1);
    STEP(2);
    STEP(3);
    STEP(4);
    STEP(5);
    STEP(6);
    STEP(7);
    return sum;
}

static inline __m256i search(const csn_vq_search *s, const float *x) {
    __m256 dim[CSN_VQ_DIM];
    __m256 least = _mm256_set1_ps(INFINITY);
    __m256i best = _mm256_setzero_si256();
    transpose(x, dim);
    for (uint32_t c = 0; c < s->entries; c++) {
        __m256 sum = distance(s, c, dim);
        __m256 is_less = _mm256_cmp_ps(sum, least, _CMP_LT_OQ);
        least = _mm256_min_ps(sum, least);
        best = _mm256_blendv_epi8(best, _mm256_set1_epi32((int)c), _mm256_castps_si256(is_less));
    }
    return best;
}

void csn_vq_nearest_any_avx2(const csn_vq_search *s, const float *x, uint64_t n, uint8_t *ret) {
    int32_t best[LANES];
    for (uint64_t i = 0; i < n; i += LANES) {
        float last[LANES * CSN_VQ_DIM] = {0};
        uint64_t left = n - i < LANES ? n - i : LANES;
        const float *from = x + i * CSN_VQ_DIM;
        if (left < LANES) {
            memcpy(last, from, left * CSN_VQ_DIM * sizeof(float));
            from = last;
        }
        _mm256_storeu_si256((__m256i *)(void *)best, search(s, from));
        for (uint64_t k = 0; k < left; k++) {
            ret[i + k] = (uint8_t)best[k];
        }
    }
}
