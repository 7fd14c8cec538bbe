/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q4_block, q4_tiled and q4tp (the files of ref/ say what they mean), AVX2.
 *
 * Few vectors: the low nibbles of two groups of a row meet the even columns of x, the high ones the
 * odd columns (csn_x8.split), as unsigned codes; csn_x8.offset takes 8 * sum(x) away.
 */
#include <math.h>

#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "quant/exp2_half.h"
#include "quant/q4tp.h"

/* Group g of row r is the flat group r * gpr + g: 16 bytes at nib + flat * stride, and its f16 at
 * scale + flat * s_stride; q4tp: params and codes in place of scales. */
struct q4 {
    const uint8_t *nib, *scale;
    uint64_t stride, s_stride, gpr, rows;
    const uint8_t *params, *codes;
    uint64_t code_bytes;
    float *room; /* q4tp, few vectors: [2][FEW_ROWS][padded_groups(gpr)] scales */
};

enum form { Q4_BLOCK, Q4_TILED, Q4TP };

enum {
    MOST_GROUPS = 2048, /* of a row of q4tp with few vectors: 64 KiB of unpacked scales */
    EDGE_AT = 16        /* of the group in the copy of an edge: reads begin before it */
};

CSN_INLINE __m128i load_128(const uint8_t *p) {
    return _mm_loadu_si128((const void *)p);
}

/* ---- q4tp: scales from ladders ---- */

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

/* The ladders of eight rows as csn_q4tp_ladder makes them: 31 products one after the other, so
 * eight rows go side by side. */
static void eight_ladders(const struct q4 *m, const uint64_t row[8],
                          float rung[8][CSN_Q4TP_RUNGS]) {
    int32_t params[8]; /* lo, step << 16 */
    for (uint64_t i = 0; i < 8; i++) {
        params[i] = csn_load32(m->params + 4 * row[i]);
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
    __m256 t =
        exp2_of_8(_mm256_castsi256_si128(halves), _mm256_and_si256(above, _mm256_set1_epi32(1)));
    __m256 ratio = exp2_of_8(_mm256_extracti128_si256(halves, 1), _mm256_srli_epi32(above, 31));
    for (int c = 0; c < CSN_Q4TP_RUNGS; c += 8) {
        __m256i v[8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = _mm256_castps_si256(t);
            t = _mm256_mul_ps(t, ratio);
        }
        csn_transpose8(v);
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            _mm256_store_si256((void *)(rung[i] + c), v[i]);
        }
    }
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

/* The scales of one row, followed by zeros up to a multiple of eight. */
static void unpack_scales(const uint8_t *codes, uint64_t gpr, const float *rung, float *out) {
    uint64_t g = 0;
    for (; g + 8 <= gpr; g += 8) {
        const uint8_t *p = codes + g / 8 * 5;
        _mm256_store_ps(out + g,
                        ladder_scales((uint32_t)csn_load32(p) | (uint64_t)p[4] << 32, rung));
    }
    for (; g < (gpr + 7) / 8 * 8; g++) {
        out[g] = g < gpr ? rung[csn_q4tp_code(codes, g)] : 0.0f;
    }
}

/* ---- few vectors ---- */

CSN_INLINE uint64_t padded_groups(uint64_t gpr) {
    return (gpr + 7) / 8 * 8;
}

/* Scales of this quad of rows and of the next: ladders are made eight at a time. */
static uint64_t q4tp_unpack(const void *ctx, const uint64_t r[FEW_ROWS], uint64_t i) {
    const struct q4 *m = ctx;
    const uint64_t quad = FEW_ROWS * padded_groups(m->gpr);
    if (i % 2 != 0) {
        return quad * sizeof(float);
    }
    _Alignas(32) float rung[8][CSN_Q4TP_RUNGS];
    uint64_t row[8];
    for (uint64_t k = 0; k < 8; k++) {
        row[k] = r[k % FEW_ROWS] + k / FEW_ROWS;
        row[k] = row[k] < m->rows ? row[k] : m->rows - 1;
    }
    eight_ladders(m, row, rung);
    for (uint64_t k = 0; k < FEW_ROWS; k++) { /* too slow streams for the hardware to look ahead */
        csn_prefetch(m->params + 4 * row[k], 128);
        csn_prefetch(m->codes + row[k] * m->code_bytes, 512);
    }
    for (uint64_t k = 0; k < 8; k++) {
        unpack_scales(m->codes + row[k] * m->code_bytes, m->gpr, rung[k],
                      m->room + k * padded_groups(m->gpr));
    }
    return 0;
}

/* The scales of two groups of four rows, in the order of few_i8_avx2.h. Row k lies at least k rows
 * behind the tensor's first byte and 3 - k before its last: loads of 16 bytes that have what is
 * wanted of row k at word or dword k stay inside, and blends collect it without a shuffle. */
CSN_INLINE __m256 scales_of(enum form form, const struct few_rows *rows, struct few_at at) {
    if (form == Q4_TILED) { /* 2 bytes before the nibbles and 16 behind, for word k and 4 + k */
        const uint8_t *const *p = rows->w;
        __m128i a = _mm_blend_epi16(load_128(p[0] + at.w - 2), load_128(p[1] + at.w - 4), 1 << 1);
        __m128i b = _mm_blend_epi16(load_128(p[2] + at.w - 6), load_128(p[3] + at.w - 8), 1 << 3);
        __m128i c = _mm_blend_epi16(load_128(p[0] + at.w + 8), load_128(p[1] + at.w + 6), 1 << 5);
        __m128i d = _mm_blend_epi16(load_128(p[2] + at.w + 4), load_128(p[3] + at.w + 2), 1 << 7);
        return _mm256_cvtph_ps(
            _mm_blend_epi32(_mm_blend_epi32(a, b, 1 << 1), _mm_blend_epi32(c, d, 1 << 3), 0xC));
    }
    const uint8_t *p[FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        p[k] = rows->scale[k] + at.scale;
    }
    if (form == Q4_BLOCK) {
        __m128i a = _mm_blend_epi32(load_128(p[0]), load_128(p[1] - 4), 1 << 1);
        __m128i b = _mm_blend_epi32(load_128(p[2] - 8), load_128(p[3] - 12), 1 << 3);
        const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        return _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_blend_epi32(a, b, 0xC), order));
    }
    __m128 a = _mm_loadl_pi(_mm_setzero_ps(), (const void *)p[0]);
    __m128 b = _mm_loadl_pi(_mm_setzero_ps(), (const void *)p[2]);
    a = _mm_loadh_pi(a, (const void *)p[1]);
    b = _mm_loadh_pi(b, (const void *)p[3]);
    return _mm256_set_m128(_mm_shuffle_ps(a, b, 0xDD), _mm_shuffle_ps(a, b, 0x88));
}

