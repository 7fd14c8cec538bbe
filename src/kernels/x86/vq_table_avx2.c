/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of vq.h for AVX2: eight entries a vector, the books by columns. */
#include <math.h>

#include "kernels/x86/i8_avx2.h"

enum {
    UNROLL = 4, /* vectors at once: what hides the latency of eight fused steps */
    /* Values of a span that are kept between its two passes: 128 KiB. */
    MOST_OF_VECTOR = 4 * CSN_VQ_MAX_ENTRIES
};

CSN_INLINE void products(const float *column, uint64_t entries, const __m256 x[CSN_VQ_DIM],
                         uint64_t c, int n, float *t) {
    __m256 acc[UNROLL];
    CSN_UNROLL
    for (int k = 0; k < n; k++) {
        acc[k] = _mm256_mul_ps(_mm256_loadu_ps(column + c + 8 * (uint64_t)k), x[0]);
    }
    CSN_UNROLL
    for (uint64_t d = 1; d < CSN_VQ_DIM; d++) {
        CSN_UNROLL
        for (int k = 0; k < n; k++) {
            __m256 e = _mm256_loadu_ps(column + d * entries + c + 8 * (uint64_t)k);
            acc[k] = _mm256_fmadd_ps(e, x[d], acc[k]);
        }
    }
    CSN_UNROLL
    for (int k = 0; k < n; k++) {
        _mm256_store_ps(t + c + 8 * k, acc[k]);
    }
}

/* All stages of one vector: t [stages][slots], aligned to 32. */
CSN_INLINE void vector_f32(const csn_vq_books *b, const float *x, float *t) {
    const uint64_t slots = csn_vq_slots(b);
    __m256 v[CSN_VQ_DIM];
    CSN_UNROLL
    for (int d = 0; d < CSN_VQ_DIM; d++) {
        v[d] = _mm256_broadcast_ss(x + d);
    }
    for (uint64_t s = 0; s < b->stages; s++, t += slots) {
        const float *column = b->column + s * CSN_VQ_DIM * b->entries;
        uint64_t c = 0;
        for (; c + 8 * UNROLL <= b->entries; c += 8 * UNROLL) {
            products(column, b->entries, v, c, UNROLL, t);
        }
        for (; c + 8 <= b->entries; c += 8) {
            products(column, b->entries, v, c, 1, t);
        }
        for (; c < b->entries; c++) {
            t[c] = column[c] * x[0];
            for (uint64_t d = 1; d < CSN_VQ_DIM; d++) {
                t[c] = fmaf(column[d * b->entries + c], x[d], t[c]);
            }
        }
        memset(t + c, 0, (slots - c) * sizeof(float));
    }
}

void csn_vq_table_f32_any_avx2(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                               uint64_t v1, void *table) {
    const uint64_t nbytes = b->stages * csn_vq_slots(b);
    (void)cols;
    for (uint64_t v = v0; v < v1; v++) {
        vector_f32(b, x + v * CSN_VQ_DIM, (float *)table + v * nbytes);
    }
}

/* n values, a multiple of 32. */
static void quantise(const float *t, uint64_t n, float inverse, uint8_t *codes) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 factor = _mm256_set1_ps(inverse);
    for (uint64_t i = 0; i < n; i += 32) {
        __m256i q[4];
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(t + i + 8 * k), factor));
        }
        __m256i all =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        all = _mm256_max_epi8(_mm256_permutevar8x32_epi32(all, order), _mm256_set1_epi8(-127));
        _mm256_store_si256((void *)(codes + i), _mm256_xor_si256(all, _mm256_set1_epi8(-128)));
    }
}

/* As integers, whose order is that of magnitudes, NaN behind all. */
static float largest(const float *t, uint64_t n) {
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    __m256i m[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (uint64_t i = 0; i < n; i += 16) {
        m[0] = _mm256_max_epi32(_mm256_and_si256(csn_load256(t + i), magnitude), m[0]);
        m[1] = _mm256_max_epi32(_mm256_and_si256(csn_load256(t + i + 8), magnitude), m[1]);
    }
    _Alignas(32) int32_t lane[8];
    _mm256_store_si256((void *)lane, _mm256_max_epi32(m[0], m[1]));
    int32_t max = lane[0];
    for (int i = 1; i < 8; i++) {
        max = lane[i] > max ? lane[i] : max;
    }
    float ret;
    memcpy(&ret, &max, sizeof(ret));
    return ret;
}

void csn_vq_table_i8_any_avx2(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                              uint64_t v1, void *table) {
    _Alignas(64) float t[CSN_VQ_SPAN * MOST_OF_VECTOR];
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    float *scales = csn_vq_scales(b, cols, table);
    if (of_vector > MOST_OF_VECTOR) {
        csn_vq_table_i8_any_ref(b, x, cols, v0, v1, table);
        return;
    }
    for (uint64_t v = v0; v < v1; v += CSN_VQ_SPAN) {
        uint64_t nv = v1 - v < CSN_VQ_SPAN ? v1 - v : CSN_VQ_SPAN;
        uint8_t *codes = (uint8_t *)table + v * of_vector;
        float max = 0.0f;
        for (uint64_t k = 0; k < nv; k++) {
            vector_f32(b, x + (v + k) * CSN_VQ_DIM, t + k * of_vector);
            float m = largest(t + k * of_vector, of_vector);
            max = m > max || isnan(m) ? m : max;
        }
        scales[v / CSN_VQ_SPAN] = max < 0x1p-100f ? 0.0f : max / 127.0f;
        if (!(max >= 0x1p-100f && max < INFINITY)) {
            memset(codes, 128, nv * of_vector);
        } else {
            quantise(t, nv * of_vector, 127.0f / max, codes);
        }
    }
}
