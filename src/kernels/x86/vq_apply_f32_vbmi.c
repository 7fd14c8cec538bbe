/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by f32 tables (vq.h) for AVX-512 with VBMI. The table of a
 * stage is cut into four planes of 256 bytes; each is four registers, in which two instructions
 * look up a byte for 64 rows, and unpacking joins what the planes gave. */
#include "kernels/x86/vq_vbmi.h"

enum {
    BATCH = 4,   /* vectors that meet the indices of a position */
    ROWS = 2304, /* rows that meet the table of a stage while it is in registers */
    MOST_STAGES = 3,
    JOINED = 8, /* vectors whose tables the kernel for AVX2 joins */
    FEW = 4     /* so many of them, without tables, are faster one by one */
};

/* The table of a stage: byte k of entries 64 i to 64 i + 63. */
struct planes {
    __m512i of[4][4]; /* [k][i] */
};

/* Bytes 2 k and 2 k + 1 of 32 values: all of the one, then all of the other. */
CSN_INLINE __m512i two_bytes(const float *t, int k) {
    const __m512i low = _mm512_set_epi8(
        125, 121, 117, 113, 109, 105, 101, 97, 93, 89, 85, 81, 77, 73, 69, 65, 61, 57, 53, 49, 45,
        41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1, 124, 120, 116, 112, 108, 104, 100, 96, 92, 88, 84,
        80, 76, 72, 68, 64, 60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i order = _mm512_add_epi8(low, _mm512_set1_epi8((char)(2 * k)));
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(t), order, _mm512_loadu_si512(t + 16));
}

CSN_INLINE void cut(const float *t, struct planes *ret) {
    const __m512i first = _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 6, 7, 12, 13, 14, 15);
    CSN_UNROLL
    for (int i = 0; i < 4; i++) {
        CSN_UNROLL
        for (int k = 0; k < 2; k++) {
            const __m512i a = two_bytes(t + 64 * i, k);
            const __m512i b = two_bytes(t + 64 * i + 32, k);
            ret->of[2 * k][i] = _mm512_permutex2var_epi64(a, first, b);
            ret->of[2 * k + 1][i] = _mm512_permutex2var_epi64(a, second, b);
        }
    }
}

/* What 64 rows look up in one plane; `upper`: those whose index has bit 7. */
CSN_INLINE __m512i look_up(const __m512i t[4], __m512i index, __mmask64 upper) {
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t[0], index, t[1]),
                                  _mm512_permutex2var_epi8(t[2], index, t[3]));
}

/* Adds what the rows of n blocks, `stride` bytes apart, look up in the table t of one stage: to
 * part, and, with the last stage, part to acc. */
CSN_INLINE void add_stage(const uint8_t *p, uint64_t stride, uint64_t n, uint64_t stages,
                          uint64_t stage, const struct csn_places *places, const float *t,
                          float *part, float *acc) {
    struct planes planes;
    cut(t, &planes);
    for (uint64_t b = 0; b < n; b++, p += stride, part += 64, acc += 64) {
        const __m512i index = csn_plane(p, stages, stage, places);
        const __mmask64 upper = _mm512_movepi8_mask(index);
        csn_ask(p, 2 * CSN_VQ_BLOCK * stages + 64 * stage, _MM_HINT_T0);
        csn_ask(t, (stages * 256 + 16 * b) * sizeof(float), _MM_HINT_T0); /* of the next table */
        const __m512i v0 = look_up(planes.of[0], index, upper);
        const __m512i v1 = look_up(planes.of[1], index, upper);
        const __m512i v2 = look_up(planes.of[2], index, upper);
        const __m512i v3 = look_up(planes.of[3], index, upper);
        const __m512i lo[2] = {_mm512_unpacklo_epi8(v0, v1), _mm512_unpackhi_epi8(v0, v1)};
        const __m512i hi[2] = {_mm512_unpacklo_epi8(v2, v3), _mm512_unpackhi_epi8(v2, v3)};
        CSN_UNROLL
        for (int i = 0; i < 4; i++) {
            const __m512i v = i % 2 == 0 ? _mm512_unpacklo_epi16(lo[i / 2], hi[i / 2])
                                         : _mm512_unpackhi_epi16(lo[i / 2], hi[i / 2]);
            __m512 sum = _mm512_castsi512_ps(v);
            if (stage > 0) {
                sum = _mm512_add_ps(_mm512_load_ps(part + 16 * i), sum);
            }
            if (stage + 1 < stages) {
                _mm512_store_ps(part + 16 * i, sum);
            } else {
                _mm512_store_ps(acc + 16 * i, _mm512_add_ps(_mm512_load_ps(acc + 16 * i), sum));
            }
        }
    }
}

