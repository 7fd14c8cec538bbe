/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, AVX2 with FMA: the 32 lanes of kernels.h are four vectors. Rows of weights are decoded
 * piece by piece, three at a time, and meet all vectors of x before the next piece, so that a
 * decoded weight is used n times. Three rows with one vector are 12 sums: what the registers hold.
 */
#include "kernels/x86/i8_avx2.h"
#include "kernels/x86/vbit_avx2.h"
#include "quant/group128.h"

enum {
    ROWS = 3,     /* rows decoded together */
    PIECE = 1024, /* columns decoded at once: three rows are 12 KiB, in L1 */
    CHUNK = 32    /* vectors whose lanes are kept between pieces: 12 KiB */
};

/* Values of columns [c, c + m) of row r: in `buf`, or where they lie. Unaligned. m <= PIECE. */
typedef const void *(*decode_fn)(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                 float *buf);

CSN_INLINE __m256 load8(const void *p, uint64_t i) {
    return _mm256_loadu_ps((const float *)p + i);
}

/* The last columns of a row, fewer than 32: lanes past them stay as they are (adding 0 * 0 would
 * turn a -0 into +0). */
static void add_tail(const void *w, const float *x, uint64_t m, float *lane) {
    _Alignas(32) float wt[32] = {0};
    _Alignas(32) float xt[32] = {0};
    memcpy(wt, w, m * sizeof(float));
    memcpy(xt, x, m * sizeof(float));
    for (int k = 0; k < 4; k++) {
        __m256i i =
            _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * k));
        __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)m), i);
        __m256 old = _mm256_load_ps(lane + 8 * k);
        __m256 sum = _mm256_fmadd_ps(_mm256_load_ps(wt + 8 * k), _mm256_load_ps(xt + 8 * k), old);
        _mm256_store_ps(lane + 8 * k, _mm256_blendv_ps(old, sum, _mm256_castsi256_ps(inside)));
    }
}

/* Adds m columns of nr rows times one vector to the lanes. */
CSN_INLINE void add_piece(const void *const w[ROWS], int nr, const float *x, uint64_t m,
                          float (*lane)[32]) {
    __m256 acc[ROWS][4];
    CSN_UNROLL
    for (int r = 0; r < nr; r++) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            acc[r][k] = _mm256_load_ps(lane[r] + 8 * k);
        }
    }
    uint64_t i = 0;
    for (; i + 32 <= m; i += 32) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256 v = load8(x, i + 8 * (uint64_t)k);
            CSN_UNROLL
            for (int r = 0; r < nr; r++) {
                acc[r][k] = _mm256_fmadd_ps(load8(w[r], i + 8 * (uint64_t)k), v, acc[r][k]);
            }
        }
    }
    CSN_UNROLL
    for (int r = 0; r < nr; r++) {
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            _mm256_store_ps(lane[r] + 8 * k, acc[r][k]);
        }
        if (i < m) {
            add_tail((const float *)w[r] + i, x + i, m - i, lane[r]);
        }
    }
}

CSN_INLINE float tree32(const float *lane) {
    __m256 a = _mm256_add_ps(_mm256_load_ps(lane), _mm256_load_ps(lane + 16));
    __m256 b = _mm256_add_ps(_mm256_load_ps(lane + 8), _mm256_load_ps(lane + 24));
    return csn_tree_avx2(_mm256_add_ps(a, b));
}

CSN_INLINE void matmul(decode_fn decode, const csn_matrix *w, const float *x, uint64_t x_stride,
                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    _Alignas(64) float buf[ROWS][PIECE];
    _Alignas(64) float lane[CHUNK][ROWS][32];
    for (uint64_t t0 = 0; t0 < n; t0 += CHUNK) {
        uint64_t nt = n - t0 < CHUNK ? n - t0 : CHUNK;
        for (uint64_t r = r0; r < r1; r += ROWS) {
            int nr = r1 - r < ROWS ? (int)(r1 - r) : ROWS;
            memset(lane, 0, nt * sizeof(lane[0]));
            for (uint64_t c = 0; c < w->cols; c += PIECE) {
                uint64_t m = w->cols - c < PIECE ? w->cols - c : PIECE;
                const void *rows[ROWS] = {0};
                for (int i = 0; i < ROWS; i++) {
                    rows[i] = i < nr ? decode(w, r + (uint64_t)i, c, m, buf[i]) : rows[0];
                }
                for (uint64_t t = 0; t < nt; t++) {
                    const float *xt = x + (t0 + t) * x_stride + c;
                    if (nr == ROWS) {
                        add_piece(rows, ROWS, xt, m, lane[t]);
                    } else {
                        for (int i = 0; i < nr; i++) {
                            add_piece(rows + i, 1, xt, m, lane[t] + i);
                        }
                    }
                }
            }
            for (uint64_t t = 0; t < nt; t++) {
                for (int i = 0; i < nr; i++) {
                    y[(t0 + t) * y_stride + r + (uint64_t)i] = tree32(lane[t][i]);
                }
            }
        }
    }
}

