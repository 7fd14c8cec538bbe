/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by int8 tables (vq.h) for AVX-512 with VBMI. A register holds
 * 64 entries of a table: vpermb looks them up for 64 rows, vpermi2b does so in two registers, and
 * bit 7 of an index chooses between two of these. */
#include "kernels/x86/vq_vbmi.h"

enum {
    BLOCK = CSN_VQ_BLOCK,
    SIDE = 4,     /* blocks side by side: they share the loads of a table, and each is read from end
                   * to end, which the CPU foresees */
    AHEAD = 2048, /* bytes: how far it does not look by itself */
    BATCH = 16    /* vectors that meet the indices of a span */
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

/* Bits of `a` where the mask has ones, of `b` elsewhere. */
CSN_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi64(mask, a, b, 0xCA);
}

/* Adds one position of `side` blocks of rows, `stride` bytes apart, to their sums. */
typedef void (*add_fn)(const uint8_t *p, uint64_t stride, int side, const struct csn_places *places,
                       const uint8_t *t, struct sums *sum);

CSN_INLINE void add_packed(const uint8_t *p, uint64_t stride, int side,
                           const struct csn_places *places, const uint8_t *t, struct sums *sum) {
    __m512i table[4];
    CSN_UNROLL
    for (int s = 0; s < 4; s++) {
        table[s] = _mm512_loadu_si512(t + 64 * s);
    }
    CSN_UNROLL
    for (int b = 0; b < side; b++) {
        __m512i byte[CSN_VQ_PLANES];
        CSN_UNROLL
        for (uint64_t k = 0; k < CSN_VQ_PLANES; k++) {
            byte[k] = csn_plane(p + (uint64_t)b * stride, 3, k, places);
        }
        /* six bits count; shifts of 16 bits carry bits of the neighbour into the others */
        const __m512i index[4] = {byte[0],
                                  choose(_mm512_set1_epi8(3), _mm512_srli_epi16(byte[0], 6),
                                         _mm512_slli_epi16(byte[1], 2)),
                                  choose(_mm512_set1_epi8(15), _mm512_srli_epi16(byte[1], 4),
                                         _mm512_slli_epi16(byte[2], 4)),
                                  _mm512_srli_epi16(byte[2], 2)};
        CSN_UNROLL
        for (int s = 0; s < 4; s++) {
            add_bytes(&sum[b], _mm512_permutexvar_epi8(index[s], table[s]));
        }
    }
}

CSN_INLINE void add_stages(const uint8_t *p, uint64_t stride, int side, uint64_t stages,
                           const struct csn_places *places, const uint8_t *t, struct sums *sum) {
    CSN_UNROLL
    for (uint64_t s = 0; s < stages; s++, t += 256) {
        const __m512i t0 = _mm512_loadu_si512(t);
        const __m512i t1 = _mm512_loadu_si512(t + 64);
        const __m512i t2 = _mm512_loadu_si512(t + 128);
        const __m512i t3 = _mm512_loadu_si512(t + 192);
        CSN_UNROLL
        for (int b = 0; b < side; b++) {
            const __m512i i = csn_plane(p + (uint64_t)b * stride, stages, s, places);
            add_bytes(&sum[b], _mm512_mask_blend_epi8(_mm512_movepi8_mask(i),
                                                      _mm512_permutex2var_epi8(t0, i, t1),
                                                      _mm512_permutex2var_epi8(t2, i, t3)));
        }
    }
}

CSN_INLINE void add_3_bytes(const uint8_t *p, uint64_t stride, int side,
                            const struct csn_places *places, const uint8_t *t, struct sums *sum) {
    add_stages(p, stride, side, 3, places, t, sum);
}

CSN_INLINE void add_2_bytes(const uint8_t *p, uint64_t stride, int side,
                            const struct csn_places *places, const uint8_t *t, struct sums *sum) {
    add_stages(p, stride, side, 2, places, t, sum);
}

/* acc [8] += scale * rows, not fused */
CSN_INLINE void add_rows(__m128i rows, float scale, float *acc) {
    __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(rows));
    f = _mm256_mul_ps(_mm256_set1_ps(scale), f);
    _mm256_storeu_ps(acc, _mm256_add_ps(_mm256_loadu_ps(acc), f));
}

