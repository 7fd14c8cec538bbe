/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, vbit and vbit_ro (ref/matmul_i8_vbit_ref.c says what they mean), AVX2.
 *
 * Few vectors: a row at a time, eight groups a step, so that the eight lanes are the groups; one
 * loop for each width. Codes below 64 are unsigned factors, and csn_x8.offset takes zero * sum(x)
 * away; codes of 8 bits meet x less 128, which is one too much.
 *
 * Rows have no constant stride, so the streams of few_i8_avx2.h gain nothing here: one stream with
 * a prefetch was the fastest of what was tried (none, 512, 1024 and 2048 bytes ahead; one stream
 * and four).
 */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "kernels/x86/vbit_avx2.h"

enum {
    STEP = 8,   /* groups */
    AHEAD = 512 /* bytes */
};

/* -8 * sum(x) of eight groups. */
CSN_INLINE __m256i offsets_of(const csn_x8 *x, uint64_t t, uint64_t g) {
    return _mm256_madd_epi16(csn_load256(x->offset + (t * x->g_stride + g) * 2),
                             _mm256_set1_epi16(1));
}

/* sum(code * x) of the eight groups at p with vector t from group g on. 4 bits: high nibbles are
 * the even columns, so two groups are ready for csn_x8.split. */
CSN_INLINE __m256i sums_of_4(const uint8_t *p, const csn_x8 *x, uint64_t t, uint64_t g) {
    const __m256i mask = _mm256_set1_epi8(15);
    const int8_t *q = x->split + t * x->q_stride + g * 32;
    __m256i v[4];
    CSN_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256i n = csn_load256(p + 32 * i);
        __m256i even = _mm256_and_si256(_mm256_srli_epi16(n, 4), mask);
        __m256i odd = _mm256_and_si256(n, mask);
        v[i] = _mm256_add_epi16(_mm256_maddubs_epi16(even, csn_load256(q + 64 * i)),
                                _mm256_maddubs_epi16(odd, csn_load256(q + 64 * i + 32)));
    }
    return _mm256_permutevar8x32_epi32(csn_sums_of_halves(v),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* 3, 5 and 6 bits: a product of neighbours is at most 2 * 63 * 127, so two fit an i16. */
CSN_INLINE void sums_of_any(const uint8_t *p, unsigned bits, const csn_x8 *x, uint64_t t, int nc,
                            uint64_t g, __m256i *ret) {
    __m256i pair[FEW_BATCH][4];
    CSN_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256i w0 = vbit_codes(p + (unsigned)i * 8 * bits, bits);
        __m256i w1 = vbit_codes(p + (unsigned)i * 8 * bits + 4 * bits, bits);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *q = x->q + (t + (uint64_t)c) * x->q_stride + g * 32 + 64 * i;
            __m256i a = _mm256_maddubs_epi16(w0, csn_load256(q));
            __m256i b = _mm256_maddubs_epi16(w1, csn_load256(q + 32));
            a = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            pair[c][i] = _mm256_madd_epi16(a, _mm256_set1_epi16(1));
        }
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m256i a = csn_fold64(pair[c][0], pair[c][1]);
        __m256i b = csn_fold64(pair[c][2], pair[c][3]);
        ret[c] = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                  _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* 8 bits, less 128 each. */
CSN_INLINE __m256i sums_of_8(const uint8_t *p, const csn_x8 *x, uint64_t t, uint64_t g) {
    const int8_t *q = x->q + t * x->q_stride + g * 32;
    __m256i v[8];
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = csn_dot_i8(_mm256_xor_si256(csn_load256(p + 32 * i), _mm256_set1_epi8(-128)),
                          csn_load256(q + 32 * i));
    }
    return csn_sums8(v);
}

/* sum((code - zero) * x) of eight groups with the vectors t to t + nc - 1. */
CSN_INLINE void sums_of(const uint8_t *p, unsigned bits, const csn_x8 *x, uint64_t t, int nc,
                        uint64_t g, __m256i *ret) {
    if (bits != 4 && bits != 8) {
        sums_of_any(p, bits, x, t, nc, g, ret);
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        uint64_t k = t + (uint64_t)c;
        __m256i o = offsets_of(x, k, g);
        if (bits == 8) { /* code - zero = (code - 128) + 1 */
            ret[c] = _mm256_sub_epi32(sums_of_8(p, x, k, g), _mm256_srai_epi32(o, 3));
            continue;
        }
        __m256i s = bits == 4 ? sums_of_4(p, x, k, g) : ret[c];
        o = _mm256_sub_epi32(_mm256_slli_epi32(o, (int)bits - 1), o); /* zero * o */
        ret[c] = _mm256_add_epi32(s, _mm256_srai_epi32(o, 3));
    }
}

