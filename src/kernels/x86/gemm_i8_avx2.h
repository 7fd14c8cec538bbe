/* SPDX-License-Identifier: Apache-2.0 */
/* Batched int8 product for AVX2, included by a kernel file that says how to pack its rows.
 *
 * The idea: vpmaddubsw wants an unsigned factor, and sums of 16 products of a 4-bit code and an
 * int8 fit its i16 lanes (16 * 15 * 127 = 30480). So weights are packed as 4-bit planes, and the
 * sum of a whole group stays in i16, one lane pair a row, until one vpmaddwd ends it. 4-bit dtypes
 * need one plane, so two octets of rows share a pass; 8-bit codes are w + 128 = 16 * high + low.
 * Either way a step multiplies two plane vectors (8 rows x 4 columns each) by 4 codes of each of up
 * to six vectors of x: 12 accumulators. The sums start at csn_x8.offset, which
 * takes away what codes stored as code + 8 leave over; they may wrap on the way, their end fits.
 *
 * Scaled group sums are added to 8 lanes an output in memory (L1): the same additions, in the same
 * order, as the single-vector kernel.
 */
#ifndef CSN_KERNELS_X86_GEMM_I8_AVX2_H
#define CSN_KERNELS_X86_GEMM_I8_AVX2_H

#include "kernels/x86/i8_avx2.h"

/* Two octets of rows with 4-bit codes and a scale a group; or one octet with 8-bit codes and a
 * scale a row, or a group. */
enum gemm_form { GEMM_4BIT, GEMM_8BIT, GEMM_8BIT_GROUPS };

enum {
    GEMM_COLS = 6,     /* vectors of x in a tile */
    GEMM_GROUPS = 128, /* groups of a packed panel: 64 KiB of planes, 1/8 of an L2 */
    GEMM_CHUNK = 96    /* vectors whose lanes are kept when a row is longer than a panel */
};

struct gemm_panel {
    _Alignas(64) uint8_t plane[GEMM_GROUPS][8][2][32]; /* [group][4 columns][plane][8 rows][4] */
    _Alignas(64) float scale[GEMM_GROUPS][2][8];       /* of groups: [group][octet][row] */
};

/* Packs groups [g0, g0 + ng) of `n_rows` rows from r on (8 for 8-bit, 16 for 4-bit; rows past the
 * last repeat it). */
typedef void (*gemm_pack_fn)(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                             struct gemm_panel *p);

/* Stores the codes of 32 columns of eight rows; only for packing 4-bit codes. */
CSN_INLINE void gemm_store_codes(__m256i v[8], uint8_t (*plane)[2][32], uint64_t octet) {
    csn_transpose8(v);
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        _mm256_store_si256((void *)plane[j][octet], v[j]);
    }
}

/* Stores int8 weights of 32 columns of eight rows as the two planes of w + 128. */
CSN_INLINE void gemm_store_int8(__m256i v[8], uint8_t (*plane)[2][32]) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i flip = _mm256_set1_epi8(-128);
    CSN_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm256_xor_si256(v[i], flip);
    }
    csn_transpose8(v);
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[j], 4), low);
        _mm256_store_si256((void *)plane[j][0], high);
        _mm256_store_si256((void *)plane[j][1], _mm256_and_si256(v[j], low));
    }
}

/* Packs tiles of 32 columns that begin with their f16 scale; codes_of makes codes + 8. */
CSN_INLINE void gemm_pack_tiles(__m256i (*codes_of)(const uint8_t *tile), const csn_matrix *w,
                                uint64_t tile_bytes, uint64_t r, uint64_t r1, uint64_t g0,
                                uint64_t ng, struct gemm_panel *p) {
    for (uint64_t o = 0; o < 2; o++) {
        const uint8_t *row[8];
        for (uint64_t i = 0; i < 8; i++) {
            uint64_t a = r + o * 8 + i < r1 ? r + o * 8 + i : r1 - 1;
            row[i] = w->data + (a * (w->cols / 32) + g0) * tile_bytes;
        }
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (int i = 0; i < 8; i++) {
                v[i] = codes_of(row[i] + g * tile_bytes);
                p->scale[g][o][i] = csn_scale16(row[i] + g * tile_bytes);
            }
            gemm_store_codes(v, p->plane[g], o);
        }
    }
}

