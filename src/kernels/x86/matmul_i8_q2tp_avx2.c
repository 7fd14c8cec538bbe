/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q2tp (ref/matmul_i8_q2tp_ref.c says what it means), AVX2.
 *
 * Few vectors: bits 2 k of the eight bytes of a group meet columns k, k + 4 ... of x, so x is laid
 * out by those first. 2 c - 3 is twice the code less three times 1. */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/ladder_avx2.h"
#include "kernels/x86/q2tp_avx2.h"

enum {
    GROUP_BYTES = 8,
    STEP_X = 64,          /* bytes of x of two groups */
    MOST_BYTES = 96 << 10 /* of x by bits, few vectors */
};

struct q2tp {
    const uint8_t *plane;
    uint64_t gpr;
    struct ladders ladders;
};

/* 32 codes of x: those of columns 4 j, then 4 j + 1 | 4 j + 2, 4 j + 3. */
CSN_INLINE __m256i order_by_bits(__m256i q) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(q, order),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

CSN_INLINE uint64_t x_bytes(uint64_t gpr) {
    return (gpr + 1) / 2 * STEP_X;
}

/* Two groups of x: first halves of both, then second halves. Behind the last group are zeros. */
static void x_by_bits(const csn_x8 *x, uint64_t n, uint64_t stride, int8_t *out) {
    for (uint64_t t = 0; t < n; t++) {
        const int8_t *q = x->q + t * x->q_stride;
        for (uint64_t i = 0; i < stride; i += STEP_X) {
            __m256i a = order_by_bits(csn_load256(q + i));
            __m256i b = order_by_bits(csn_load256(q + i + 32));
            int8_t *to = out + t * stride + i;
            _mm256_store_si256((void *)to, _mm256_permute2x128_si256(a, b, 0x20));
            _mm256_store_si256((void *)(to + 32), _mm256_permute2x128_si256(a, b, 0x31));
        }
    }
}

/* x->split: by bits, x->q_stride of that. */
CSN_INLINE void q2tp_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x,
                          uint64_t t, int nc, uint64_t j, __m256 *f) {
    const __m256i mask = _mm256_set1_epi8(3);
    __m256i v[FEW_BATCH][FEW_ROWS];
    CSN_UNROLL
    for (int k = 0; k < FEW_ROWS; k++) {
        __m256i b = _mm256_castsi128_si256(csn_load128(rows->w[k] + at.w));
        b = _mm256_permute4x64_epi64(b, 0x50); /* each group twice */
        b = _mm256_srlv_epi64(b, _mm256_setr_epi64x(0, 2, 0, 2));
        __m256i low = _mm256_and_si256(b, mask);
        __m256i high = _mm256_and_si256(_mm256_srli_epi64(b, 4), mask);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x->split + (t + (uint64_t)c) * x->q_stride + STEP_X * j;
            v[c][k] = _mm256_add_epi16(_mm256_maddubs_epi16(low, csn_load256(q)),
                                       _mm256_maddubs_epi16(high, csn_load256(q + 32)));
        }
    }
    __m256 ws = ladder_two(rows, at);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const csn_x8_pair *p = few_pair(x, t + (uint64_t)c, j);
        __m256i minus = few_minus_sums(p);
        __m256i s = _mm256_slli_epi32(_mm256_add_epi32(csn_sums_of_halves(v[c]), minus), 1);
        f[c] = few_scale(ws, p, _mm256_add_epi32(s, minus));
    }
}

static void q2tp_edge(const void *ctx, const struct few_rows *rows, struct few_at at, uint8_t *copy,
                      struct few_rows *ret) {
    (void)ctx;
    for (int k = 0; k < FEW_ROWS; k++) {
        ret->w[k] = memcpy(copy + k * FEW_EDGE, rows->w[k] + at.w, GROUP_BYTES);
        ret->scale[k] = rows->scale[k] + at.scale;
    }
}

static uint64_t q2tp_unpack(const void *ctx, const uint64_t r[FEW_ROWS], uint64_t i) {
    return ladder_unpack(&((const struct q2tp *)ctx)->ladders, r, i);
}

/* ---- many vectors ---- */

static void pack_q2tp(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                      struct gemm_panel *p) {
    const struct q2tp *m = ctx;
    struct ladder_panel panel;
    ladder_panel_make(&m->ladders, r, r1, &panel);
    for (uint64_t i = 0; i < LADDER_ROWS; i += 8) {
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (uint64_t k = 0; k < 8; k++) {
                v[k] = q2tp_codes(m->plane + (panel.row[i + k] * m->gpr + g0 + g) * GROUP_BYTES);
                p->scale[g][i / 8][k] = ladder_scale(&m->ladders, &panel, i + k, g0 + g);
            }
            gemm_store_codes(v, p->plane[g], i / 8);
        }
    }
}

CSN_INLINE struct few_kind q2tp_kind(const struct q2tp *m) {
    return (struct few_kind){
        .step = q2tp_step,
        .edge = q2tp_edge,
        .step_bytes = {2 * GROUP_BYTES, 2 * sizeof(float)},
        .row_bytes = {GROUP_BYTES * m->gpr, m->ladders.scale_stride * sizeof(float)},
        .n_steps = m->gpr / 2,
        .has_edge = m->gpr % 2 != 0,
    };
}

/* For matrices that are not unpacked. */
CSN_OUTLINE void few_q2tp_unpacking(struct q2tp *m, const csn_x8 *x, uint64_t n, float *y,
                                    uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(32) float room[LADDER_ROOM];
    struct few_kind kind = q2tp_kind(m);
    struct few_rows first = {{m->plane}, {NULL}};
    kind.unpack = q2tp_unpack;
    m->ladders.room = room;
    ladder_first(&m->ladders, &first);
    few_i8(&kind, m, &first, x, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void few_q2tp(struct q2tp *m, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                          uint64_t r0, uint64_t r1) {
    _Alignas(32) int8_t x_room[MOST_BYTES];
    const struct few_kind kind = q2tp_kind(m);
    const uint8_t *scales = (const uint8_t *)m->ladders.scales;
    csn_x8 by_bits = *x;
    by_bits.split = x_room;
    by_bits.q_stride = x_bytes(m->gpr);
    x_by_bits(x, n, by_bits.q_stride, x_room);
    if (scales == NULL) {
        few_q2tp_unpacking(m, &by_bits, n, y, y_stride, r0, r1);
    } else {
        few_i8(&kind, m, &(struct few_rows){{m->plane}, {scales}}, &by_bits, n, y, y_stride, r0,
               r1);
    }
}

void csn_matmul_i8_q2tp_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t gpr = x->n_groups;
    struct q2tp m = {w->data, gpr, ladders_make(w, gpr, GROUP_BYTES, true)};
    const bool is_wide = m.ladders.scales == NULL && gpr > LADDER_GROUPS;
    if (!few_fits(x, n) || is_wide || n * x_bytes(gpr) > MOST_BYTES) {
        gemm_i8(pack_q2tp, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q2tp_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        few_q2tp(&m, x, n, y, y_stride, r0, r1);
    }
}
