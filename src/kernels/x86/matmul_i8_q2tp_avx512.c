/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q2tp (ref/matmul_i8_q2tp_ref.c says what it means), AVX-512 with VNNI.
 *
 * Few vectors: bits 2 k of the eight bytes of a group meet columns k, k + 4 ... of x, so x is laid
 * out by those first. Codes 2 and 3 of a byte count sixteen times where they are. 2 c - 3 is twice
 * the code less three times 1. Scales that are not unpacked: as
 * for AVX2. */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/pack_avx512.h"
#include "kernels/x86/q2tp_avx2.h"
#include "quant/q4tp.h"

enum {
    Q2TP_BYTES = 8,
    Q2TP_CODES = 4,                    /* of a byte */
    Q2TP_HALF_BYTES = Q2TP_CODES * 64, /* of x: eight groups */
    Q2TP_SUMS_AT =
        2 * Q2TP_HALF_BYTES, /* behind the columns: minus three times the sums of the codes */
    Q2TP_X_BYTES = Q2TP_SUMS_AT + 64
};

/* Adds eight groups. */
CSN_INLINE void q2tp_half(__m512i codes, const int8_t *x, uint64_t x_stride, int nc, __m512i *sum) {
    const __m512i bits0 = _mm512_set1_epi8(3);
    const __m512i bits4 = _mm512_set1_epi8(3 << 4);
    const __m512i next = _mm512_srli_epi16(codes, 2);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const int8_t *q = x + (uint64_t)c * x_stride;
        __m512i low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(codes, bits0),
                                          _mm512_load_si512(q));
        __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(codes, bits4),
                                           _mm512_load_si512(q + 128));
        low = _mm512_dpbusd_epi32(low, _mm512_and_si512(next, bits0), _mm512_load_si512(q + 64));
        high = _mm512_dpbusd_epi32(high, _mm512_and_si512(next, bits4), _mm512_load_si512(q + 192));
        sum[c] = _mm512_add_epi32(low, _mm512_srai_epi32(high, 4));
    }
}

CSN_INLINE void q2tp_step(const struct lanes_at *at, const int8_t *x, uint64_t x_stride, int nc,
                          __m512 *ws, __m512i *sum) {
    __m512i a[LANES_BATCH];
    __m512i b[LANES_BATCH];
    q2tp_half(lanes_load(at->w, 0, Q2TP_BYTES * at->n), x, x_stride, nc, a);
    q2tp_half(lanes_load(at->w, 64, Q2TP_BYTES * at->n), x + Q2TP_HALF_BYTES, x_stride, nc, b);
    *ws = lanes_floats((const float *)(const void *)at->scale, at->n);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m512i s = _mm512_slli_epi32(lanes_of_pairs(a[c], b[c]), 1);
        sum[c] = _mm512_add_epi32(s, _mm512_load_si512(x + (uint64_t)c * x_stride + Q2TP_SUMS_AT));
    }
}

/* Of two groups, 16 bytes of columns k, k + 4 ..., for k from 0 to 3. */
CSN_INLINE __m512i q2tp_by_codes(__m512i q) {
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_shuffle_epi8(q, order));
}

static void q2tp_lay(const csn_x8 *x, uint64_t t, uint64_t g, uint64_t n, int8_t *to) {
    const uint8_t *q = (const uint8_t *)(x->q + t * x->q_stride + 32 * g);
    for (uint64_t i = 0; i < LANES_GROUPS; i += 2) {
        int8_t *at = to + i / 8 * Q2TP_HALF_BYTES + i % 8 * 8;
        __m512i v = q2tp_by_codes(lanes_load(q, 32 * i, 32 * n));
        _mm_store_si128((void *)at, _mm512_extracti32x4_epi32(v, 0));
        _mm_store_si128((void *)(at + 64), _mm512_extracti32x4_epi32(v, 1));
        _mm_store_si128((void *)(at + 128), _mm512_extracti32x4_epi32(v, 2));
        _mm_store_si128((void *)(at + 192), _mm512_extracti32x4_epi32(v, 3));
    }
    __m512i minus = lanes_minus_sums(x, t, g, n);
    _mm512_store_si512(to + Q2TP_SUMS_AT, _mm512_add_epi32(_mm512_add_epi32(minus, minus), minus));
}

CSN_INLINE struct lanes_kind q2tp_kind(const csn_x8 *x) {
    return (struct lanes_kind){
        .step = q2tp_step,
        .lay = q2tp_lay,
        .step_bytes = {LANES_GROUPS * Q2TP_BYTES, LANES_GROUPS * sizeof(float)},
        .row_bytes = {x->n_groups * Q2TP_BYTES, csn_ladder_stride(x->cols) * sizeof(float)},
        .x_bytes = Q2TP_X_BYTES};
}

CSN_OUTLINE void few_q2tp(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                          uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q2tp_kind(x);
    lanes_i8(&kind, w->data, w->unpacked, x, n, y, y_stride, r0, r1);
}

/* ---- many vectors ---- */

static void pack_q2tp(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                      struct gemm_panel *p) {
    pack_rows(q2tp_codes, ctx, r, r1, g0, ng, p);
}

CSN_OUTLINE void many_q2tp(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                           uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct pack m = {.w = w->data,
                           .scale = w->unpacked,
                           .gpr = x->n_groups,
                           .bytes = Q2TP_BYTES,
                           .scale_stride = csn_ladder_stride(w->cols)};
    gemm_i8(pack_q2tp, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q2tp_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q2tp_kind(x);
    if (w->unpacked == NULL) {
        csn_matmul_i8_q2tp_avx2(w, x, n, y, y_stride, r0, r1);
    } else if (lanes_fit(&kind, x, n, r1 - r0)) {
        few_q2tp(w, x, n, y, y_stride, r0, r1);
    } else {
        many_q2tp(w, x, n, y, y_stride, r0, r1);
    }
}
