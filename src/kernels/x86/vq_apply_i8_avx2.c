/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by int8 tables (vq.h) for AVX2.
 *
 * Few vectors: the table of a stage is 4 or 16 registers of 16 bytes, each looked up for twice 32
 * rows by vpshufb with the low four bits of their indices; the higher bits choose among the
 * results. Bytes are summed as 16-bit words, and the odd ones once more by themselves: what is left
 * of the words are the even ones.
 *
 * Many vectors: their tables are joined, so that one load gives what an index means for 8 or 16 of
 * them. */
#include "kernels/x86/i8_avx2.h"

enum {
    FEW_ROWS = 1024,  /* rows that meet the table of a span, at most 24 KiB, while it is in L1 */
    BATCH = 16,       /* vectors whose tables are joined */
    BATCH_ROWS = 1024 /* rows that meet a joined table */
};

/* ---- few vectors: 64 rows, arrays [2] are their halves ---- */

struct sums { /* 16-bit lanes, modulo 2^16 */
    __m256i words;
    __m256i odd;
};

CSN_INLINE void add_bytes(struct sums s[2], const __m256i v[2]) {
    CSN_UNROLL
    for (int h = 0; h < 2; h++) {
        s[h].words = _mm256_add_epi16(s[h].words, v[h]);
        s[h].odd = _mm256_add_epi16(s[h].odd, _mm256_srli_epi16(v[h], 8));
    }
}

CSN_INLINE __m256i table16(const uint8_t *t) {
    return _mm256_broadcastsi128_si256(_mm_load_si128((const void *)t));
}

/* Bytes of `yes` where the highest bit of the mask's byte is set. As an intrinsic GCC 12 compares
 * each mask with zero first. */
CSN_INLINE __m256i pick(__m256i no, __m256i yes, __m256i mask) {
    __m256i r;
    __asm__("vpblendvb %3, %2, %1, %0" : "=x"(r) : "x"(no), "x"(yes), "x"(mask));
    return r;
}

CSN_INLINE void pick_both(const __m256i no[2], const __m256i yes[2], const __m256i mask[2],
                          __m256i ret[2]) {
    ret[0] = pick(no[0], yes[0], mask[0]);
    ret[1] = pick(no[1], yes[1], mask[1]);
}

CSN_INLINE void lookup16(const uint8_t *t, const __m256i low[2], __m256i ret[2]) {
    const __m256i table = table16(t);
    ret[0] = _mm256_shuffle_epi8(table, low[0]);
    ret[1] = _mm256_shuffle_epi8(table, low[1]);
}

CSN_INLINE void lookup32(const uint8_t *t, const __m256i low[2], const __m256i bit4[2],
                         __m256i ret[2]) {
    __m256i a[2];
    __m256i b[2];
    lookup16(t, low, a);
    lookup16(t + 16, low, b);
    pick_both(a, b, bit4, ret);
}

/* Of 64 entries: low four bits, and the two above as masks. Zero where bit 7 of `low` is set. */
CSN_INLINE void lookup64(const uint8_t *t, const __m256i low[2], const __m256i bit4[2],
                         const __m256i bit5[2], __m256i ret[2]) {
    __m256i a[2];
    __m256i b[2];
    lookup32(t, low, bit4, a);
    lookup32(t + 32, low, bit4, b);
    pick_both(a, b, bit5, ret);
}

/* Bits shifted left by one. Shifts would take a port of the shuffles. */
CSN_INLINE __m256i doubled(__m256i v) {
    return _mm256_add_epi8(v, v);
}

CSN_INLINE void lookup128(const uint8_t *t, const __m256i index[2], const __m256i bit4[2],
                          const __m256i bit5[2], __m256i ret[2]) {
    __m256i a[2];
    __m256i b[2];
    lookup64(t, index, bit4, bit5, a);
    lookup64(t + 64, index, bit4, bit5, b);
    const __m256i bit6[2] = {doubled(index[0]), doubled(index[1])};
    pick_both(a, b, bit6, ret);
}

CSN_INLINE void lookup256(const uint8_t *t, const __m256i index[2], __m256i ret[2]) {
    __m256i bit4[2];
    __m256i bit5[2];
    __m256i a[2];
    __m256i b[2];
    CSN_UNROLL
    for (int h = 0; h < 2; h++) {
        bit5[h] = doubled(doubled(index[h]));
        bit4[h] = doubled(bit5[h]);
    }
    lookup128(t, index, bit4, bit5, a);
    const __m256i flip = _mm256_set1_epi8(-128);
    const __m256i upper[2] = {_mm256_xor_si256(index[0], flip), _mm256_xor_si256(index[1], flip)};
    lookup128(t + 128, upper, bit4, bit5, b);
    ret[0] = _mm256_or_si256(a[0], b[0]);
    ret[1] = _mm256_or_si256(a[1], b[1]);
}

