/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1 and q1s (ref/matmul_i8_q1_ref.c says what they mean), AVX-512 with VNNI.
 *
 * Few vectors: bit k of the four bytes of signs of a group meets columns k, k + 8, k + 16 and
 * k + 24 of x, so x is laid out by bits first. Bits 0 to 3 are moved to bit 1 and count twice, bits
 * 4 to 7 are moved to bit 5 and count 32 times: twice the sum of the columns with a plus, less the
 * sum of all, is what is wanted. */
#include "kernels/x86/deltas_avx2.h"
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/outliers_avx2.h"
#include "kernels/x86/pack_avx512.h"

enum {
    Q1_BITS = 8,
    Q1_SUMS_AT = Q1_BITS * 64, /* behind the columns: minus the sums of the codes */
    Q1_X_BYTES = Q1_SUMS_AT + 64
};

/* Word i of the scales, dword i of the signs, of tiles of three words. */
static const uint16_t scale_words[32] = {0,  3,  6,  9,  12, 15, 18, 21,
                                         24, 27, 30, 33, 36, 39, 42, 45};
static const uint16_t sign_words[32] = {1,  2,  4,  5,  7,  8,  10, 11, 13, 14, 16,
                                        17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32,
                                        34, 35, 37, 38, 40, 41, 43, 44, 46, 47};

CSN_INLINE void q1_step(const struct lanes_at *at, const int8_t *x, uint64_t x_stride, int nc,
                        __m512 *ws, __m512i *sum) {
    const uint64_t n_bytes = at->n * CSN_Q1_TILE;
    __m512i a = lanes_load(at->w, 0, n_bytes);
    __m512i b = lanes_load(at->w, 64, n_bytes);
    __m512i signs = _mm512_permutex2var_epi16(a, _mm512_loadu_si512(sign_words), b);
    __m512i scales = _mm512_permutex2var_epi16(a, _mm512_loadu_si512(scale_words), b);
    *ws = _mm512_cvtph_ps(_mm512_castsi512_si256(scales));
    const __m512i bit1 = _mm512_set1_epi8(2);
    const __m512i bit5 = _mm512_set1_epi8(32);
    __m512i high[LANES_BATCH];
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        sum[c] = _mm512_load_si512(x + (uint64_t)c * x_stride + Q1_SUMS_AT);
        high[c] = _mm512_setzero_si512();
    }
    CSN_UNROLL
    for (unsigned k = 0; k < Q1_BITS / 2; k++) {
        __m512i v = k == 0 ? _mm512_slli_epi16(signs, 1) : _mm512_srli_epi16(signs, k - 1);
        __m512i v0 = _mm512_and_si512(v, bit1);
        __m512i v4 = _mm512_and_si512(v, bit5);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x + (uint64_t)c * x_stride + (uint64_t)k * 64;
            sum[c] = _mm512_dpbusd_epi32(sum[c], v0, _mm512_load_si512(q));
            high[c] = _mm512_dpbusd_epi32(high[c], v4, _mm512_load_si512(q + 4 * 64));
        }
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        sum[c] = _mm512_add_epi32(sum[c], _mm512_srai_epi32(high[c], 4));
    }
}

/* Of two groups, 8 bytes of columns k to k + 24, for k from 0 to 7. */
CSN_INLINE __m512i q1_by_bits(__m512i q) {
    const __m512i pairs =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m512i order = _mm512_setr_epi64(
        0x0018001000080000, 0x0019001100090001, 0x001A0012000A0002, 0x001B0013000B0003,
        0x001C0014000C0004, 0x001D0015000D0005, 0x001E0016000E0006, 0x001F0017000F0007);
    return _mm512_permutexvar_epi16(order, _mm512_shuffle_epi8(q, pairs));
}

static void q1_lay(const csn_x8 *x, uint64_t t, uint64_t g, uint64_t n, int8_t *to) {
    const uint8_t *q = (const uint8_t *)(x->q + t * x->q_stride + 32 * g);
    for (uint64_t i = 0; i < LANES_GROUPS; i += 2) {
        uint8_t bytes[64];
        _mm512_storeu_si512(bytes, q1_by_bits(lanes_load(q, 32 * i, 32 * n)));
        CSN_UNROLL
        for (uint64_t k = 0; k < Q1_BITS; k++) {
            memcpy(to + 64 * k + 4 * i, bytes + 8 * k, 8);
        }
    }
    _mm512_store_si512(to + Q1_SUMS_AT, lanes_minus_sums(x, t, g, n));
}

CSN_INLINE struct lanes_kind q1_kind(const csn_x8 *x) {
    return (struct lanes_kind){.step = q1_step,
                               .lay = q1_lay,
                               .step_bytes = {.w = LANES_GROUPS * CSN_Q1_TILE},
                               .row_bytes = {.w = x->n_groups * CSN_Q1_TILE},
                               .x_bytes = Q1_X_BYTES};
}

CSN_OUTLINE void few_q1(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                        uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q1_kind(x);
    lanes_i8(&kind, w->data, w->data, x, n, y, y_stride, r0, r1);
}

/* ---- many vectors ---- */

CSN_INLINE __m256i q1_codes(const uint8_t *tile) {
    const __mmask32 plus = (uint32_t)csn_load32(tile + 2);
    return _mm256_mask_blend_epi8(plus, _mm256_set1_epi8(8 - 1), _mm256_set1_epi8(8 + 1));
}

static void pack_q1(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                    struct gemm_panel *p) {
    pack_rows(q1_codes, ctx, r, r1, g0, ng, p);
}

CSN_OUTLINE void many_q1(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct pack m = {.w = w->data, .gpr = x->n_groups, .bytes = CSN_Q1_TILE};
    gemm_i8(pack_q1, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
}

/* ---- outliers ---- */

CSN_OUTLINE void add_packed(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_outliers(false, w, x, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void add_unpacked(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    float floats[CSN_Q1S_COLS];
    const csn_q1s_deltas deltas = csn_q1s_unpacked(w);
    for (uint64_t t = 0; t < n; t++) {
        x_floats(x, t, n, 1, 0, w->cols, floats);
        for (uint64_t r = r0; r < r1; r += DELTA_ROWS) {
            add_deltas(&deltas, floats, r, r1 - r < DELTA_ROWS ? r1 : r + DELTA_ROWS,
                       y + t * y_stride);
        }
    }
}

void csn_matmul_i8_q1_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q1_kind(x);
    if (lanes_fit(&kind, x, n, r1 - r0)) {
        few_q1(w, x, n, y, y_stride, r0, r1);
    } else {
        many_q1(w, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_q1s_avx512(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_q1_avx512(w, x, n, y, y_stride, r0, r1);
    if (w->unpacked != NULL && n <= CSN_FEW_VECTORS) {
        add_unpacked(w, x, n, y, y_stride, r0, r1);
    } else {
        add_packed(w, x, n, y, y_stride, r0, r1);
    }
}