/* ---- decoders: the same operations as quant/<dtype>.c ---- */

CSN_INLINE const void *decode_any(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    w->dtype->decode(w, r * w->cols + c, m, buf);
    return buf;
}

CSN_INLINE const void *decode_f32(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    (void)m;
    (void)buf;
    return w->data + 4 * (r * w->cols + c);
}

CSN_INLINE const void *decode_f16(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint8_t *p = w->data + 2 * (r * w->cols + c);
    uint64_t i = 0;
    for (; i + 8 <= m; i += 8) {
        _mm256_store_ps(buf + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 2 * i))));
    }
    for (; i < m; i++) {
        buf[i] = csn_scale16(p + 2 * i);
    }
    return buf;
}

CSN_INLINE const void *decode_bf16(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const uint8_t *p = w->data + 2 * (r * w->cols + c);
    uint64_t i = 0;
    for (; i + 8 <= m; i += 8) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 2 * i)));
        _mm256_store_si256((void *)(buf + i), _mm256_slli_epi32(v, 16));
    }
    for (; i < m; i++) {
        uint32_t bits = (uint32_t)csn_load16(p + 2 * i) << 16;
        memcpy(buf + i, &bits, sizeof(bits));
    }
    return buf;
}

CSN_INLINE __m256 eight_codes(const int8_t *q) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)q)));
}

CSN_INLINE const void *decode_q8_row(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                     float *buf) {
    const int8_t *q = (const int8_t *)w->data + r * w->cols + c;
    float s = csn_scale16(w->data + w->rows * w->cols + 2 * r);
    uint64_t i = 0;
    for (; i + 8 <= m; i += 8) {
        _mm256_store_ps(buf + i, _mm256_mul_ps(eight_codes(q + i), _mm256_set1_ps(s)));
    }
    for (; i < m; i++) {
        buf[i] = (float)q[i] * s;
    }
    return buf;
}

CSN_INLINE const void *decode_q8_2f(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                    float *buf) {
    const uint8_t *columns = w->data + w->rows * w->cols + 2 * w->rows + 2 * c;
    decode_q8_row(w, r, c, m, buf);
    uint64_t i = 0;
    for (; i + 8 <= m; i += 8) {
        __m256 f = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(columns + 2 * i)));
        _mm256_store_ps(buf + i, _mm256_mul_ps(_mm256_load_ps(buf + i), f));
    }
    for (; i < m; i++) {
        buf[i] *= csn_scale16(columns + 2 * i);
    }
    return buf;
}

/* One group: 16 bytes of nibbles, low ones the even columns. */
CSN_INLINE void decode_nibbles(const uint8_t *nib, float scale, float *out) {
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i eight = _mm_set1_epi8(8);
    __m128i n = _mm_loadu_si128((const void *)nib);
    __m128i even = _mm_sub_epi8(_mm_and_si128(n, mask), eight);
    __m128i odd = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(n, 4), mask), eight);
    __m128i half[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
    for (int h = 0; h < 2; h++) {
        __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half[h]));
        __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half[h], 8)));
        _mm256_store_ps(out + 16 * h, _mm256_mul_ps(a, _mm256_set1_ps(scale)));
        _mm256_store_ps(out + 16 * h + 8, _mm256_mul_ps(b, _mm256_set1_ps(scale)));
    }
}

CSN_INLINE const void *decode_q4_tiled(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                       float *buf) {
    if (w->cols % 32 != 0) {
        return decode_any(w, r, c, m, buf);
    }
    const uint8_t *p = w->data + (r * w->cols + c) / 32 * 18;
    for (uint64_t i = 0; i < m; i += 32, p += 18) {
        decode_nibbles(p + 2, csn_scale16(p), buf + i);
    }
    return buf;
}

CSN_INLINE const void *decode_q4_block(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                       float *buf) {
    if (w->cols % 32 != 0) {
        return decode_any(w, r, c, m, buf);
    }
    uint64_t g = (r * w->cols + c) / 32;
    const uint8_t *scales = w->data + w->rows * w->cols / 32 * 16;
    for (uint64_t i = 0; i < m; i += 32, g++) {
        decode_nibbles(w->data + g * 16, csn_scale16(scales + 2 * g), buf + i);
    }
    return buf;
}

