/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by int8 tables (vq.h) for AVX-512 with VBMI, one vector and the
 * 64 rows of an index block at a time. A register holds 64 entries of a table: vpermb looks them up
 * for 64 rows, vpermi2b does so in two registers, and bit 7 of an index chooses between two of
 * these. Only intrinsics that SIMDe has: tests/kernels/test_vq_vbmi.c runs this file on any CPU. */
#include <immintrin.h>

#include "kernels/inline.h"
#include "kernels/ref/ref.h"

enum {
    BLOCK = CSN_VQ_BLOCK,
    ROWS = 1024, /* rows that meet the table of a span, at most 24 KiB, while it is in L1 */
    PLANES = 3   /* bytes of a row's indices, at most */
};

/* 16-bit lanes of 64 rows, modulo 2^16: sums of all bytes as words, and of the odd bytes by
 * themselves; what is left of the words are the even ones. */
struct sums {
    __m512i words, odd;
};

CSN_INLINE void add_bytes(struct sums *s, __m512i v) {
    s->words = _mm512_add_epi16(s->words, v);
    s->odd = _mm512_add_epi16(s->odd, _mm512_srli_epi16(v, 8));
}

/* Where byte `plane` of each row lies among the first 128 bytes of a block, and then among what was
 * found there followed by the third 64. */
struct places {
    uint8_t first[PLANES][BLOCK], second[PLANES][BLOCK];
};

static void find_places(uint64_t bytes, struct places *p) {
    for (uint64_t k = 0; k < bytes; k++) {
        for (uint64_t r = 0; r < BLOCK; r++) {
            const uint64_t at = bytes * r + k;
            p->first[k][r] = (uint8_t)(at % 128);
            p->second[k][r] = (uint8_t)(at < 128 ? r : 64 + at - 128);
        }
    }
}

/* The indices of a block, byte by byte: plane[k] has byte k of every row. */
CSN_INLINE void split(const uint8_t *p, uint64_t bytes, const struct places *places,
                      __m512i plane[PLANES]) {
    const __m512i a = _mm512_loadu_si512(p);
    const __m512i b = _mm512_loadu_si512(p + 64);
    CSN_UNROLL
    for (uint64_t k = 0; k < bytes; k++) {
        plane[k] = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(places->first[k]), b);
        if (bytes == 3) {
            plane[k] = _mm512_permutex2var_epi8(plane[k], _mm512_loadu_si512(places->second[k]),
                                                _mm512_loadu_si512(p + 128));
        }
    }
}

/* The low six bits count; shifts of 16 bits carry bits of the neighbour into other places. */
CSN_INLINE __m512i lookup64(const uint8_t *t, __m512i index) {
    return _mm512_permutexvar_epi8(index, _mm512_loadu_si512(t));
}

CSN_INLINE __m512i lookup256(const uint8_t *t, __m512i index) {
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(t), index, _mm512_loadu_si512(t + 64));
    const __m512i high =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(t + 128), index, _mm512_loadu_si512(t + 192));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

/* Bits of `a` where the mask has ones, of `b` elsewhere. */
CSN_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi64(mask, a, b, 0xCA);
}

/* Adds one position, whose indices are at p and whose table is at t. */
typedef void (*add_fn)(const uint8_t *p, const struct places *places, const uint8_t *t,
                       struct sums *sum);

CSN_INLINE void add_packed(const uint8_t *p, const struct places *places, const uint8_t *t,
                           struct sums *sum) {
    __m512i b[PLANES];
    split(p, 3, places, b);
    add_bytes(sum, lookup64(t, b[0]));
    add_bytes(sum, lookup64(t + 64, choose(_mm512_set1_epi8(3), _mm512_srli_epi16(b[0], 6),
                                           _mm512_slli_epi16(b[1], 2))));
    add_bytes(sum, lookup64(t + 128, choose(_mm512_set1_epi8(15), _mm512_srli_epi16(b[1], 4),
                                            _mm512_slli_epi16(b[2], 4))));
    add_bytes(sum, lookup64(t + 192, _mm512_srli_epi16(b[2], 2)));
}

CSN_INLINE void add_3_bytes(const uint8_t *p, const struct places *places, const uint8_t *t,
                            struct sums *sum) {
    __m512i b[PLANES];
    split(p, 3, places, b);
    CSN_UNROLL
    for (int s = 0; s < 3; s++) {
        add_bytes(sum, lookup256(t + 256 * s, b[s]));
    }
}