/* A vector: its table, or else itself. */
typedef struct input {
    const float *table, *x;
} input;

/* The table of position v; room [stages][256], aligned to 64. */
CSN_INLINE const float *table_at(const csn_vq_books *b, uint64_t stages, const input *in,
                                 uint64_t v, float *room) {
    if (in->table != NULL) {
        return in->table + v * stages * 256;
    }
    csn_vq_table_f32_any_avx2(b, in->x + v * CSN_VQ_DIM, CSN_VQ_DIM, 0, 1, room);
    return room;
}

/* Sums of the blocks of 64 rows from `first` on, n vectors. */
CSN_INLINE void sum_blocks(const csn_vq_matrix *m, uint64_t stages, const struct csn_places *places,
                           const input *in, uint64_t n, uint64_t first, uint64_t n_blocks,
                           float (*acc)[ROWS]) {
    _Alignas(64) float room[MOST_STAGES * 256];
    _Alignas(64) float part[ROWS];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t of_block = CSN_VQ_BLOCK * stages;
    for (uint64_t v = 0; v < nv; v++) {
        const uint8_t *p = m->index + (first / CSN_VQ_BLOCK * nv + v) * of_block;
        for (uint64_t i = 0; i < n; i++) {
            const float *t = table_at(m->books, stages, &in[i], v, room);
            CSN_UNROLL
            for (uint64_t s = 0; s < stages; s++) {
                add_stage(p, of_block * nv, n_blocks, stages, s, places, t + 256 * s, part, acc[i]);
            }
        }
    }
}

CSN_INLINE void apply(const csn_vq_matrix *m, uint64_t stages, const input *in, uint64_t n,
                      float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(64) float acc[BATCH][ROWS];
    struct csn_places places;
    csn_find_places(stages, true, &places);
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t n_rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, n * sizeof(acc[0]));
        sum_blocks(m, stages, &places, in, n, first, (n_rows + CSN_VQ_BLOCK - 1) / CSN_VQ_BLOCK,
                   acc);
        for (uint64_t i = 0; i < n; i++) {
            for (uint64_t r = 0; r < n_rows; r++) {
                y[i * y_stride + first + r] =
                    csn_f16_to_f32(csn_load_u16(m->scale + 2 * (first + r))) * acc[i][r];
            }
        }
    }
}

CSN_OUTLINE void apply_3(const csn_vq_matrix *m, const input *in, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 3, in, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void apply_2(const csn_vq_matrix *m, const input *in, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 2, in, n, y, y_stride, r0, r1);
}

static bool fits(const csn_vq_matrix *m) {
    return m->block == CSN_VQ_BLOCK && !m->books->is_packed &&
           (m->books->stages == 2 || m->books->stages == 3);
}

/* Vectors by their tables, or, where those are NULL, by themselves. */
static void apply_all(const csn_vq_matrix *m, const void *const *tables, const float *const *x,
                      uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    for (uint64_t i = 0; i < n; i += BATCH) {
        const uint64_t n_batch = n - i < BATCH ? n - i : BATCH;
        input in[BATCH] = {{NULL, NULL}};
        for (uint64_t k = 0; k < n_batch; k++) {
            in[k] = (input){tables != NULL ? tables[i + k] : NULL, x != NULL ? x[i + k] : NULL};
        }
        (m->books->stages == 3 ? apply_3 : apply_2)(m, in, n_batch, y + i * y_stride, y_stride, r0,
                                                    r1);
    }
}

void csn_vq_apply_f32_any_vbmi(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                               float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (fits(m)) {
        apply_all(m, tables, NULL, n, y, y_stride, r0, r1);
    } else {
        csn_vq_apply_f32_any_avx2(m, tables, n, y, y_stride, r0, r1);
    }
}

void csn_vq_direct_f32_any_vbmi(const csn_vq_matrix *m, const float *const *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t few = fits(m) && n % JOINED <= FEW ? n % JOINED : 0;
    const uint64_t n_joined = n - few;
    csn_vq_direct_f32_any_avx2(m, x, n_joined, y, y_stride, r0, r1);
    apply_all(m, NULL, x + n_joined, few, y + n_joined * y_stride, y_stride, r0, r1);
}
