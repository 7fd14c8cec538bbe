/* SPDX-License-Identifier: Apache-2.0 */
/* Batched int8 product for AVX-512 with VNNI, included by a kernel file that says how to pack its
 * rows.
 *
 * A panel holds sixteen rows as unsigned bytes, code + 128 or code + 8, four columns of all rows a
 * vector. vpdpbusd multiplies it by four codes of one vector of x, which are broadcast, and adds to
 * one sum a row; sums begin at what the codes' offset leaves over. Twelve vectors of x share a
 * reading of the panel.
 *
 * The bound is the unit of vpdpbusd: a group is 8 of them, and its scale one multiplication on the
 * same ports (two where groups have scales). So the lanes of kernels.h are computed one after the
 * other, over every eighth group, and stay in registers: nothing else is paid for a group.
 */
#ifndef CSN_KERNELS_X86_GEMM_I8_AVX512_H
#define CSN_KERNELS_X86_GEMM_I8_AVX512_H

#include "kernels/x86/i8_avx2.h"

#ifdef __clang__
#define GEMM_UNROLL _Pragma("unroll")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 12")
#endif

enum gemm_form { GEMM_4BIT, GEMM_8BIT, GEMM_8BIT_GROUPS }; /* a scale a group, a row, a group */

enum {
    GEMM_ROWS = 16,
    GEMM_COLS = 12,    /* vectors of x in a tile */
    GEMM_GROUPS = 128, /* groups of a packed panel: 64 KiB of codes */
    GEMM_CHUNK = 96    /* vectors whose lanes are kept when a row is longer than a panel */
};

struct gemm_panel {
    _Alignas(64) uint8_t code[GEMM_GROUPS][8][GEMM_ROWS][4]; /* [group][4 columns][row] */
    _Alignas(64) float scale[GEMM_GROUPS][GEMM_ROWS];        /* of groups */
};

/* Decoding: packing does not pay. */
CSN_INLINE bool gemm_is_few(const csn_x8 *x, uint64_t n) {
    return n <= CSN_FEW_VECTORS && x->pair != NULL;
}

/* Packs groups [g0, g0 + ng) of sixteen rows from r on (rows past the last, r1 - 1, repeat it). */
typedef void (*gemm_pack_fn)(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                             struct gemm_panel *p);

/* One lane of a tile. */
typedef float gemm_lane[GEMM_COLS][GEMM_ROWS];

/* Where the sums of nc vectors' groups begin. */
CSN_INLINE void gemm_begin(enum gemm_form form, const csn_x8 *x, uint64_t t, int nc, uint64_t g0,
                           uint64_t ng, int32_t begin[GEMM_COLS][GEMM_GROUPS]) {
    /* csn_x8.offset is for codes + 8, in two parts */
    const __m256i factor = _mm256_set1_epi16(form == GEMM_4BIT ? 1 : 16);
    for (int c = 0; c < nc; c++) {
        const int16_t *offset = x->offset + ((t + (uint64_t)c) * x->g_stride + g0) * 2;
        for (uint64_t g = 0; g < ng; g += 8) {
            _mm256_store_si256((void *)(begin[c] + g),
                               _mm256_madd_epi16(csn_load256(offset + 2 * g), factor));
        }
    }
}

/* The scaled sums of group g of a panel with nc vectors are added to acc. */
CSN_INLINE void gemm_group(const struct gemm_panel *p, enum gemm_form form, const int8_t *q,
                           uint64_t q_stride, const float *scale, uint64_t g_stride,
                           const int32_t begin[GEMM_COLS][GEMM_GROUPS], int nc, uint64_t g,
                           __m512 acc[GEMM_COLS]) {
    __m512i sum[GEMM_COLS];
    GEMM_UNROLL
    for (int c = 0; c < nc; c++) {
        sum[c] = _mm512_set1_epi32(begin[c][g]);
    }
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        __m512i w = _mm512_load_si512((const void *)p->code[g][j]);
        GEMM_UNROLL
        for (int c = 0; c < nc; c++) {
            const int8_t *codes = q + (uint64_t)c * q_stride + g * 32 + (uint64_t)j * 4;
            sum[c] = _mm512_dpbusd_epi32(sum[c], w, _mm512_set1_epi32(csn_load32(codes)));
        }
    }
    __m512 ws = form == GEMM_8BIT ? _mm512_setzero_ps() : _mm512_load_ps(p->scale[g]);
    GEMM_UNROLL
    for (int c = 0; c < nc; c++) {
        __m512 s = _mm512_set1_ps(scale[(uint64_t)c * g_stride + g]);
        s = form == GEMM_8BIT ? s : _mm512_mul_ps(ws, s);
        acc[c] = _mm512_add_ps(acc[c], _mm512_mul_ps(s, _mm512_cvtepi32_ps(sum[c])));
    }
}