/* acc [64] += scale * (sums - bias) */
CSN_INLINE void add_sums(const struct sums *s, uint64_t bias, float scale, float *acc) {
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

/* acc += what `side` blocks of rows, from r on, look up at n positions of a span, from v0 on. */
CSN_INLINE void add_span(add_fn add, const csn_vq_matrix *m, uint64_t bytes, int side,
                         const struct csn_places *places, const void *table, uint64_t v0,
                         uint64_t n, uint64_t r, float *acc) {
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t of_vector = m->books->stages * csn_vq_slots(m->books);
    const uint64_t stride = BLOCK * bytes * nv;
    const uint8_t *p = m->index + (r / BLOCK * nv + v0) * BLOCK * bytes;
    const uint8_t *t = (const uint8_t *)table + v0 * of_vector;
    const float scale = csn_vq_scales(m->books, m->cols, table)[v0 / CSN_VQ_SPAN];
    struct sums sum[SIDE];
    CSN_UNROLL
    for (int b = 0; b < side; b++) {
        sum[b] = (struct sums){_mm512_setzero_si512(), _mm512_setzero_si512()};
    }
    for (uint64_t v = 0; v < n; v++, p += BLOCK * bytes, t += of_vector) {
        CSN_UNROLL
        for (int b = 0; b < side; b++) {
            CSN_UNROLL
            for (uint64_t i = 0; i < bytes; i++) {
                csn_ask(p, (uint64_t)b * stride + AHEAD + 64 * i, _MM_HINT_T1);
            }
        }
        add(p, stride, side, places, t, sum);
    }
    CSN_UNROLL
    for (int b = 0; b < side; b++) {
        add_sums(&sum[b], 128 * m->books->stages * n, scale, acc + BLOCK * b);
    }
}

/* Rows [r, r + rows), at most SIDE blocks of them. */
CSN_INLINE void apply_rows(add_fn add, const csn_vq_matrix *m, uint64_t bytes,
                           const struct csn_places *places, const void *const *tables, uint64_t n,
                           float *y, uint64_t y_stride, uint64_t r, uint64_t rows) {
    _Alignas(64) float acc[BATCH][SIDE * BLOCK];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    memset(acc, 0, n * sizeof(acc[0]));
    for (uint64_t v = 0; v < nv; v += CSN_VQ_SPAN) {
        const uint64_t n_v = nv - v < CSN_VQ_SPAN ? nv - v : CSN_VQ_SPAN;
        for (uint64_t i = 0; i < n; i++) {
            if (rows > (SIDE - 1) * BLOCK) {
                add_span(add, m, bytes, SIDE, places, tables[i], v, n_v, r, acc[i]);
                continue;
            }
            for (uint64_t k = 0; k < rows; k += BLOCK) {
                add_span(add, m, bytes, 1, places, tables[i], v, n_v, r + k, acc[i] + k);
            }
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < rows; k++) {
            y[i * y_stride + r + k] =
                csn_f16_to_f32(csn_load_u16(m->scale + 2 * (r + k))) * acc[i][k];
        }
    }
}

CSN_INLINE void apply(add_fn add, const csn_vq_matrix *m, uint64_t bytes, const void *const *tables,
                      uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    struct csn_places places;
    csn_find_places(bytes, false, &places);
    for (uint64_t i = 0; i < n; i += BATCH) {
        const uint64_t n_i = n - i < BATCH ? n - i : BATCH;
        for (uint64_t r = r0; r < r1; r += SIDE * BLOCK) {
            const uint64_t rows = r1 - r < SIDE * BLOCK ? r1 - r : SIDE * BLOCK;
            apply_rows(add, m, bytes, &places, tables + i, n_i, y + i * y_stride, y_stride, r,
                       rows);
        }
    }
}

void csn_vq_apply_i8_packed_vbmi(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block == BLOCK) {
        apply(add_packed, m, 3, tables, n, y, y_stride, r0, r1);
    } else {
        csn_vq_apply_i8_packed_avx2(m, tables, n, y, y_stride, r0, r1);
    }
}

void csn_vq_apply_i8_bytes_vbmi(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint32_t stages = m->books->stages;
    if (m->block == BLOCK && stages == 3) {
        apply(add_3_bytes, m, 3, tables, n, y, y_stride, r0, r1);
    } else if (m->block == BLOCK && stages == 2) {
        apply(add_2_bytes, m, 2, tables, n, y, y_stride, r0, r1);
    } else {
        csn_vq_apply_i8_bytes_avx2(m, tables, n, y, y_stride, r0, r1);
    }
}