/* One group of one tile: i16 sums of plane 0 and 1 with nc vectors. */
CSN_INLINE void gemm_dots(const uint8_t (*plane)[2][32], const int8_t *q, uint64_t q_stride, int nc,
                          __m256i *a, __m256i *b) {
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i w0 = _mm256_load_si256((const void *)plane[j][0]);
        __m256i w1 = _mm256_load_si256((const void *)plane[j][1]);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m256i x = _mm256_set1_epi32(csn_load32(q + (uint64_t)c * q_stride + 4 * j));
            CSN_MULTIPLY_ADD(a[c], w0, x);
            CSN_MULTIPLY_ADD(b[c], w1, x);
        }
    }
}

/* Adds ng groups from g0 on to the lanes of nc vectors from t on. lane: [8][nc * octets][8 rows] */
CSN_INLINE void gemm_tile(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                          uint64_t t, int nc, uint64_t g0, uint64_t ng, float *lane) {
    const bool is_8bit = form != GEMM_4BIT;
    const __m256i one = _mm256_set1_epi16(1);
    const int8_t *q = x->q + t * x->q_stride + g0 * 32;
    const float *scale = x->scale + t * x->g_stride + g0;
    const int16_t *offset = x->offset + (t * x->g_stride + g0) * 2;
    for (uint64_t g = 0; g < ng; g++) {
        __m256i a[GEMM_COLS];
        __m256i b[GEMM_COLS];
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            a[c] = _mm256_set1_epi32(csn_load32(offset + ((uint64_t)c * x->g_stride + g) * 2));
            b[c] = is_8bit ? _mm256_setzero_si256() : a[c];
        }
        gemm_dots(p->plane[g], q + g * 32, x->q_stride, nc, a, b);
        float *l = lane + (g0 + g) % 8 * (uint64_t)(is_8bit ? nc : 2 * nc) * 8;
        __m256 s0 = _mm256_load_ps(p->scale[g][0]);
        __m256 s1 = _mm256_load_ps(p->scale[g][1]);
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            __m256 xs = _mm256_broadcast_ss(scale + (uint64_t)c * x->g_stride + g);
            if (is_8bit) {
                __m256i v = _mm256_add_epi32(_mm256_madd_epi16(a[c], _mm256_set1_epi16(16)),
                                             _mm256_madd_epi16(b[c], one));
                xs = form == GEMM_8BIT_GROUPS ? _mm256_mul_ps(s0, xs) : xs;
                __m256 f = _mm256_mul_ps(xs, _mm256_cvtepi32_ps(v));
                _mm256_store_ps(l + 8 * c, _mm256_add_ps(_mm256_load_ps(l + 8 * c), f));
            } else {
                __m256i v0 = _mm256_madd_epi16(a[c], one);
                __m256i v1 = _mm256_madd_epi16(b[c], one);
                __m256 f0 = _mm256_mul_ps(_mm256_mul_ps(s0, xs), _mm256_cvtepi32_ps(v0));
                __m256 f1 = _mm256_mul_ps(_mm256_mul_ps(s1, xs), _mm256_cvtepi32_ps(v1));
                float *m = l + 16 * c;
                _mm256_store_ps(m, _mm256_add_ps(_mm256_load_ps(m), f0));
                _mm256_store_ps(m + 8, _mm256_add_ps(_mm256_load_ps(m + 8), f1));
            }
        }
    }
}

