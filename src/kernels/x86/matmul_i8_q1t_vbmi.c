/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q1t (ref/matmul_i8_q1_ref.c says what it means), AVX-512 with VNNI and VBMI.
 *
 * Few vectors: digit k of the seven bytes of a group meets columns k, k + 5 ... of x, so x is laid
 * out by digits first. A byte looks up the weights plus 1 of its digits in tables of 256 entries.
 */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/outliers_avx2.h"
#include "kernels/x86/pack_avx512.h"

enum {
    Q1T_DIGITS = 5,
    Q1T_HALF_BYTES = Q1T_DIGITS * 64, /* of x: eight groups, seven bytes of eight each */
    Q1T_SUMS_AT = 2 * Q1T_HALF_BYTES, /* behind the columns: minus the sums of the codes */
    Q1T_X_BYTES = Q1T_SUMS_AT + 64
};

/* Weight plus 1 of the digit that is worth `place`. */
#define WEIGHT(byte, place) (((byte) / (place) % 3 + 1) % 3)
#define WEIGHTS(b) (WEIGHT(b, 1) | WEIGHT(b, 3) << 2 | WEIGHT(b, 9) << 4 | WEIGHT(b, 27) << 6)
#define TOP(b) WEIGHT(b, 81)
#define OF_4(f, b) f(b), f((b) + 1), f((b) + 2), f((b) + 3)
#define OF_16(f, b) OF_4(f, b), OF_4(f, (b) + 4), OF_4(f, (b) + 8), OF_4(f, (b) + 12)
#define OF_64(f, b) OF_16(f, b), OF_16(f, (b) + 16), OF_16(f, (b) + 32), OF_16(f, (b) + 48)
#define OF_256(f) OF_64(f, 0), OF_64(f, 64), OF_64(f, 128), OF_64(f, 192)
static const uint8_t first_four[256] = {OF_256(WEIGHTS)}; /* digits 0 to 3, two bits each */
static const uint8_t fifth[256] = {OF_256(TOP)};

/* Where the seven bytes of eight tiles lie in the 128 bytes from the first on; behind each seven, a
 * byte that meets zeros of x. */
#define OF_TILE(i) (i) + 2, (i) + 3, (i) + 4, (i) + 5, (i) + 6, (i) + 7, (i) + 8, 0
static const uint8_t first_tiles[64] = {OF_TILE(0),  OF_TILE(9),  OF_TILE(18), OF_TILE(27),
                                        OF_TILE(36), OF_TILE(45), OF_TILE(54), OF_TILE(63)};
/* Of the next eight, in 64 bytes from byte 64 on and 64 from byte 80 on. */
#define LATER(i) ((i) < 128 ? (i)-64 : 64 + (i)-80)
#define OF_LATER(i)                                                                                \
    LATER((i) + 2), LATER((i) + 3), LATER((i) + 4), LATER((i) + 5), LATER((i) + 6),                \
        LATER((i) + 7), LATER((i) + 8), 0
static const uint8_t last_tiles[64] = {OF_LATER(72),  OF_LATER(81),  OF_LATER(90),  OF_LATER(99),
                                       OF_LATER(108), OF_LATER(117), OF_LATER(126), OF_LATER(135)};
/* The scales of the first 15. */
#define OF_SCALE(i) (i), (i) + 1
static const uint8_t scales[64] = {OF_SCALE(0),   OF_SCALE(9),   OF_SCALE(18), OF_SCALE(27),
                                   OF_SCALE(36),  OF_SCALE(45),  OF_SCALE(54), OF_SCALE(63),
                                   OF_SCALE(72),  OF_SCALE(81),  OF_SCALE(90), OF_SCALE(99),
                                   OF_SCALE(108), OF_SCALE(117), OF_SCALE(126)};

CSN_INLINE __m512i lookup(const uint8_t *table, __m512i index, __mmask64 is_high) {
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 64));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), index,
                                                  _mm512_loadu_si512(table + 192));
    return _mm512_mask_blend_epi8(is_high, low, high);
}

/* Adds eight groups. */
CSN_INLINE void q1t_half(__m512i bytes, const int8_t *x, uint64_t x_stride, int nc, __m512i *sum) {
    const __m512i mask = _mm512_set1_epi8(3);
    const __mmask64 is_high = _mm512_movepi8_mask(bytes);
    const __m512i four = lookup(first_four, bytes, is_high);
    const __m512i d[Q1T_DIGITS] = {
        _mm512_and_si512(four, mask), _mm512_and_si512(_mm512_srli_epi16(four, 2), mask),
        _mm512_and_si512(_mm512_srli_epi16(four, 4), mask),
        _mm512_and_si512(_mm512_srli_epi16(four, 6), mask), lookup(fifth, bytes, is_high)};
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const int8_t *q = x + (uint64_t)c * x_stride;
        sum[c] = _mm512_setzero_si512();
        CSN_UNROLL
        for (int k = 0; k < Q1T_DIGITS; k++) {
            sum[c] = _mm512_dpbusd_epi32(sum[c], d[k], _mm512_load_si512(q + 64 * k));
        }
    }
}

