/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q4_block, q4_tiled and q4tp (the files of ref/ say what they mean), AVX2.
 *
 * One vector: the low nibbles of two groups meet the even columns of x, the high ones the odd
 * columns (csn_x8.split), as unsigned codes; csn_x8.offset takes 8 * sum(x) away.
 * Eight groups of one row fill the eight lanes, so a row is read straight through.
 */
#include "kernels/x86/gemm_i8_avx2.h"
#include "quant/exp2_half.h"
#include "quant/q4tp.h"

enum {
    FEW = 4,     /* below this many vectors packing costs more than it gives */
    AHEAD = 4096 /* bytes of prefetch: the hardware one stops at the end of a page */
};

/* Group g of row r is the flat group r * gpr + g: 16 bytes at nib + flat * stride, and its f16 at
 * scale + flat * s_stride; q4tp: params and codes in place of scales. */
struct q4 {
    const uint8_t *nib, *scale;
    uint64_t stride, s_stride, gpr;
    const uint8_t *params, *codes;
    uint64_t code_bytes;
};

enum form { Q4_BLOCK, Q4_TILED, Q4TP };

/* Where one row's scales come from. */
struct row_scales {
    const uint8_t *p; /* f16 of group 0, or the row's code bytes */
    __m256 rung[4];   /* q4tp: the ladder */
};

/* ---- scales of up to eight groups ---- */

CSN_INLINE __m128i load_128(const uint8_t *p) {
    return _mm_loadu_si128((const void *)p);
}

/* Eight f16 at a distance of 18 bytes. 16 bytes from p + 16 k have the k-th one at word k: blends
 * collect them without a shuffle. Reads 128 bytes. */
CSN_INLINE __m128i collect_by_18(const uint8_t *p) {
    __m128i a = _mm_blend_epi16(load_128(p), load_128(p + 16), 1 << 1);
    __m128i b = _mm_blend_epi16(load_128(p + 32), load_128(p + 48), 1 << 3);
    __m128i c = _mm_blend_epi16(load_128(p + 64), load_128(p + 80), 1 << 5);
    __m128i d = _mm_blend_epi16(load_128(p + 96), load_128(p + 112), 1 << 7);
    return _mm_blend_epi32(_mm_blend_epi32(a, b, 1 << 1), _mm_blend_epi32(c, d, 1 << 3), 0xC);
}

CSN_INLINE __m256 f16_scales(const uint8_t *p, uint64_t step, uint64_t n) {
    if (n == 8) {
        return _mm256_cvtph_ps(step == 18 ? collect_by_18(p) : load_128(p));
    }
    uint16_t part[8] = {0};
    for (uint64_t k = 0; k < n; k++) {
        part[k] = csn_load16(p + k * step);
    }
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)part));
}

/* Eight codes of 5 bits are five bytes; the ladder is looked up in four pieces of eight rungs. */
CSN_INLINE __m256 ladder_scales(const struct row_scales *s, uint64_t g, uint64_t n) {
    uint64_t bits = 0;
    if (n == 8) {
        const uint8_t *p = s->p + g / 8 * 5;
        bits = (uint32_t)csn_load32(p) | (uint64_t)p[4] << 32;
    } else {
        memcpy(&bits, s->p + g / 8 * 5, (5 * n + 7) / 8);
    }
    __m256i v = _mm256_set1_epi64x((long long)bits);
    __m256 a = _mm256_castsi256_ps(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 5, 20, 25)));
    __m256 b = _mm256_castsi256_ps(_mm256_srlv_epi64(v, _mm256_setr_epi64x(10, 15, 30, 35)));
    __m256i code = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)); /* 0 1 2 3 | 4 5 6 7 */
    __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
    __m256 bit4 = _mm256_castsi256_ps(_mm256_slli_epi32(code, 27));
    __m256 low = _mm256_blendv_ps(_mm256_permutevar8x32_ps(s->rung[0], code),
                                  _mm256_permutevar8x32_ps(s->rung[1], code), bit3);
    __m256 high = _mm256_blendv_ps(_mm256_permutevar8x32_ps(s->rung[2], code),
                                   _mm256_permutevar8x32_ps(s->rung[3], code), bit3);
    __m256 all = _mm256_blendv_ps(low, high, bit4);
    const __m256i k = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), k);
    return _mm256_and_ps(all, _mm256_castsi256_ps(inside)); /* a rung may be infinite */
}

CSN_INLINE __m256 scales(enum form form, const struct row_scales *s, uint64_t g, uint64_t n) {
    uint64_t step = form == Q4_TILED ? 18 : 2;
    return form == Q4TP ? ladder_scales(s, g, n) : f16_scales(s->p + g * step, step, n);
}