/* The nibbles of two groups. A load of 32 bytes that ends with the second and a blend do without a
 * shuffle. */
CSN_INLINE __m256i load_two(enum form form, const uint8_t *p) {
    return form == Q4_TILED
               ? _mm256_blend_epi32(_mm256_castsi128_si256(load_128(p)), csn_load256(p + 2), 0xF0)
               : csn_load256(p);
}

CSN_INLINE void step_of(enum form form, const struct few_rows *rows, struct few_at at,
                        const csn_x8 *x, uint64_t t, int nc, uint64_t j, __m256 *f) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i v[FEW_BATCH][FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        __m256i n = load_two(form, rows->w[k] + at.w);
        __m256i low = _mm256_and_si256(n, mask);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(n, 4), mask);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x->split + (t + (uint64_t)c) * x->q_stride + 64 * j;
            v[c][k] = _mm256_add_epi16(_mm256_maddubs_epi16(low, csn_load256(q)),
                                       _mm256_maddubs_epi16(high, csn_load256(q + 32)));
        }
    }
    __m256 ws = scales_of(form, rows, at);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        uint64_t g = (t + (uint64_t)c) * x->g_stride + 2 * j;
        __m256i offset = _mm256_castps_si256(few_two(x->offset + 2 * g));
        __m256i s = _mm256_add_epi32(csn_sums_of_halves(v[c]),
                                     _mm256_madd_epi16(offset, _mm256_set1_epi16(1)));
        f[c] = _mm256_mul_ps(_mm256_mul_ps(ws, few_two(x->scale + g)), _mm256_cvtepi32_ps(s));
    }
}

/* An odd number of groups: the last of each row, and zeros for its neighbour. */
CSN_INLINE void edge_of(enum form form, const struct few_rows *rows, struct few_at at,
                        uint8_t *copy, struct few_rows *ret) {
    for (int k = 0; k < FEW_ROWS; k++) {
        uint8_t *to = copy + k * FEW_EDGE + EDGE_AT;
        const uint8_t *w = rows->w[k] + at.w;
        const uint8_t *scale = rows->scale[k] + at.scale;
        if (form == Q4_TILED) {
            memcpy(to - 2, w - 2, 18);
            ret->w[k] = to;
        } else {
            ret->w[k] = memcpy(to, w, 16);
            ret->scale[k] = form == Q4TP ? scale : memcpy(to + 48, scale, 2);
        }
    }
}