CSN_INLINE void q1t_step(const struct lanes_at *at, const int8_t *x, uint64_t x_stride, int nc,
                         __m512 *ws, __m512i *sum) {
    const uint64_t n_bytes = at->n * CSN_Q1T_TILE;
    __m512i p0 = lanes_load(at->w, 0, n_bytes);
    __m512i p64 = lanes_load(at->w, 64, n_bytes);
    __m512i p80 = lanes_load(at->w, 80, n_bytes);
    __m512i a[LANES_BATCH];
    __m512i b[LANES_BATCH];
    q1t_half(_mm512_permutex2var_epi8(p0, _mm512_loadu_si512(first_tiles), p64), x, x_stride, nc,
             a);
    q1t_half(_mm512_permutex2var_epi8(p64, _mm512_loadu_si512(last_tiles), p80), x + Q1T_HALF_BYTES,
             x_stride, nc, b);
    __m256i h =
        _mm512_castsi512_si256(_mm512_permutex2var_epi8(p0, _mm512_loadu_si512(scales), p64));
    if (at->n == LANES_GROUPS) {
        h = _mm256_mask_mov_epi16(h, 1 << 15,
                                  _mm256_set1_epi16((short)csn_load16(at->w + 15 * CSN_Q1T_TILE)));
    } else { /* indices of the sixteenth are zero */
        h = _mm256_maskz_mov_epi16((__mmask16)((1U << at->n) - 1), h);
    }
    *ws = _mm512_cvtph_ps(h);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        sum[c] = _mm512_add_epi32(lanes_of_pairs(a[c], b[c]),
                                  _mm512_load_si512(x + (uint64_t)c * x_stride + Q1T_SUMS_AT));
    }
}

static void q1t_lay(const csn_x8 *x, uint64_t t, uint64_t g, uint64_t n, int8_t *to) {
    const int8_t *q = x->q + t * x->q_stride + 32 * g;
    memset(to, 0, Q1T_SUMS_AT);
    for (uint64_t i = 0; i < n; i++, q += 32) {
        int8_t *at = to + i / 8 * Q1T_HALF_BYTES + i % 8 * 8;
        for (int j = 0; j < 6; j++) {
            for (int k = 0; k < Q1T_DIGITS; k++) {
                at[64 * k + j] = q[Q1T_DIGITS * j + k];
            }
        }
        at[6] = q[30];
        at[64 + 6] = q[31];
    }
    _mm512_store_si512(to + Q1T_SUMS_AT, lanes_minus_sums(x, t, g, n));
}

CSN_INLINE struct lanes_kind q1t_kind(const csn_x8 *x) {
    return (struct lanes_kind){.step = q1t_step,
                               .lay = q1t_lay,
                               .step_bytes = {.w = LANES_GROUPS * CSN_Q1T_TILE},
                               .row_bytes = {.w = x->n_groups * CSN_Q1T_TILE},
                               .x_bytes = Q1T_X_BYTES};
}

CSN_OUTLINE void few_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q1t_kind(x);
    lanes_i8(&kind, w->data, w->data, x, n, y, y_stride, r0, r1);
}

/* ---- many vectors ---- */

/* Where the first four digits of byte j of seven begin, in bits, and the fifth, in bytes. */
#define OF_BYTE(j) 8 * (j), 8 * (j) + 2, 8 * (j) + 4, 8 * (j) + 6, j
static const uint8_t digit_at[64] = {OF_BYTE(0), OF_BYTE(1), OF_BYTE(2), OF_BYTE(3),
                                     OF_BYTE(4), OF_BYTE(5), 48,         50};
enum { FIFTHS = 1 << 4 | 1 << 9 | 1 << 14 | 1 << 19 | 1 << 24 | 1 << 29 };

/* Codes 8 + weight. The row pointers lie behind the tiles: loads may go past the last. */
CSN_INLINE __m256i q1t_codes(const uint8_t *tile) {
    uint64_t of_seven;
    memcpy(&of_seven, tile + 2, sizeof(of_seven));
    const __m512i bytes = _mm512_set1_epi64((long long)of_seven);
    const __mmask64 is_high = _mm512_movepi8_mask(bytes);
    const __m512i at = _mm512_loadu_si512(digit_at);
    __m512i d = _mm512_multishift_epi64_epi8(at, lookup(first_four, bytes, is_high));
    d = _mm512_and_si512(d, _mm512_set1_epi8(3));
    d = _mm512_mask_permutexvar_epi8(d, FIFTHS, at, lookup(fifth, bytes, is_high));
    return _mm256_add_epi8(_mm512_castsi512_si256(d), _mm256_set1_epi8(7));
}

static void pack_q1t(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                     struct gemm_panel *p) {
    pack_rows(q1t_codes, ctx, r, r1, g0, ng, p);
}

CSN_OUTLINE void many_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                          uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct pack m = {.w = w->data, .gpr = x->n_groups, .bytes = CSN_Q1T_TILE};
    gemm_i8(pack_q1t, &m, GEMM_4BIT, NULL, x, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void add_q1t(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_outliers(true, w, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_q1t_vbmi(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const struct lanes_kind kind = q1t_kind(x);
    if (lanes_fit(&kind, x, n, r1 - r0)) {
        few_q1t(w, x, n, y, y_stride, r0, r1);
    } else {
        many_q1t(w, x, n, y, y_stride, r0, r1);
    }
    if (csn_q1t_has_outliers(w, r0, r1)) {
        add_q1t(w, x, n, y, y_stride, r0, r1);
    }
}