/* Every third byte of 96, from byte k on, k = 0, 1, 2: in the 16 bytes at 0, 16 and 32 of each half
 * these stand at different places modulo 3. */
CSN_INLINE void planes_of_3(const uint8_t *p, __m256i plane[3]) {
    __m256i v[3];
    CSN_UNROLL
    for (int i = 0; i < 3; i++) {
        v[i] = _mm256_blend_epi32(csn_load256(p + 16 * i), csn_load256(p + 32 + 16 * i), 0xf0);
    }
    const __m256i third[3] = {/* places 0, 1 and 2 modulo 3 */
                              _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 0, 0, -1, 0, 0, -1, 0,
                                                                        0, -1, 0, 0, -1, 0, 0, -1)),
                              _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 0, 0, -1, 0, 0, -1,
                                                                        0, 0, -1, 0, 0, -1, 0, 0)),
                              _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                  0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0))};
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13));
    CSN_UNROLL
    for (int k = 0; k < 3; k++) {
        /* byte 3 r + k of 48 is at k of v[0], at k + 2 of v[1] and at k + 1 of v[2], modulo 3 */
        __m256i mixed = pick(pick(v[0], v[1], third[(k + 2) % 3]), v[2], third[(k + 1) % 3]);
        __m256i from = _mm256_add_epi8(order, _mm256_set1_epi8((char)k));
        plane[k] = _mm256_shuffle_epi8(mixed, _mm256_and_si256(from, _mm256_set1_epi8(15)));
    }
}

CSN_INLINE void add_packed(const uint8_t *p, const uint8_t *t, struct sums sum[2]) {
    const __m256i low4 = _mm256_set1_epi8(15);
    __m256i b[2][3];
    __m256i low[4][2];
    __m256i bit4[4][2];
    __m256i bit5[4][2];
    CSN_UNROLL
    for (int h = 0; h < 2; h++) {
        planes_of_3(p + 96 * h, b[h]);
        /* shifts of 16 bits carry bits of the neighbour into places that nobody looks at */
        low[0][h] = _mm256_and_si256(b[h][0], low4);
        bit4[0][h] = _mm256_slli_epi16(b[h][0], 3);
        bit5[0][h] = _mm256_slli_epi16(b[h][0], 2);
        low[1][h] =
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b[h][0], 6), _mm256_set1_epi8(3)),
                            _mm256_and_si256(_mm256_slli_epi16(b[h][1], 2), _mm256_set1_epi8(12)));
        bit4[1][h] = _mm256_slli_epi16(b[h][1], 5);
        bit5[1][h] = _mm256_slli_epi16(b[h][1], 4);
        low[2][h] = _mm256_and_si256(_mm256_srli_epi16(b[h][1], 4), low4);
        bit4[2][h] = _mm256_slli_epi16(b[h][2], 7);
        bit5[2][h] = _mm256_slli_epi16(b[h][2], 6);
        low[3][h] = _mm256_and_si256(_mm256_srli_epi16(b[h][2], 2), low4);
        bit4[3][h] = doubled(b[h][2]);
        bit5[3][h] = b[h][2];
    }
    CSN_UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i v[2];
        lookup64(t + 64 * s, low[s], bit4[s], bit5[s], v);
        add_bytes(sum, v);
    }
}

CSN_INLINE void add_3_bytes(const uint8_t *p, const uint8_t *t, struct sums sum[2]) {
    __m256i b[2][3];
    planes_of_3(p, b[0]);
    planes_of_3(p + 96, b[1]);
    CSN_UNROLL
    for (int s = 0; s < 3; s++) {
        const __m256i index[2] = {b[0][s], b[1][s]};
        __m256i v[2];
        lookup256(t + 256 * s, index, v);
        add_bytes(sum, v);
    }
}

CSN_INLINE void add_2_bytes(const uint8_t *p, const uint8_t *t, struct sums sum[2]) {
    const __m256i even = _mm256_set1_epi16(255);
    __m256i first[2];
    __m256i second[2];
    CSN_UNROLL
    for (int h = 0; h < 2; h++, p += 64) {
        /* halves so that packing leaves rows in order */
        __m256i v[2];
        CSN_UNROLL
        for (int i = 0; i < 2; i++) {
            v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(csn_load128(p + 16 * i)),
                                           csn_load128(p + 32 + 16 * i), 1);
        }
        first[h] = _mm256_packus_epi16(_mm256_and_si256(v[0], even), _mm256_and_si256(v[1], even));
        second[h] = _mm256_packus_epi16(_mm256_srli_epi16(v[0], 8), _mm256_srli_epi16(v[1], 8));
    }
    __m256i r[2];
    lookup256(t, first, r);
    add_bytes(sum, r);
    lookup256(t + 256, second, r);
    add_bytes(sum, r);
}

