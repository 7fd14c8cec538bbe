/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, q1, q1s and q1t, AVX2 with FMA (f32_avx2.h). Decoders: what quant/<dtype>.c makes, with
 * signs and zeros looked up or put on the scale. */
#include "kernels/x86/f32_avx2.h"
#include "kernels/x86/q1t_avx2.h"

/* Tiles of whole groups. */
CSN_INLINE void decode_signs(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m, float *buf) {
    const uint8_t *tile = w->data + (r * w->cols + c) / 32 * CSN_Q1_TILE;
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    for (uint64_t i = 0; i < m; i += 32, tile += CSN_Q1_TILE) {
        const __m256i s = _mm256_castps_si256(_mm256_set1_ps(csn_scale16(tile)));
        const __m256i minus = _mm256_set1_epi32(~csn_load32(tile + 2));
        CSN_UNROLL
        for (int k = 0; k < 4; k++) { /* bit 8 k + lane becomes the sign */
            __m256i left = _mm256_sub_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                                            _mm256_set1_epi32(8 * k));
            __m256i bit = _mm256_and_si256(_mm256_sllv_epi32(minus, left), sign);
            _mm256_store_si256((void *)(buf + i + 8 * (uint64_t)k), _mm256_xor_si256(s, bit));
        }
    }
}

CSN_INLINE const void *decode_q1(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                 float *buf) {
    if (w->cols % 32 != 0) {
        return decode_any(w, r, c, m, buf);
    }
    decode_signs(w, r, c, m, buf);
    return buf;
}

CSN_INLINE const void *decode_q1s(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t i0 = r * w->cols + c;
    decode_signs(w, r, c, m, buf);
    csn_outliers o = csn_q1s_outliers(w, i0, i0 + m);
    for (; o.n > 0; o.n--, o.p += CSN_Q1S_OUTLIER) {
        uint64_t k = csn_q1s_index(o.p) - i0;
        if (k < m) { /* as in quant/q1s.c */
            buf[k] = csn_scale16(o.p + 4);
        }
    }
    return buf;
}

CSN_INLINE const void *decode_q1t(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint8_t *tile = w->data + (r * w->cols + c) / 32 * CSN_Q1T_TILE;
    const __m256 sign = _mm256_setr_ps(-0.0f, 0, 0, 0, 0, 0, 0, 0);
    const __m256 mask = _mm256_castsi256_ps(_mm256_setr_epi32(-1, 0, -1, 0, 0, 0, 0, 0));
    for (uint64_t i = 0; i < m; i += 32, tile += CSN_Q1T_TILE) {
        const __m256 s = _mm256_set1_ps(csn_scale16(tile));
        const __m256 values = _mm256_xor_ps(_mm256_and_ps(s, mask), sign); /* of weights -1, 0, 1 */
        _Alignas(32) uint8_t weight[32];
        _mm256_store_si256((void *)weight, q1t_weights(tile));
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(weight + 8 * k)));
            _mm256_store_ps(buf + i + 8 * (uint64_t)k, _mm256_permutevar8x32_ps(values, v));
        }
    }
    csn_outliers o = csn_q1t_outliers(w, r, c, c + m);
    for (; o.n > 0; o.n--, o.p += CSN_Q1T_OUTLIER) {
        uint64_t k = csn_q1t_column(o.p) - c;
        if (k < m) { /* as in quant/q1t.c */
            buf[k] = csn_scale16(o.p + 2);
        }
    }
    return buf;
}

CSN_DEFINE_F32(q1)
CSN_DEFINE_F32(q1s)
CSN_DEFINE_F32(q1t)