/* Adds ng groups from g0 on, a multiple of 8, to the lanes of nc vectors from t on. */
CSN_INLINE void gemm_tile(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                          uint64_t t, int nc, uint64_t g0, uint64_t ng, gemm_lane *lane) {
    _Alignas(64) int32_t begin[GEMM_COLS][GEMM_GROUPS];
    const int8_t *q = x->q + t * x->q_stride + g0 * 32;
    const float *scale = x->scale + t * x->g_stride + g0;
    gemm_begin(form, x, t, nc, g0, ng, begin);
    for (uint64_t k = 0; k < 8; k++) {
        __m512 acc[GEMM_COLS];
        GEMM_UNROLL
        for (int c = 0; c < nc; c++) {
            acc[c] = g0 == 0 ? _mm512_setzero_ps() : _mm512_load_ps(lane[k][c]);
        }
        for (uint64_t g = k; g < ng; g += 8) {
            gemm_group(p, form, q, x->q_stride, scale, x->g_stride, begin, nc, g, acc);
        }
        GEMM_UNROLL
        for (int c = 0; c < nc; c++) {
            _mm512_store_ps(lane[k][c], acc[c]);
        }
    }
}

/* Halving tree over the lanes of one tile, row scales (NULL: none), and out. */
CSN_INLINE void gemm_finish(gemm_lane *lane, uint64_t nc, const float *row_scale, float *y,
                            uint64_t y_stride, uint64_t r, uint64_t r1) {
    const __mmask16 rows = (__mmask16)(r1 - r < GEMM_ROWS ? (1u << (r1 - r)) - 1 : 0xFFFF);
    for (uint64_t c = 0; c < nc; c++) {
        __m512 v[8];
        CSN_UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = _mm512_load_ps(lane[k][c]);
        }
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = _mm512_add_ps(v[k], v[k + 4]);
        }
        __m512 s = _mm512_add_ps(_mm512_add_ps(v[0], v[2]), _mm512_add_ps(v[1], v[3]));
        if (row_scale != NULL) {
            s = _mm512_mul_ps(_mm512_load_ps(row_scale), s);
        }
        _mm512_mask_storeu_ps(y + c * y_stride + r, rows, s);
    }
}

/* Vectors of the next tile of `all` when `left` of them remain. More than left: the last are done
 * again. */
CSN_INLINE uint64_t gemm_width(uint64_t left, uint64_t all) {
    static const uint8_t widths[] = {1, 4, 8, GEMM_COLS};
    uint64_t nc = 1;
    for (size_t i = 1; i < sizeof(widths) && nc < left && widths[i] <= all; i++) {
        nc = widths[i];
    }
    return nc;
}

/* gemm_tile for nc known only at run time. */
CSN_INLINE void gemm_tile_any(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                              uint64_t t, uint64_t nc, uint64_t g0, uint64_t ng, gemm_lane *lane) {
    switch (nc) {
    case 1: gemm_tile(p, form, x, t, 1, g0, ng, lane); break;
    case 4: gemm_tile(p, form, x, t, 4, g0, ng, lane); break;
    case 8: gemm_tile(p, form, x, t, 8, g0, ng, lane); break;
    default: gemm_tile(p, form, x, t, GEMM_COLS, g0, ng, lane); break;
    }
}

/* y for rows [r0, r1) and n vectors. row_scale: f16 of every row, or NULL. */
CSN_INLINE void gemm_i8(gemm_pack_fn pack, const void *ctx, enum gemm_form form,
                        const uint8_t *row_scale, const csn_x8 *x, uint64_t n, float *y,
                        uint64_t y_stride, uint64_t r0, uint64_t r1) {
    struct gemm_panel panel;
    _Alignas(64) gemm_lane lane[GEMM_CHUNK / GEMM_COLS][8];
    const bool fits = x->n_groups <= GEMM_GROUPS;
    const uint64_t chunk = fits ? n : GEMM_CHUNK;
    for (uint64_t r = r0; r < r1; r += GEMM_ROWS) {
        _Alignas(64) float scales[GEMM_ROWS];
        for (uint64_t i = 0; row_scale != NULL && i < GEMM_ROWS; i++) {
            scales[i] = csn_scale16(row_scale + 2 * (r + i < r1 ? r + i : r1 - 1));
        }
        for (uint64_t t0 = 0; t0 < n; t0 += chunk) {
            const uint64_t t1 = n - t0 < chunk ? n : t0 + chunk;
            for (uint64_t g0 = 0; g0 < x->n_groups; g0 += GEMM_GROUPS) {
                const uint64_t ng = x->n_groups - g0 < GEMM_GROUPS ? x->n_groups - g0 : GEMM_GROUPS;
                pack(ctx, r, r1, g0, ng, &panel);
                gemm_lane *l = lane[0];
                for (uint64_t t = t0; t < t1;) {
                    const uint64_t nc = gemm_width(t1 - t, t1 - t0);
                    t = t + nc < t1 ? t : t1 - nc;
                    gemm_tile_any(&panel, form, x, t, nc, g0, ng, l);
                    if (g0 + ng == x->n_groups) {
                        gemm_finish(l, nc, row_scale != NULL ? scales : NULL, y + t * y_stride,
                                    y_stride, r, r1);
                    }
                    t += nc;
                    l += fits ? 0 : 8;
                }
            }
        }
    }
}

#endif