/* The ladders of rows r to r + 7 (those past the last repeat it), as csn_q4tp_ladder makes them: 31
 * products one after the other, so eight rows go side by side. */
static void eight_ladders(const struct q4 *m, uint64_t r, uint64_t r1,
                          float rung[8][CSN_Q4TP_RUNGS]) {
    _Alignas(32) float first[8];
    _Alignas(32) float ratio[8];
    for (uint64_t i = 0; i < 8; i++) {
        const uint8_t *q = m->params + 4 * (r + i < r1 ? r + i : r1 - 1);
        first[i] = csn_exp2_half(csn_load16(q));
        ratio[i] = csn_exp2_half(csn_load16(q + 2));
    }
    __m256 t = _mm256_load_ps(first);
    for (int c = 0; c < CSN_Q4TP_RUNGS; c += 8) {
        __m256i v[8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = _mm256_castps_si256(t);
            t = _mm256_mul_ps(t, _mm256_load_ps(ratio));
        }
        csn_transpose8(v);
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            _mm256_store_si256((void *)(rung[i] + c), v[i]);
        }
    }
}

/* ---- one vector ---- */

/* The nibbles of two groups, 16 bytes at p and at p + stride. A load of 32 bytes that ends with the
 * second group and a blend do without a shuffle, of which there are enough. */
CSN_INLINE __m256i load_pair(const uint8_t *p, uint64_t stride) {
    __m256i second = csn_load256(p + stride - 16);
    return stride == 16 ? second
                        : _mm256_blend_epi32(_mm256_castsi128_si256(load_128(p)), second, 0xF0);
}

/* Partial sums of two groups in i16: the low half is the first, the high one the second. Each lane
 * is four products, at most 4 * 15 * 127 in size: four lanes may still be added in i16. */
CSN_INLINE __m256i dot_pair(__m256i n, const int8_t *split) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low = _mm256_and_si256(n, mask);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(n, 4), mask);
    return _mm256_add_epi16(_mm256_maddubs_epi16(low, csn_load256(split)),
                            _mm256_maddubs_epi16(high, csn_load256(split + 32)));
}