/* The same for nc known only at run time. */
CSN_INLINE void gemm_tile_any(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                              uint64_t t, uint64_t nc, uint64_t g0, uint64_t ng, float *lane) {
    switch (nc) {
    case 1: gemm_tile(p, form, x, t, 1, g0, ng, lane); break;
    case 2: gemm_tile(p, form, x, t, 2, g0, ng, lane); break;
    case 3: gemm_tile(p, form, x, t, 3, g0, ng, lane); break;
    case 4: gemm_tile(p, form, x, t, 4, g0, ng, lane); break;
    case 5: gemm_tile(p, form, x, t, 5, g0, ng, lane); break;
    default: gemm_tile(p, form, x, t, 6, g0, ng, lane); break;
    }
}

/* Halving tree over the lanes of one tile, row scale (NULL: none), and out. m = outputs / 8. */
CSN_INLINE void gemm_finish(const float *lane, int octets, uint64_t nc, const float *row_scale,
                            float *y, uint64_t y_stride, uint64_t r, uint64_t r1) {
    uint64_t m = nc * (uint64_t)octets;
    for (uint64_t i = 0; i < m; i++) {
        __m256 v[8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = _mm256_load_ps(lane + ((uint64_t)k * m + i) * 8);
        }
        __m256 s = csn_tree_of_lanes(v);
        if (row_scale != NULL) {
            s = _mm256_mul_ps(_mm256_loadu_ps(row_scale), s);
        }
        uint64_t row = r + i % (uint64_t)octets * 8;
        if (row < r1) {
            csn_store_rows(y + i / (uint64_t)octets * y_stride + row, s, r1 - row);
        }
    }
}

/* y for rows [r0, r1) and n vectors. row_scale: f16 of every row, or NULL. */
CSN_INLINE void gemm_i8(gemm_pack_fn pack, const void *ctx, enum gemm_form form,
                        const uint8_t *row_scale, const csn_x8 *x, uint64_t n, float *y,
                        uint64_t y_stride, uint64_t r0, uint64_t r1) {
    struct gemm_panel panel;
    _Alignas(64) float lane[GEMM_CHUNK / GEMM_COLS][8 * GEMM_COLS * 16];
    const int octets = form == GEMM_4BIT ? 2 : 1;
    const uint64_t step = 8 * (uint64_t)octets;
    const bool fits = x->n_groups <= GEMM_GROUPS;
    const uint64_t chunk = fits ? n : GEMM_CHUNK;
    for (uint64_t r = r0; r < r1; r += step) {
        float scales[8];
        for (uint64_t i = 0; row_scale != NULL && i < 8; i++) {
            scales[i] = csn_scale16(row_scale + 2 * (r + i < r1 ? r + i : r1 - 1));
        }
        for (uint64_t t0 = 0; t0 < n; t0 += chunk) {
            uint64_t t1 = n - t0 < chunk ? n : t0 + chunk;
            for (uint64_t g0 = 0; g0 < x->n_groups; g0 += GEMM_GROUPS) {
                uint64_t ng = x->n_groups - g0 < GEMM_GROUPS ? x->n_groups - g0 : GEMM_GROUPS;
                pack(ctx, r, r1, g0, ng, &panel);
                for (uint64_t t = t0; t < t1; t += GEMM_COLS) {
                    uint64_t nc = t1 - t < GEMM_COLS ? t1 - t : GEMM_COLS;
                    float *l = lane[fits ? 0 : (t - t0) / GEMM_COLS];
                    if (g0 == 0) {
                        memset(l, 0, 8 * nc * (uint64_t)octets * 8 * sizeof(float));
                    }
                    gemm_tile_any(&panel, form, x, t, nc, g0, ng, l);
                    if (g0 + ng == x->n_groups) {
                        gemm_finish(l, octets, nc, row_scale != NULL ? scales : NULL,
                                    y + t * y_stride, y_stride, r, r1);
                    }
                }
            }
        }
    }
}

#endif
