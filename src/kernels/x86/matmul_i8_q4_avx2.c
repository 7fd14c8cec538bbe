/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q4_block, q4_tiled, q4tp and q4g (the files of ref/ say what they mean), AVX2.
 *
 * Few vectors: the low nibbles of two groups of a row meet the even columns of x, the high ones the
 * odd columns (csn_x8.split), as unsigned codes; csn_x8.offset takes 8 * sum(x) away.
 */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/ladder_avx2.h"
#include "quant/group128.h"

/* Group g of row r is the flat group r * gpr + g: 16 bytes at nib + flat * stride, and its f16 at
 * scale + (flat >> s_shift) * s_stride; q4tp: ladders in place of scales. */
struct q4 {
    const uint8_t *nib, *scale;
    uint64_t stride, s_stride, gpr;
    unsigned s_shift;
    struct ladders ladders;
};

enum form { Q4_BLOCK, Q4_TILED, Q4TP, Q4G };

enum { EDGE_AT = 16 }; /* of the group in the copy of an edge: reads begin before it */

/* ---- few vectors ---- */

/* The scales of two groups of four rows, in the order of few_i8_avx2.h. Row k lies at least k rows
 * behind the tensor's first byte and 3 - k before its last: loads of 16 bytes that have what is
 * wanted of row k at word or dword k stay inside, and blends collect it without a shuffle. */
CSN_INLINE __m256 scales_of(enum form form, const struct few_rows *rows, struct few_at at) {
    if (form == Q4_TILED) { /* 2 bytes before the nibbles and 16 behind, for word k and 4 + k */
        const uint8_t *const *p = rows->w;
        __m128i a =
            _mm_blend_epi16(csn_load128(p[0] + at.w - 2), csn_load128(p[1] + at.w - 4), 1 << 1);
        __m128i b =
            _mm_blend_epi16(csn_load128(p[2] + at.w - 6), csn_load128(p[3] + at.w - 8), 1 << 3);
        __m128i c =
            _mm_blend_epi16(csn_load128(p[0] + at.w + 8), csn_load128(p[1] + at.w + 6), 1 << 5);
        __m128i d =
            _mm_blend_epi16(csn_load128(p[2] + at.w + 4), csn_load128(p[3] + at.w + 2), 1 << 7);
        return _mm256_cvtph_ps(
            _mm_blend_epi32(_mm_blend_epi32(a, b, 1 << 1), _mm_blend_epi32(c, d, 1 << 3), 0xC));
    }
    if (form == Q4_BLOCK) {
        const uint8_t *p[FEW_ROWS];
        CSN_UNROLL
        for (int k = 0; k < FEW_ROWS; k++) {
            p[k] = rows->scale[k] + at.scale;
        }
        __m128i a = _mm_blend_epi32(csn_load128(p[0]), csn_load128(p[1] - 4), 1 << 1);
        __m128i b = _mm_blend_epi32(csn_load128(p[2] - 8), csn_load128(p[3] - 12), 1 << 3);
        const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        return _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_blend_epi32(a, b, 0xC), order));
    }
    return form == Q4G ? few_scales128(rows, at) : ladder_two(rows, at);
}

/* The nibbles of two groups. A load of 32 bytes that ends with the second and a blend do without a
 * shuffle. */
CSN_INLINE __m256i load_two(enum form form, const uint8_t *p) {
    return form == Q4_TILED ? _mm256_blend_epi32(_mm256_castsi128_si256(csn_load128(p)),
                                                 csn_load256(p + 2), 0xF0)
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
        const csn_x8_pair *p = few_pair(x, t + (uint64_t)c, j);
        f[c] = few_scale(ws, p, _mm256_add_epi32(csn_sums_of_halves(v[c]), csn_load256(p->minus)));
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
#define STEP(form, name)                                                                           \
    CSN_INLINE void name##_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x,    \
                                uint64_t t, int nc, uint64_t j, __m256 *f) {                       \
        step_of(form, rows, at, x, t, nc, j, f);                                                   \
    }
#define EDGE(form, name)                                                                           \
    CSN_INLINE void name##_edge(const void *ctx, const struct few_rows *rows, struct few_at at,    \
                                uint8_t *copy, struct few_rows *ret) {                             \
        (void)ctx;                                                                                 \
        edge_of(form, rows, at, copy, ret);                                                        \
    }

STEP(Q4_BLOCK, q4_block)
EDGE(Q4_BLOCK, q4_block)
STEP(Q4_TILED, q4_tiled)
EDGE(Q4_TILED, q4_tiled)
STEP(Q4TP, q4tp)
EDGE(Q4TP, q4tp)
STEP(Q4G, q4g) /* its rows end with whole groups: no edge */

static uint64_t q4tp_unpack(const void *ctx, const uint64_t r[FEW_ROWS], uint64_t i) {
    return ladder_unpack(&((const struct q4 *)ctx)->ladders, r, i);
}

/* ---- many vectors ---- */