/* acc[32] += scale * (sums - bias) */
CSN_INLINE void add_span(const struct sums *s, uint64_t bias, float scale, float *acc) {
    const __m256i b = _mm256_set1_epi16((short)bias);
    __m256i even = _mm256_sub_epi16(_mm256_sub_epi16(s->words, _mm256_slli_epi16(s->odd, 8)), b);
    __m256i odd = _mm256_sub_epi16(s->odd, b);
    __m256i lo = _mm256_unpacklo_epi16(even, odd); /* rows 0 to 7, 16 to 23 */
    __m256i hi = _mm256_unpackhi_epi16(even, odd);
    const __m128i part[4] = {_mm256_castsi256_si128(lo), _mm256_castsi256_si128(hi),
                             _mm256_extracti128_si256(lo, 1), _mm256_extracti128_si256(hi, 1)};
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(part[k]));
        f = _mm256_mul_ps(_mm256_set1_ps(scale), f);
        _mm256_store_ps(acc + 8 * k, _mm256_add_ps(_mm256_load_ps(acc + 8 * k), f));
    }
}

typedef void (*add_fn)(const uint8_t *p, const uint8_t *t, struct sums sum[2]);

CSN_INLINE void apply_few(add_fn add, uint64_t bytes, const csn_vq_matrix *m, const void *table,
                          float *y, uint64_t r0, uint64_t r1) {
    _Alignas(32) float acc[FEW_ROWS];
    const csn_vq_books *b = m->books;
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t of_block = CSN_VQ_BLOCK * bytes;
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    const float *scales = csn_vq_scales(b, m->cols, table);
    for (uint64_t first = r0; first < r1; first += FEW_ROWS) {
        const uint64_t rows = r1 - first < FEW_ROWS ? r1 - first : FEW_ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v0 = 0; v0 < nv; v0 += CSN_VQ_SPAN) {
            const uint64_t n = nv - v0 < CSN_VQ_SPAN ? nv - v0 : CSN_VQ_SPAN;
            for (uint64_t i = 0; i < rows; i += CSN_VQ_BLOCK) {
                const uint8_t *p = m->index + ((first + i) / CSN_VQ_BLOCK * nv + v0) * of_block;
                const uint8_t *t = (const uint8_t *)table + v0 * of_vector;
                struct sums sum[2] = {{_mm256_setzero_si256(), _mm256_setzero_si256()},
                                      {_mm256_setzero_si256(), _mm256_setzero_si256()}};
                for (uint64_t v = 0; v < n; v++, p += of_block, t += of_vector) {
                    CSN_UNROLL
                    for (uint64_t k = 0; k < of_block; k += 64) {
                        csn_prefetch(p, of_block * nv + k); /* the next rows that are read */
                    }
                    add(p, t, sum);
                }
                const float scale = scales[v0 / CSN_VQ_SPAN];
                add_span(&sum[0], 128 * b->stages * n, scale, acc + i);
                add_span(&sum[1], 128 * b->stages * n, scale, acc + i + CSN_VQ_BLOCK / 2);
            }
        }
        for (uint64_t i = 0; i < rows; i++) {
            y[first + i] = csn_scale16(m->scale + 2 * (first + i)) * acc[i];
        }
    }
}

CSN_OUTLINE void few_packed(const csn_vq_matrix *m, const void *table, float *y, uint64_t r0,
                            uint64_t r1) {
    apply_few(add_packed, 3, m, table, y, r0, r1);
}

CSN_OUTLINE void few_3_bytes(const csn_vq_matrix *m, const void *table, float *y, uint64_t r0,
                             uint64_t r1) {
    apply_few(add_3_bytes, 3, m, table, y, r0, r1);
}

CSN_OUTLINE void few_2_bytes(const csn_vq_matrix *m, const void *table, float *y, uint64_t r0,
                             uint64_t r1) {
    apply_few(add_2_bytes, 2, m, table, y, r0, r1);
}

/* ---- many vectors ---- */

/* Bytes of eight tables, n of each (a multiple of 32): those of entry i to out[i * width].
 * Unpacking vectors k and k + 4 moves the highest bit of k below the bits of the place in the
 * vector; when that was done for all bits of k they are the lowest. */