/* f16 scales of row r from the group of column c on; c is a multiple of 128, as is PIECE. */
CSN_INLINE const uint8_t *scales128(const csn_matrix *w, uint64_t row_bytes, uint64_t r,
                                    uint64_t c) {
    return w->data + w->rows * row_bytes + 2 * (r * csn_group128_count(w->cols) + c / CSN_GROUP128);
}

/* Rows are padded to whole groups, so eight columns may be decoded where fewer are left. */
CSN_INLINE const void *decode_q8g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t row_bytes = csn_group128_count(w->cols) * CSN_GROUP128;
    const int8_t *q = (const int8_t *)w->data + r * row_bytes + c;
    const uint8_t *scales = scales128(w, row_bytes, r, c);
    for (uint64_t i = 0; i < m; scales += 2) {
        const __m256 s = _mm256_set1_ps(csn_scale16(scales));
        for (uint64_t end = i + CSN_GROUP128; i < m && i < end; i += 8) {
            _mm256_store_ps(buf + i, _mm256_mul_ps(eight_codes(q + i), s));
        }
    }
    return buf;
}

CSN_INLINE const void *decode_q4g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t row_bytes = csn_group128_count(w->cols) * (CSN_GROUP128 / 2);
    const uint8_t *nib = w->data + r * row_bytes + c / 2;
    const uint8_t *scales = scales128(w, row_bytes, r, c);
    for (uint64_t i = 0; i < m; scales += 2) {
        const float s = csn_scale16(scales);
        for (uint64_t end = i + CSN_GROUP128; i < m && i < end; i += 32) {
            decode_nibbles(nib + i / 2, s, buf + i);
        }
    }
    return buf;
}

struct vbit { /* a csn_matrix, and where its rows lie */
    csn_matrix m;
    csn_vbit v;
    csn_vbit_at *at;
};

CSN_INLINE const void *decode_vbit(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const struct vbit *b = (const struct vbit *)(const void *)w; /* its first member */
    const unsigned bits = b->v.bits[r];
    const __m256i zero = _mm256_set1_epi32(csn_vbit_zero(bits));
    const uint8_t *p = csn_vbit_walk(&b->v, b->at, r) + c / 32 * 4 * bits;
    const uint8_t *scale = b->v.scales + 2 * (r * b->v.n_groups + c / 32);
    uint8_t room[VBIT_ROOM];
    for (uint64_t i = 0; i < m; i += 32, p += 4 * bits, scale += 2) {
        const uint8_t *safe = vbit_safe(w, p, 4 * bits, room);
        _Alignas(32) uint8_t code[32];
        const __m256 s = _mm256_set1_ps(csn_scale16(scale));
        _mm256_store_si256((void *)code, bits == 8 ? csn_load256(safe) : vbit_codes(safe, bits));
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(code + 8 * k)));
            v = _mm256_sub_epi32(v, zero);
            _mm256_store_ps(buf + i + 8 * k, _mm256_mul_ps(_mm256_cvtepi32_ps(v), s));
        }
    }
    return buf;
}

#define DEFINE(dtype)                                                                              \
    void csn_matmul_f32_##dtype##_avx2(const csn_matrix *w, const float *x, uint64_t x_stride,     \
                                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0,       \
                                       uint64_t r1) {                                              \
        matmul(decode_##dtype, w, x, x_stride, n, y, y_stride, r0, r1);                            \
    }
DEFINE(any)
DEFINE(f32)
DEFINE(f16)
DEFINE(bf16)
DEFINE(q8_row)
DEFINE(q8_2f)
DEFINE(q4_block)
DEFINE(q4_tiled)
DEFINE(q8g)
DEFINE(q4g)

void csn_matmul_f32_vbit_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                              float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (w->rows < VBIT_MIN_ROWS) {
        matmul(decode_any, w, x, x_stride, n, y, y_stride, r0, r1);
        return;
    }
    const csn_vbit v = csn_vbit_parts(w);
    csn_vbit_at at = {r0, csn_vbit_row(&v, r0)};
    const struct vbit m = {*w, v, &at};
    matmul(decode_vbit, &m.m, x, x_stride, n, y, y_stride, r0, r1);
}

void csn_matmul_f32_vbit_ro_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_f32_vbit_avx2(w, x, x_stride, n, y, y_stride, r0, r1);
}