/* Four pairs give the sums of eight groups in the order 0 2 4 6 1 3 5 7; returns 0 to 7. */
CSN_INLINE __m256i sums_of_pairs(const __m256i v[4]) {
    __m256i a =
        _mm256_add_epi16(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i b =
        _mm256_add_epi16(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    __m256i s = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    return _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

CSN_INLINE __m256 add_groups(__m256 acc, const __m256i v[4], __m256 ws, const float *xs,
                             const int16_t *offset) {
    __m256i s = sums_of_pairs(v);
    s = _mm256_add_epi32(s, _mm256_madd_epi16(csn_load256(offset), _mm256_set1_epi16(1)));
    __m256 f = _mm256_mul_ps(_mm256_mul_ps(ws, _mm256_loadu_ps(xs)), _mm256_cvtepi32_ps(s));
    return _mm256_add_ps(acc, f);
}

/* The eight lanes of one row. */
CSN_INLINE __m256 row_lanes(enum form form, const uint8_t *nib, const struct row_scales *s,
                            uint64_t gpr, const int8_t *split, const float *xs,
                            const int16_t *offset) {
    const uint64_t stride = form == Q4_TILED ? 18 : 16;
    __m256 acc = _mm256_setzero_ps();
    __m256i v[4];
    uint64_t g = 0;
    for (; g + 8 <= gpr; g += 8) {
        const uint8_t *p = nib + g * stride;
        CSN_UNROLL
        for (uint64_t k = 0; k < 4; k++) {
            v[k] = dot_pair(load_pair(p + 2 * k * stride, stride), split + g * 32 + k * 64);
        }
        csn_prefetch(p, AHEAD);
        csn_prefetch(p, AHEAD + 64);
        if (form == Q4_TILED) {
            csn_prefetch(p, AHEAD + 128);
        }
        acc = add_groups(acc, v, scales(form, s, g, 8), xs + g, offset + 2 * g);
    }
    if (g < gpr) {
        const uint8_t *p = nib + g * stride;
        uint64_t n = gpr - g;
        CSN_UNROLL
        for (uint64_t k = 0; k < 4; k++) {
            const uint8_t *q = p + 2 * k * stride;
            if (2 * k + 1 < n) {
                v[k] = dot_pair(load_pair(q, stride), split + g * 32 + k * 64);
            } else if (2 * k < n) { /* codes of the second group of x are zero */
                v[k] = dot_pair(_mm256_zextsi128_si256(load_128(q)), split + g * 32 + k * 64);
            } else {
                v[k] = _mm256_setzero_si256();
            }
        }
        acc = add_groups(acc, v, scales(form, s, g, n), xs + g, offset + 2 * g);
    }
    return acc;
}

/* Scaled sums of groups g and g + 1 of rows r to r + 3 (csn_add_last_two); g is even. */
CSN_INLINE __m256 last_terms(enum form form, const struct q4 *m, uint64_t r, uint64_t g,
                             const int8_t *split, const float *xs, const int16_t *offset) {
    const uint64_t stride = form == Q4_TILED ? 18 : 16;
    const uint64_t s_stride = form == Q4_TILED ? 18 : 2;
    __m256i v[4];
    int32_t f16[4];
    CSN_UNROLL
    for (uint64_t k = 0; k < 4; k++) {
        uint64_t flat = (r + k) * m->gpr + g;
        const uint8_t *s = m->scale + flat * s_stride;
        v[k] = dot_pair(load_pair(m->nib + flat * stride, stride), split + g * 32);
        f16[k] = (int32_t)(csn_load16(s) | (uint32_t)csn_load16(s + s_stride) << 16);
    }
    __m256 ws = _mm256_cvtph_ps(_mm_setr_epi32(f16[0], f16[1], f16[2], f16[3]));
    int64_t both;
    memcpy(&both, offset + 2 * g, sizeof(both));
    __m256i off = _mm256_madd_epi16(_mm256_set1_epi64x(both), _mm256_set1_epi16(1));
    __m256i s = _mm256_add_epi32(sums_of_pairs(v), off);
    return _mm256_mul_ps(_mm256_mul_ps(ws, csn_two_scales(xs + g)), _mm256_cvtepi32_ps(s));
}

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
            eight_ladders(m, row[0], r1, rung);
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

CSN_INLINE struct row_scales scales_of_row(enum form form, const struct q4 *m, uint64_t r,
                                           const float *rung) {
    struct row_scales s = {.p = m->scale + r * m->gpr * m->s_stride};
    if (form == Q4TP) {
        s.p = m->codes + r * m->code_bytes;
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            s.rung[k] = _mm256_load_ps(rung + 8 * k);
        }
    }
    return s;
}

CSN_INLINE void matmul(enum form form, const struct q4 *m, const csn_x8 *x, uint64_t n, float *y,
                       uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n >= FEW) {
        gemm_i8(pack_q4, m, false, NULL, x, n, y, y_stride, r0, r1);
        return;
    }
    _Alignas(32) float rung[8][CSN_Q4TP_RUNGS];
    for (uint64_t b = r0; b < r1; b += 8) {
        uint64_t b1 = r1 - b < 8 ? r1 : b + 8;
        if (form == Q4TP) {
            eight_ladders(m, b, b1, rung);
        }
        for (uint64_t t = 0; t < n; t++) {
            const int8_t *split = x->split + t * x->q_stride;
            const float *xs = x->scale + t * x->g_stride;
            const int16_t *offset = x->offset + t * x->g_stride * 2;
            bool last_two = form != Q4TP && m->gpr % 8 == 2 && b1 - b == 8;
            __m256 lanes[8];
            for (uint64_t i = 0; i < 8; i++) {
                uint64_t r = b + i < b1 ? b + i : b;
                struct row_scales s = scales_of_row(form, m, r, rung[r - b]);
                lanes[i] = row_lanes(form, m->nib + r * m->gpr * m->stride, &s,
                                     last_two ? m->gpr - 2 : m->gpr, split, xs, offset);
            }
            csn_lanes_of_rows(lanes);
            if (last_two) {
                uint64_t g = m->gpr - 2;
                csn_add_last_two(lanes, last_terms(form, m, b, g, split, xs, offset),
                                 last_terms(form, m, b + 4, g, split, xs, offset));
            }
            csn_store_rows(y + t * y_stride + b, csn_tree_of_lanes(lanes), b1 - b);
        }
    }
}

void csn_matmul_i8_q4_block_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct q4 m = {.nib = w->data,
                         .scale = w->data + w->rows * x->n_groups * 16,
                         .stride = 16,
                         .s_stride = 2,
                         .gpr = x->n_groups};
    matmul(Q4_BLOCK, &m, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4_tiled_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct q4 m = {
        .nib = w->data + 2, .scale = w->data, .stride = 18, .s_stride = 18, .gpr = x->n_groups};
    matmul(Q4_TILED, &m, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4tp_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    uint64_t gpr = x->n_groups;
    const struct q4 m = {.nib = w->data,
                         .scale = w->data, /* not used */
                         .stride = 16,
                         .gpr = gpr,
                         .params = w->data + w->rows * gpr * 16,
                         .codes = w->data + w->rows * (gpr * 16 + 4),
                         .code_bytes = (5 * gpr + 7) / 8};
    matmul(Q4TP, &m, x, n, y, y_stride, r0, r1);
}
