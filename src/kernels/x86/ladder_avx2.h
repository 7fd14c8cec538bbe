/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of q4tp and q2tp rows for the int8 kernels for AVX2: from csn_matrix.unpacked; where there
 * is none, ladders are made sixteen at a time, and for few vectors the scales of their rows are
 * unpacked before they are met. */
#ifndef CSN_KERNELS_X86_LADDER_AVX2_H
#define CSN_KERNELS_X86_LADDER_AVX2_H

#include <math.h>

#include "kernels/x86/few_i8_avx2.h"
#include "quant/exp2_half.h"
#include "quant/q4tp.h"

enum {
    LADDER_ROWS = 16,                         /* whose ladders are made at once: four quads */
    LADDER_GROUPS = 1024,                     /* of a row, few vectors */
    LADDER_ROOM = LADDER_ROWS * LADDER_GROUPS /* f32: 64 KiB */
};

struct ladders {
    const uint8_t *params, *codes;
    const float *scales; /* of the matrix, or NULL */
    uint64_t gpr, rows, code_bytes, scale_stride;
    bool is_q2tp; /* rung 0 is 0, the others move up; halves of all (ref/matmul_i8_q2tp_ref.c) */
    float *room;  /* few vectors: [LADDER_ROWS][padded_groups(gpr)], aligned to 32 */
};

/* group_bytes: of the codes of 32 weights, which lie before the ladders. */
CSN_INLINE struct ladders ladders_make(const csn_matrix *w, uint64_t gpr, uint64_t group_bytes,
                                       bool is_q2tp) {
    const uint8_t *params = w->data + w->rows * gpr * group_bytes;
    return (struct ladders){.params = params,
                            .codes = params + 4 * w->rows,
                            .scales = w->unpacked,
                            .gpr = gpr,
                            .rows = w->rows,
                            .code_bytes = csn_q4tp_code_bytes(gpr),
                            .scale_stride = csn_ladder_stride(w->cols),
                            .is_q2tp = is_q2tp};
}

/* csn_exp2_half for four arguments in [-150, 128), the same steps. */
CSN_INLINE __m128 exp2_of_4(__m128 x) {
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);
    __m256d d = _mm256_cvtps_pd(x);
    __m256d shifted = _mm256_add_pd(_mm256_mul_pd(d, _mm256_set1_pd(16.0)), magic);
    __m256d n = _mm256_sub_pd(shifted, magic);
    __m256d r = _mm256_mul_pd(_mm256_sub_pd(d, _mm256_mul_pd(n, _mm256_set1_pd(1.0 / 16.0))),
                              _mm256_set1_pd(0.69314718055994530942));
    static const double terms[] = {1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0};
    __m256d sum = _mm256_set1_pd(1.0 / 5040.0);
    CSN_UNROLL
    for (int i = 0; i < 6; i++) {
        sum = _mm256_add_pd(_mm256_mul_pd(sum, r), _mm256_set1_pd(terms[i]));
    }
    __m256i k = _mm256_sub_epi64(_mm256_castpd_si256(shifted), _mm256_castpd_si256(magic));
    __m256d root =
        _mm256_i64gather_pd(csn_exp2_sixteenths, _mm256_and_si256(k, _mm256_set1_epi64x(15)), 8);
    __m256i e = _mm256_srli_epi64(_mm256_add_epi64(k, _mm256_set1_epi64x(1023 * 16)), 4);
    __m256d power = _mm256_castsi256_pd(_mm256_slli_epi64(e, 52));
    __m256d y = _mm256_add_pd(root, _mm256_mul_pd(root, _mm256_mul_pd(sum, r)));
    return _mm256_cvtpd_ps(_mm256_mul_pd(y, power));
}