CSN_INLINE void join(const uint8_t *const t[8], uint64_t n, int width, uint8_t *out) {
    for (uint64_t i = 0; i < n; i += 32) {
        __m256i v[8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = csn_load256(t[k] + i);
        }
        CSN_UNROLL
        for (int bit = 0; bit < 3; bit++) {
            __m256i w[8];
            CSN_UNROLL
            for (int k = 0; k < 4; k++) {
                w[2 * k] = _mm256_unpacklo_epi8(v[k], v[k + 4]);
                w[2 * k + 1] = _mm256_unpackhi_epi8(v[k], v[k + 4]);
            }
            memcpy(v, w, sizeof(v));
        }
        CSN_UNROLL
        for (int k = 0; k < 8; k++) { /* entries 2 k and 2 k + 1 of each half */
            const __m128i half[2] = {_mm256_castsi256_si128(v[k]),
                                     _mm256_extracti128_si256(v[k], 1)};
            CSN_UNROLL
            for (int h = 0; h < 2; h++) {
                uint8_t *to = out + (i + 16 * (uint64_t)h + 2 * (uint64_t)k) * (uint64_t)width;
                if (width == 8) {
                    _mm_store_si128((void *)to, half[h]);
                } else {
                    _mm_storel_epi64((void *)to, half[h]);
                    _mm_storeh_pd((void *)(to + width), _mm_castsi128_pd(half[h]));
                }
            }
        }
    }
}

CSN_INLINE __m256i widen(const uint8_t *t, int width) { /* 8 or 16 bytes to 16-bit lanes */
    return width == 8 ? _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)t)))
                      : _mm256_cvtepu8_epi16(csn_load128(t));
}

/* Adds what n rows look up in the joined table of one vector position; sum [n][BATCH]. */
CSN_INLINE void add_rows(const uint8_t *p, uint64_t n, const uint8_t *joined, int width,
                         uint64_t stages, bool is_packed, uint16_t (*sum)[BATCH]) {
    for (uint64_t r = 0; r < n; r++) {
        __m256i *at = (void *)sum[r];
        __m256i s = _mm256_load_si256(at);
        if (is_packed) {
            uint32_t w = csn_load16(p) | (uint32_t)p[2] << 16;
            p += 3;
            CSN_UNROLL
            for (int k = 0; k < 4; k++) {
                uint64_t i = (w >> 6 * k & 63u) + 64 * (uint64_t)k;
                s = _mm256_add_epi16(s, widen(joined + i * (uint64_t)width, width));
            }
        } else {
            CSN_UNROLL
            for (uint64_t k = 0; k < stages; k++) {
                uint64_t i = p[k] + 256 * k;
                s = _mm256_add_epi16(s, widen(joined + i * (uint64_t)width, width));
            }
            p += stages;
        }
        _mm256_store_si256(at, s);
    }
}

struct batch {
    const csn_vq_matrix *m;
    const uint8_t *tables[BATCH]; /* the first again where there are fewer */
    uint64_t r0, n_rows;          /* r0 a multiple of 64 */
};

/* Sums of vector positions [v0, v1) for the rows of a batch. */
CSN_INLINE void sum_span(const struct batch *b, uint64_t v0, uint64_t v1, int width,
                         uint64_t stages, bool is_packed, uint16_t (*sum)[BATCH]) {
    _Alignas(64) uint8_t joined[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * BATCH];
    const csn_vq_books *books = b->m->books;
    const uint64_t nv = b->m->cols / CSN_VQ_DIM;
    const uint64_t bytes = csn_vq_vector_bytes(books);
    const uint64_t of_vector = stages * csn_vq_slots(books);
    memset(sum, 0, b->n_rows * sizeof(sum[0]));
    for (uint64_t v = v0; v < v1; v++) {
        const uint8_t *t[BATCH];
        for (int k = 0; k < width; k++) {
            t[k] = b->tables[k] + v * of_vector;
        }
        for (int k = 0; k < width; k += 8) {
            join(t + k, of_vector, width, joined + k);
        }
        for (uint64_t r = 0; r < b->n_rows; r += 64) {
            const uint64_t n = b->n_rows - r < 64 ? b->n_rows - r : 64;
            const uint8_t *p = b->m->index + ((b->r0 + r) / 64 * nv + v) * 64 * bytes;
            add_rows(p, n, joined, width, stages, is_packed, sum + r);
        }
    }
}