/* Row r, which lies at p, and the vectors t to t + nc - 1. */
CSN_INLINE void row_of(const csn_matrix *w, const csn_vbit *v, unsigned bits, const uint8_t *p,
                       uint64_t r, const csn_x8 *x, uint64_t t, int nc, float *y,
                       uint64_t y_stride) {
    const uint8_t *scale = v->scales + 2 * r * x->n_groups;
    uint8_t room[VBIT_ROOM];
    __m256 acc[FEW_BATCH];
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        acc[c] = _mm256_setzero_ps();
    }
    for (uint64_t g = 0; g < x->n_groups; g += STEP, p += STEP * 4 * bits) {
        __m256i sum[FEW_BATCH];
        CSN_UNROLL
        for (unsigned i = 0; i < STEP * 4 * bits; i += 64) {
            csn_prefetch(p + i, AHEAD);
        }
        sums_of(vbit_safe(w, p, STEP * 4 * bits, room), bits, x, t, nc, g, sum);
        __m256 ws = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(scale + 2 * g)));
        if (g + STEP > x->n_groups) { /* codes and scales of x are padded with zeros: w's, too */
            __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(x->n_groups - g)), i);
            ws = _mm256_and_ps(ws, _mm256_castsi256_ps(some));
        }
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m256 xs = _mm256_loadu_ps(x->scale + (t + (uint64_t)c) * x->g_stride + g);
            __m256 f = _mm256_mul_ps(_mm256_mul_ps(ws, xs), _mm256_cvtepi32_ps(sum[c]));
            acc[c] = _mm256_add_ps(acc[c], f);
        }
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        y[(t + (uint64_t)c) * y_stride + r] = csn_tree_avx2(acc[c]);
    }
}

/* One width each. */
typedef void (*row_fn)(const csn_matrix *w, const csn_vbit *v, const uint8_t *p, uint64_t r,
                       const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride);
#define ROW(bits)                                                                                  \
    static void row_##bits(const csn_matrix *w, const csn_vbit *v, const uint8_t *p, uint64_t r,   \
                           const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride) {             \
        uint64_t t = 0;                                                                            \
        for (; t + 2 <= n; t += 2) {                                                               \
            row_of(w, v, bits, p, r, x, t, 2, y, y_stride);                                        \
        }                                                                                          \
        if (t < n) {                                                                               \
            row_of(w, v, bits, p, r, x, t, 1, y, y_stride);                                        \
        }                                                                                          \
    }
ROW(3)
ROW(4)
ROW(5)
ROW(6)
ROW(8)
static const row_fn row_fns[9] = {[3] = row_3, [4] = row_4, [5] = row_5, [6] = row_6, [8] = row_8};

static void few_vectors(const csn_matrix *w, const csn_vbit *v, const csn_x8 *x, uint64_t n,
                        float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_vbit_at at = csn_vbit_begin(v, r0);
    for (uint64_t r = r0; r < r1; r++) {
        const csn_vbit_row row = csn_vbit_walk(v, &at, r);
        row_fns[row.bits](w, v, row.p, r, x, n, y, y_stride);
    }
}

/* ---- many vectors ---- */

struct rows {
    const csn_matrix *w;
    csn_vbit v;
    csn_vbit_at *at;
};

/* Planes of code - zero + 128, which is at most 256: the high one may be 16. */
static void pack_vbit(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                      struct gemm_panel *p) {
    const struct rows *m = ctx;
    const __m256i low = _mm256_set1_epi8(15);
    const uint8_t *codes[8];
    const uint8_t *scale[8];
    unsigned bits[8];
    uint8_t room[VBIT_ROOM];
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t row = r + i < r1 ? r + i : r1 - 1;
        const csn_vbit_row found = csn_vbit_walk(&m->v, m->at, row);
        bits[i] = found.bits;
        codes[i] = found.p + g0 * 4 * bits[i];
        scale[i] = m->v.scales + 2 * (row * m->v.n_groups + g0);
    }
    for (uint64_t g = 0; g < ng; g++) {
        __m256i v[8];
        for (int i = 0; i < 8; i++) {
            const uint8_t *c = vbit_safe(m->w, codes[i] + g * 4 * bits[i], 4 * bits[i], room);
            v[i] = bits[i] == 8 ? csn_load256(c) : vbit_codes(c, bits[i]);
            v[i] = _mm256_add_epi8(v[i], _mm256_set1_epi8((char)(128 - csn_vbit_zero(bits[i]))));
            p->scale[g][0][i] = csn_scale16(scale[i] + 2 * g);
        }
        csn_transpose8(v);
        CSN_UNROLL
        for (int j = 0; j < 8; j++) {
            __m256i is_256 = _mm256_cmpeq_epi8(v[j], _mm256_setzero_si256());
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[j], 4), low);
            high = _mm256_or_si256(high, _mm256_and_si256(is_256, _mm256_set1_epi8(16)));
            _mm256_store_si256((void *)p->plane[g][j][0], high);
            _mm256_store_si256((void *)p->plane[g][j][1], _mm256_and_si256(v[j], low));
        }
    }
}

void csn_matmul_i8_vbit_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const csn_vbit v = csn_vbit_parts(w);
    if (w->rows < VBIT_MIN_ROWS || w->cols == 0) {
        csn_matmul_i8_vbit_ref(w, x, n, y, y_stride, r0, r1);
    } else if (n > CSN_FEW_VECTORS) {
        csn_vbit_at at = csn_vbit_begin(&v, r0);
        const struct rows m = {w, v, &at};
        gemm_i8(pack_vbit, &m, GEMM_8BIT_GROUPS, NULL, x, n, y, y_stride, r0, r1);
    } else {
        few_vectors(w, &v, x, n, y, y_stride, r0, r1);
    }
}

void csn_matmul_i8_vbit_ro_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_vbit_avx2(w, x, n, y, y_stride, r0, r1);
}