CSN_INLINE void add_2_bytes(const uint8_t *p, const struct places *places, const uint8_t *t,
                            struct sums *sum) {
    __m512i b[PLANES];
    split(p, 2, places, b);
    CSN_UNROLL
    for (int s = 0; s < 2; s++) {
        add_bytes(sum, lookup256(t + 256 * s, b[s]));
    }
}

/* acc [8] += scale * rows, not fused */
CSN_INLINE void add_rows(__m128i rows, float scale, float *acc) {
    __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(rows));
    f = _mm256_mul_ps(_mm256_set1_ps(scale), f);
    _mm256_storeu_ps(acc, _mm256_add_ps(_mm256_loadu_ps(acc), f));
}

/* acc [64] += scale * (sums - bias) */
CSN_INLINE void add_span(const struct sums *s, uint64_t bias, float scale, float *acc) {
    const __m512i b = _mm512_set1_epi16((short)bias);
    const __m512i odd = _mm512_sub_epi16(s->odd, b);
    const __m512i even =
        _mm512_sub_epi16(_mm512_sub_epi16(s->words, _mm512_slli_epi16(s->odd, 8)), b);
    const __m512i lo = _mm512_unpacklo_epi16(even, odd); /* rows 0 to 7, 16 to 23, ... */
    const __m512i hi = _mm512_unpackhi_epi16(even, odd);
    add_rows(_mm512_extracti32x4_epi32(lo, 0), scale, acc);
    add_rows(_mm512_extracti32x4_epi32(hi, 0), scale, acc + 8);
    add_rows(_mm512_extracti32x4_epi32(lo, 1), scale, acc + 16);
    add_rows(_mm512_extracti32x4_epi32(hi, 1), scale, acc + 24);
    add_rows(_mm512_extracti32x4_epi32(lo, 2), scale, acc + 32);
    add_rows(_mm512_extracti32x4_epi32(hi, 2), scale, acc + 40);
    add_rows(_mm512_extracti32x4_epi32(lo, 3), scale, acc + 48);
    add_rows(_mm512_extracti32x4_epi32(hi, 3), scale, acc + 56);
}

CSN_INLINE void apply(add_fn add, uint64_t bytes, const csn_vq_matrix *m, const void *table,
                      float *y, uint64_t r0, uint64_t r1) {
    const csn_vq_books *b = m->books;
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    const float *scales = csn_vq_scales(b, m->cols, table);
    struct places places;
    float acc[ROWS];
    find_places(bytes, &places);
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v0 = 0; v0 < nv; v0 += CSN_VQ_SPAN) {
            const uint64_t n = nv - v0 < CSN_VQ_SPAN ? nv - v0 : CSN_VQ_SPAN;
            for (uint64_t r = 0; r < rows; r += BLOCK) {
                const uint8_t *p = m->index + ((first + r) / BLOCK * nv + v0) * BLOCK * bytes;
                const uint8_t *t = (const uint8_t *)table + v0 * of_vector;
                struct sums sum = {_mm512_setzero_si512(), _mm512_setzero_si512()};
                for (uint64_t v = 0; v < n; v++, p += BLOCK * bytes, t += of_vector) {
                    for (uint64_t i = 0; i < bytes; i++) { /* the next block, for which it waits */
                        _mm_prefetch((const char *)((uintptr_t)p + BLOCK * (bytes * nv + i)),
                                     _MM_HINT_T0);
                    }
                    add(p, &places, t, &sum);
                }
                add_span(&sum, 128 * b->stages * n, scales[v0 / CSN_VQ_SPAN], acc + r);
            }
        }
        for (uint64_t r = 0; r < rows; r++) {
            y[first + r] = csn_f16_to_f32(csn_load_u16(m->scale + 2 * (first + r))) * acc[r];
        }
    }
}

void csn_vq_apply_i8_packed_vbmi(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != BLOCK) {
        csn_vq_apply_i8_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        apply(add_packed, 3, m, tables[i], y + i * y_stride, r0, r1);
    }
}

void csn_vq_apply_i8_bytes_vbmi(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint32_t stages = m->books->stages;
    if (m->block != BLOCK || (stages != 2 && stages != 3)) {
        csn_vq_apply_i8_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (stages == 3) {
            apply(add_3_bytes, 3, m, tables[i], y + i * y_stride, r0, r1);
        } else {
            apply(add_2_bytes, 2, m, tables[i], y + i * y_stride, r0, r1);
        }
    }
}