/* The functions of few_kind for one form. */
#define KIND(form, name)                                                                           \
    CSN_INLINE void name##_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x,    \
                                uint64_t t, int nc, uint64_t j, __m256 *f) {                       \
        step_of(form, rows, at, x, t, nc, j, f);                                                   \
    }                                                                                              \
    CSN_INLINE void name##_edge(const void *ctx, const struct few_rows *rows, struct few_at at,    \
                                uint8_t *copy, struct few_rows *ret) {                             \
        (void)ctx;                                                                                 \
        edge_of(form, rows, at, copy, ret);                                                        \
    }

KIND(Q4_BLOCK, q4_block)
KIND(Q4_TILED, q4_tiled)
KIND(Q4TP, q4tp)

/* ---- many vectors ---- */

CSN_INLINE void pack_nibbles(const struct q4 *m, const uint64_t first[8], uint64_t g,
                             uint8_t (*plane)[2][32], uint64_t octet) {
    const __m128i mask = _mm_set1_epi8(15);
    __m256i v[8];
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        __m128i n = load_128(m->nib + (first[i] + g) * m->stride);
        __m128i even = _mm_and_si128(n, mask);
        __m128i odd = _mm_and_si128(_mm_srli_epi16(n, 4), mask);
        v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(even, odd)),
                                       _mm_unpackhi_epi8(even, odd), 1);
    }
    csn_transpose8(v);
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        _mm256_store_si256((void *)plane[j][octet], v[j]);
    }
}

static void pack_q4(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q4 *m = ctx;
    for (uint64_t o = 0; o < 2; o++) {
        uint64_t row[8];
        uint64_t first[8]; /* flat index of group g0 of each row */
        _Alignas(32) float rung[8][CSN_Q4TP_RUNGS];
        for (uint64_t i = 0; i < 8; i++) {
            row[i] = r + o * 8 + i < r1 ? r + o * 8 + i : r1 - 1;
            first[i] = row[i] * m->gpr + g0;
        }
        if (m->params != NULL) {
            eight_ladders(m, row, rung);
        }
        for (uint64_t g = 0; g < ng; g++) {
            pack_nibbles(m, first, g, p->plane[g], o);
            for (int i = 0; i < 8; i++) {
                p->scale[g][o][i] =
                    m->params == NULL
                        ? csn_scale16(m->scale + (first[i] + g) * m->s_stride)
                        : rung[i][csn_q4tp_code(m->codes + row[i] * m->code_bytes, g0 + g)];
            }
        }
    }
}

void csn_matmul_i8_q4_block_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct q4 m = {.nib = w->data,
                         .scale = w->data + w->rows * x->n_groups * 16,
                         .stride = 16,
                         .s_stride = 2,
                         .gpr = x->n_groups,
                         .rows = w->rows};
    const struct few_kind kind = {.step = q4_block_step,
                                  .edge = q4_block_edge,
                                  .step_bytes = {32, 4},
                                  .row_bytes = {16 * m.gpr, 2 * m.gpr},
                                  .n_steps = m.gpr / 2,
                                  .has_edge = m.gpr % 2 != 0};
    if (n >= FEW) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4_block_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q4_tiled_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct q4 m = {.nib = w->data + 2,
                         .scale = w->data,
                         .stride = 18,
                         .s_stride = 18,
                         .gpr = x->n_groups,
                         .rows = w->rows};
    const struct few_kind kind = {.step = q4_tiled_step,
                                  .edge = q4_tiled_edge,
                                  .step_bytes = {36, 0},
                                  .row_bytes = {18 * m.gpr, 0},
                                  .n_steps = m.gpr / 2,
                                  .has_edge = m.gpr % 2 != 0};
    if (n >= FEW) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4_tiled_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q4tp_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    uint64_t gpr = x->n_groups;
    struct q4 m = {.nib = w->data,
                   .scale = w->data, /* not used */
                   .stride = 16,
                   .gpr = gpr,
                   .rows = w->rows,
                   .params = w->data + w->rows * gpr * 16,
                   .codes = w->data + w->rows * (gpr * 16 + 4),
                   .code_bytes = (5 * gpr + 7) / 8};
    const struct few_kind kind = {.step = q4tp_step,
                                  .edge = q4tp_edge,
                                  .unpack = q4tp_unpack,
                                  .step_bytes = {32, 8},
                                  .row_bytes = {16 * gpr, 0},
                                  .n_steps = gpr / 2,
                                  .has_edge = gpr % 2 != 0};
    if (n >= FEW) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS || gpr > MOST_GROUPS) {
        csn_matmul_i8_q4tp_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        _Alignas(32) float room[2 * FEW_ROWS * MOST_GROUPS];
        m.room = room;
        struct few_rows first = {{m.nib}, {NULL}};
        for (uint64_t k = 0; k < FEW_ROWS; k++) {
            first.scale[k] = (const uint8_t *)(room + k * padded_groups(gpr));
        }
        few_i8(&kind, &m, &first, x, n, y, y_stride, r0, r1);
    }
}