/* csn_exp2_half of eight halves; above: 1 where the result is a unit above the rounded one. */
CSN_INLINE __m256 exp2_of_8(__m128i halves, __m256i above) {
    __m256 x = _mm256_cvtph_ps(halves);
    __m256 y = _mm256_set_m128(exp2_of_4(_mm256_extractf128_ps(x, 1)),
                               exp2_of_4(_mm256_castps256_ps128(x)));
    y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), above));
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-150.0f), _CMP_LT_OQ), y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY),
                         _mm256_cmp_ps(x, _mm256_set1_ps(128.0f), _CMP_GE_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* First rung and ratio of the ladders of eight rows. */
CSN_INLINE void begin_ladders(const struct ladders *l, const uint64_t *row, __m256 *t,
                              __m256 *ratio) {
    int32_t params[8]; /* lo, step << 16 */
    for (uint64_t i = 0; i < 8; i++) {
        params[i] = csn_load32(l->params + 4 * row[i]);
    }
    __m256i both = csn_load256(params);
    __m256i above = _mm256_setzero_si256();
    for (int i = 0; i < CSN_N_EXP2_ABOVE; i++) {
        __m256i h = _mm256_set1_epi16((int16_t)csn_exp2_above[i]);
        above = _mm256_or_si256(above, _mm256_cmpeq_epi16(both, h));
    }
    const __m256i low = _mm256_set1_epi32(0xFFFF);
    __m256i halves = _mm256_packus_epi32(_mm256_and_si256(both, low), _mm256_srli_epi32(both, 16));
    halves = _mm256_permute4x64_epi64(halves, 0xD8); /* lo of eight rows, then step */
    *t = exp2_of_8(_mm256_castsi256_si128(halves), _mm256_and_si256(above, _mm256_set1_epi32(1)));
    *ratio = exp2_of_8(_mm256_extracti128_si256(halves, 1), _mm256_srli_epi32(above, 31));
}

/* The ladders of sixteen rows as csn_q4tp_ladder and csn_q2tp_ladder make them: 31 products one
 * after the other, so rows go side by side, and two vectors of them in turn. */
static void make_ladders(const struct ladders *l, const uint64_t row[LADDER_ROWS],
                         float rung[LADDER_ROWS][CSN_Q4TP_RUNGS]) {
    __m256 t[2];
    __m256 ratio[2];
    __m256 above[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}; /* q2tp: one place higher */
    begin_ladders(l, row, &t[0], &ratio[0]);
    begin_ladders(l, row + 8, &t[1], &ratio[1]);
    for (int c = 0; c < CSN_Q4TP_RUNGS; c += 8) {
        __m256i v[2][8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            CSN_UNROLL
            for (int h = 0; h < 2; h++) {
                v[h][k] = _mm256_castps_si256(l->is_q2tp ? above[h] : t[h]);
                above[h] = _mm256_mul_ps(t[h], _mm256_set1_ps(0.5f));
                t[h] = _mm256_mul_ps(t[h], ratio[h]);
            }
        }
        CSN_UNROLL
        for (int h = 0; h < 2; h++) {
            csn_transpose8(v[h]);
            CSN_UNROLL
            for (int i = 0; i < 8; i++) {
                _mm256_store_si256((void *)(rung[8 * h + i] + c), v[h][i]);
            }
        }
    }
}

/* Sixteen rows, for many vectors. */
struct ladder_panel {
    uint64_t row[LADDER_ROWS];
    _Alignas(32) float rung[LADDER_ROWS][CSN_Q4TP_RUNGS]; /* not written where there are scales */
};

CSN_INLINE void ladder_panel_make(const struct ladders *l, uint64_t r, uint64_t r1,
                                  struct ladder_panel *ret) {
    for (uint64_t i = 0; i < LADDER_ROWS; i++) {
        ret->row[i] = r + i < r1 ? r + i : r1 - 1;
    }
    if (l->scales == NULL) {
        make_ladders(l, ret->row, ret->rung);
    }
}

CSN_INLINE float ladder_scale(const struct ladders *l, const struct ladder_panel *panel, uint64_t i,
                              uint64_t g) {
    const uint64_t row = panel->row[i];
    return l->scales != NULL ? l->scales[row * l->scale_stride + g]
                             : panel->rung[i][csn_q4tp_code(l->codes + row * l->code_bytes, g)];
}

/* Eight codes of 5 bits are five bytes; the ladder is looked up in four pieces of eight rungs. */
CSN_INLINE __m256 ladder_scales(uint64_t bits, const float *rung) {
    __m256i v = _mm256_set1_epi64x((long long)bits);
    __m256 a = _mm256_castsi256_ps(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 5, 20, 25)));
    __m256 b = _mm256_castsi256_ps(_mm256_srlv_epi64(v, _mm256_setr_epi64x(10, 15, 30, 35)));
    __m256i code = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)); /* 0 1 2 3 | 4 5 6 7 */
    __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
    __m256 bit4 = _mm256_castsi256_ps(_mm256_slli_epi32(code, 27));
    __m256 low = _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_load_ps(rung), code),
                                  _mm256_permutevar8x32_ps(_mm256_load_ps(rung + 8), code), bit3);
    __m256 high = _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_load_ps(rung + 16), code),
                                   _mm256_permutevar8x32_ps(_mm256_load_ps(rung + 24), code), bit3);
    return _mm256_blendv_ps(low, high, bit4);
}