CSN_OUTLINE void sum_span_8(const struct batch *b, uint64_t v0, uint64_t v1,
                            uint16_t (*sum)[BATCH]) {
    switch (b->m->books->is_packed ? 0 : b->m->books->stages) {
    case 0: sum_span(b, v0, v1, 8, 4, true, sum); break;
    case 2: sum_span(b, v0, v1, 8, 2, false, sum); break;
    case 3: sum_span(b, v0, v1, 8, 3, false, sum); break;
    default: sum_span(b, v0, v1, 8, b->m->books->stages, false, sum); break;
    }
}

CSN_OUTLINE void sum_span_16(const struct batch *b, uint64_t v0, uint64_t v1,
                             uint16_t (*sum)[BATCH]) {
    switch (b->m->books->is_packed ? 0 : b->m->books->stages) {
    case 0: sum_span(b, v0, v1, 16, 4, true, sum); break;
    case 2: sum_span(b, v0, v1, 16, 2, false, sum); break;
    case 3: sum_span(b, v0, v1, 16, 3, false, sum); break;
    default: sum_span(b, v0, v1, 16, b->m->books->stages, false, sum); break;
    }
}

/* y[i * y_stride + r] for the rows of a batch and its first n vectors. */
static void apply_batch(const struct batch *b, uint64_t n, float *y, uint64_t y_stride) {
    _Alignas(64) uint16_t sum[BATCH_ROWS][BATCH];
    _Alignas(64) float acc[BATCH_ROWS][BATCH];
    const csn_vq_matrix *m = b->m;
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    memset(acc, 0, b->n_rows * sizeof(acc[0]));
    for (uint64_t v0 = 0; v0 < nv; v0 += CSN_VQ_SPAN) {
        const uint64_t v1 = nv - v0 < CSN_VQ_SPAN ? nv : v0 + CSN_VQ_SPAN;
        const int32_t bias = (int32_t)(128 * m->books->stages * (v1 - v0));
        _Alignas(32) float scale[BATCH];
        for (int k = 0; k < BATCH; k++) {
            scale[k] = csn_vq_scales(m->books, m->cols, b->tables[k])[v0 / CSN_VQ_SPAN];
        }
        (n > 8 ? sum_span_16 : sum_span_8)(b, v0, v1, sum);
        for (uint64_t r = 0; r < b->n_rows; r++) {
            for (int k = 0; k < BATCH; k++) {
                acc[r][k] += scale[k] * (float)((int32_t)sum[r][k] - bias);
            }
        }
    }
    for (uint64_t r = 0; r < b->n_rows; r++) {
        const float s = csn_scale16(m->scale + 2 * (b->r0 + r));
        for (uint64_t k = 0; k < n; k++) {
            y[k * y_stride + b->r0 + r] = s * acc[r][k];
        }
    }
}

static void apply_many(const csn_vq_matrix *m, const void *const *tables, uint64_t n, float *y,
                       uint64_t y_stride, uint64_t r0, uint64_t r1) {
    struct batch b = {.m = m};
    for (int k = 0; k < BATCH; k++) {
        b.tables[k] = tables[(uint64_t)k < n ? k : 0];
    }
    for (uint64_t r = r0; r < r1; r += BATCH_ROWS) {
        b.r0 = r;
        b.n_rows = r1 - r < BATCH_ROWS ? r1 - r : BATCH_ROWS;
        apply_batch(&b, n, y, y_stride);
    }
}

/* ---- the rows of kernels.def ---- */

typedef void (*few_fn)(const csn_vq_matrix *m, const void *table, float *y, uint64_t r0,
                       uint64_t r1);

/* few: NULL where there is none for these books; from `many` vectors on joining is faster. */
static void apply(few_fn few, uint64_t many, const csn_vq_matrix *m, const void *const *tables,
                  uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != CSN_VQ_BLOCK) {
        csn_vq_apply_i8_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    uint64_t i = 0;
    for (; n - i >= many; i += n - i < BATCH ? n - i : BATCH) {
        uint64_t ni = n - i < BATCH ? n - i : BATCH;
        apply_many(m, tables + i, ni, y + i * y_stride, y_stride, r0, r1);
    }
    for (; i < n; i++) {
        if (few != NULL) {
            few(m, tables[i], y + i * y_stride, r0, r1);
        } else {
            csn_vq_apply_i8_any_ref(m, tables + i, 1, y + i * y_stride, y_stride, r0, r1);
        }
    }
}

void csn_vq_apply_i8_packed_avx2(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(few_packed, 7, m, tables, n, y, y_stride, r0, r1);
}

void csn_vq_apply_i8_bytes_avx2(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    few_fn few = m->books->stages == 3 ? few_3_bytes : m->books->stages == 2 ? few_2_bytes : NULL;
    apply(few, 4, m, tables, n, y, y_stride, r0, r1);
}
