/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, q4tp and q2tp, AVX2 with FMA (f32_avx2.h). Scales come from what is unpacked; where
 * nothing is, a row's ladder is made for each piece of it. */
#include "kernels/x86/f32_avx2.h"
#include "quant/q4tp.h"

struct scales {            /* of a row from group g0 on */
    const float *unpacked; /* or NULL */
    float rung[CSN_Q4TP_RUNGS];
    const uint8_t *codes;
    uint64_t g0;
};

/* What is unpacked of q2tp are halves, which are exact unless a rung but the first is below
 * 2^-125. */
CSN_INLINE bool are_exact(const uint8_t *params) {
    const float lo = csn_scale16(params);
    const float step = csn_scale16(params + 2);
    return lo > -100.0f && lo + 31.0f * step > -100.0f;
}

CSN_INLINE void begin_scales(bool is_q2tp, uint64_t group_bytes, const csn_matrix *w, uint64_t r,
                             uint64_t c, struct scales *ret) {
    const uint64_t gpr = w->cols / 32;
    const uint8_t *params = w->data + w->rows * gpr * group_bytes;
    ret->codes = params + 4 * w->rows + r * csn_q4tp_code_bytes(gpr);
    params += 4 * r;
    ret->g0 = c / 32;
    ret->unpacked = NULL;
    if (w->unpacked != NULL && (!is_q2tp || are_exact(params))) {
        ret->unpacked = (const float *)w->unpacked + r * csn_ladder_stride(w->cols) + ret->g0;
    } else {
        (is_q2tp ? csn_q2tp_ladder : csn_q4tp_ladder)(csn_load16(params), csn_load16(params + 2),
                                                      ret->rung);
    }
}

CSN_INLINE float scale_of(bool is_q2tp, const struct scales *s, uint64_t g) {
    return s->unpacked == NULL ? s->rung[csn_q4tp_code(s->codes, s->g0 + g)]
           : is_q2tp           ? 2.0f * s->unpacked[g]
                               : s->unpacked[g];
}

CSN_INLINE const void *decode_q4tp(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const uint8_t *nib = w->data + (r * w->cols + c) / 2;
    struct scales s;
    begin_scales(false, 16, w, r, c, &s);
    for (uint64_t i = 0; i < m; i += 32) {
        decode_nibbles(nib + i / 2, scale_of(false, &s, i / 32), buf + i);
    }
    return buf;
}

CSN_INLINE const void *decode_q2tp(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const __m256 weights = _mm256_setr_ps(-1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f);
    const uint8_t *plane = w->data + (r * w->cols + c) / 4;
    struct scales s;
    begin_scales(true, 8, w, r, c, &s);
    for (uint64_t i = 0; i < m; i += 32) {
        const __m256 values = _mm256_mul_ps(weights, _mm256_set1_ps(scale_of(true, &s, i / 32)));
        CSN_UNROLL
        for (uint64_t k = 0; k < 4; k++) { /* the third bit that is looked at chooses nothing */
            __m256i v = _mm256_set1_epi32(csn_load16(plane + i / 4 + 2 * k));
            v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
            _mm256_store_ps(buf + i + 8 * k, _mm256_permutevar8x32_ps(values, v));
        }
    }
    return buf;
}

CSN_DEFINE_F32(q4tp)
CSN_DEFINE_F32(q2tp)