CSN_INLINE uint64_t padded_groups(uint64_t gpr) {
    return (gpr + 7) / 8 * 8;
}

/* The scales of one row, followed by zeros up to a multiple of eight. */
static void unpack_scales(const uint8_t *codes, uint64_t gpr, const float *rung, float *out) {
    uint64_t g = 0;
    for (; g + 8 <= gpr; g += 8) {
        const uint8_t *p = codes + g / 8 * 5;
        _mm256_store_ps(out + g,
                        ladder_scales((uint32_t)csn_load32(p) | (uint64_t)p[4] << 32, rung));
    }
    for (; g < padded_groups(gpr); g++) {
        out[g] = g < gpr ? rung[csn_q4tp_code(codes, g)] : 0.0f;
    }
}

/* few_kind.unpack: scales of this quad of rows and of the next three. */
static uint64_t ladder_unpack(const struct ladders *l, const uint64_t r[FEW_ROWS], uint64_t i) {
    const uint64_t quads = LADDER_ROWS / FEW_ROWS;
    const uint64_t row_floats = padded_groups(l->gpr);
    if (i % quads != 0) {
        return i % quads * FEW_ROWS * row_floats * sizeof(float);
    }
    _Alignas(32) float rung[LADDER_ROWS][CSN_Q4TP_RUNGS];
    uint64_t row[LADDER_ROWS];
    for (uint64_t k = 0; k < LADDER_ROWS; k++) {
        row[k] = r[k % FEW_ROWS] + k / FEW_ROWS;
        row[k] = row[k] < l->rows ? row[k] : l->rows - 1;
    }
    make_ladders(l, row, rung);
    for (uint64_t k = 0; k < FEW_ROWS; k++) { /* too slow streams for the hardware to look ahead */
        csn_prefetch(l->params + 4 * row[k], 128);
        csn_prefetch(l->codes + row[k] * l->code_bytes, 512);
    }
    for (uint64_t k = 0; k < LADDER_ROWS; k++) {
        unpack_scales(l->codes + row[k] * l->code_bytes, l->gpr, rung[k], l->room + k * row_floats);
    }
    return 0;
}

/* Where few_i8 begins to read what is unpacked. */
CSN_INLINE void ladder_first(const struct ladders *l, struct few_rows *first) {
    for (uint64_t k = 0; k < FEW_ROWS; k++) {
        first->scale[k] = (const uint8_t *)(l->room + k * padded_groups(l->gpr));
    }
}

/* The scales of two groups of four rows, in the order of few_i8_avx2.h. */
CSN_INLINE __m256 ladder_two(const struct few_rows *rows, struct few_at at) {
    __m128 a = _mm_loadl_pi(_mm_setzero_ps(), (const void *)(rows->scale[0] + at.scale));
    __m128 b = _mm_loadl_pi(_mm_setzero_ps(), (const void *)(rows->scale[2] + at.scale));
    a = _mm_loadh_pi(a, (const void *)(rows->scale[1] + at.scale));
    b = _mm_loadh_pi(b, (const void *)(rows->scale[3] + at.scale));
    return _mm256_set_m128(_mm_shuffle_ps(a, b, 0xDD), _mm_shuffle_ps(a, b, 0x88));
}

#endif