CSN_INLINE void pack_nibbles(const struct q4 *m, const uint64_t first[8], uint64_t g,
                             uint8_t (*plane)[2][32], uint64_t octet) {
    const __m128i mask = _mm_set1_epi8(15);
    __m256i v[8];
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        __m128i n = csn_load128(m->nib + (first[i] + g) * m->stride);
        __m128i even = _mm_and_si128(n, mask);
        __m128i odd = _mm_and_si128(_mm_srli_epi16(n, 4), mask);
        v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(even, odd)),
                                       _mm_unpackhi_epi8(even, odd), 1);
    }
    gemm_store_codes(v, plane, octet);
}

static void pack_q4(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    const struct q4 *m = ctx;
    const bool has_ladders = m->ladders.params != NULL;
    uint64_t first[LADDER_ROWS]; /* flat index of group g0 of each row */
    struct ladder_panel panel;
    for (uint64_t i = 0; i < LADDER_ROWS; i++) {
        first[i] = (r + i < r1 ? r + i : r1 - 1) * m->gpr + g0;
    }
    if (has_ladders) {
        ladder_panel_make(&m->ladders, r, r1, &panel);
    }
    for (uint64_t i = 0; i < LADDER_ROWS; i += 8) {
        for (uint64_t g = 0; g < ng; g++) {
            pack_nibbles(m, first + i, g, p->plane[g], i / 8);
            for (uint64_t k = i; k < i + 8; k++) {
                p->scale[g][i / 8][k % 8] =
                    has_ladders
                        ? ladder_scale(&m->ladders, &panel, k, g0 + g)
                        : csn_scale16(m->scale + ((first[k] + g) >> m->s_shift) * m->s_stride);
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
                         .gpr = x->n_groups};
    const struct few_kind kind = {.step = q4_block_step,
                                  .edge = q4_block_edge,
                                  .step_bytes = {32, 4},
                                  .row_bytes = {16 * m.gpr, 2 * m.gpr},
                                  .n_steps = m.gpr / 2,
                                  .has_edge = m.gpr % 2 != 0};
    if (!few_fits(x, n)) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4_block_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q4_tiled_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                 uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct q4 m = {
        .nib = w->data + 2, .scale = w->data, .stride = 18, .s_stride = 18, .gpr = x->n_groups};
    const struct few_kind kind = {.step = q4_tiled_step,
                                  .edge = q4_tiled_edge,
                                  .step_bytes = {36, 0},
                                  .row_bytes = {18 * m.gpr, 0},
                                  .n_steps = m.gpr / 2,
                                  .has_edge = m.gpr % 2 != 0};
    if (!few_fits(x, n)) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4_tiled_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}

CSN_INLINE struct few_kind q4tp_kind(const struct q4 *m) {
    return (struct few_kind){
        .step = q4tp_step,
        .edge = q4tp_edge,
        .step_bytes = {32, 2 * sizeof(float)},
        .row_bytes = {16 * m->gpr, m->ladders.scale_stride * sizeof(float)},
        .n_steps = m->gpr / 2,
        .has_edge = m->gpr % 2 != 0,
    };
}

/* For matrices that are not unpacked. */
CSN_OUTLINE void few_q4tp_unpacking(struct q4 *m, const csn_x8 *x, uint64_t n, float *y,
                                    uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(32) float room[LADDER_ROOM];
    struct few_kind kind = q4tp_kind(m);
    struct few_rows first = {{m->nib}, {NULL}};
    kind.unpack = q4tp_unpack;
    m->ladders.room = room;
    ladder_first(&m->ladders, &first);
    few_i8(&kind, m, &first, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q4tp_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    uint64_t gpr = x->n_groups;
    struct q4 m = {.nib = w->data,
                   .scale = w->unpacked,
                   .stride = 16,
                   .gpr = gpr,
                   .ladders = ladders_make(w, gpr, 16, false)};
    const struct few_kind kind = q4tp_kind(&m);
    if (!few_fits(x, n) || (m.scale == NULL && gpr > LADDER_GROUPS)) {
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4tp_ref(w, x, n, y, y_stride, r0, r1);
    } else if (m.scale == NULL) {
        few_q4tp_unpacking(&m, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q4g_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t n_scales = csn_group128_count(w->cols);
    const struct q4 m = {.nib = w->data,
                         .scale = w->data + w->rows * n_scales * (CSN_GROUP128 / 2),
                         .stride = 16,
                         .s_stride = 2,
                         .gpr = 4 * n_scales,
                         .s_shift = 2};
    const struct few_kind kind = {.step = q4g_step,
                                  .step_bytes = {32, 1},
                                  .row_bytes = {16 * m.gpr, 2 * n_scales},
                                  .n_steps = m.gpr / 2};
    if (!few_fits(x, n)) {
        csn_x8 padded = *x;
        padded.n_groups = m.gpr;
        gemm_i8(pack_q4, &m, GEMM_4BIT, NULL, &padded, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q4g_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, &m, &(struct few_rows){{m.nib}, {m.scale}}, x, n, y, y_stride, r0, r1);
    }
}
