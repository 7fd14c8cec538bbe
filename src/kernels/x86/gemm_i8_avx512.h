/* SPDX-License-Identifier: Apache-2.0 */
/* Batched int8 product for AVX-512 with VNNI, included by a kernel file that says how to pack its
 * rows.
 *
 * A panel holds sixteen rows as unsigned bytes, code + 8, 127 or 128, four columns of all rows a
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

/* Codes + 8 and a scale a group; + 128, a row; + 127, which holds vbit's, a group. */
enum gemm_form { GEMM_4BIT, GEMM_8BIT, GEMM_8BIT_GROUPS };

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

/* What is kept of a tile: its eight lanes, then what each exact element adds. */
enum { GEMM_EXACT = 8, GEMM_KEPT = GEMM_EXACT + CSN_X8_EXACT };
typedef float gemm_lane[GEMM_COLS][GEMM_ROWS];

struct gemm_rows { /* of all rows: f16 scales and whether exact elements are added, or NULL */
    const uint8_t *scales;
    bool adds_exact;
};

/* Pointers into four vectors of x. */
struct gemm_x {
    const int8_t *q;
    const float *scale;
    const int32_t *minus;
};

/* The scaled sums of a group of four vectors, or of one, are added to acc. */
CSN_INLINE void gemm_quad(enum gemm_form form, const __m512i w[8], __m512 w_scale, struct gemm_x at,
                          uint64_t q_stride, uint64_t g_stride, int nc, __m512 *acc) {
    __m512i sum[4];
    const int8_t *q[4];
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        q[c] = at.q + (uint64_t)c * q_stride;
        __asm__("" : "+r"(q[c])); /* GCC 12 would keep a pointer for each load, and spill them */
        sum[c] = _mm512_set1_epi32(at.minus[(uint64_t)c * g_stride]);
        if (form == GEMM_8BIT_GROUPS) { /* it is for codes + 8 */
            sum[c] = _mm512_sub_epi32(_mm512_slli_epi32(sum[c], 4), _mm512_srai_epi32(sum[c], 3));
        } else if (form == GEMM_8BIT) {
            sum[c] = _mm512_slli_epi32(sum[c], 4);
        }
    }
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        CSN_UNROLL
        for (int c = 0; c < nc; c++) {
            const int32_t x = csn_load32(q[c] + 4 * j);
            sum[c] = _mm512_dpbusd_epi32(sum[c], w[j], _mm512_set1_epi32(x));
        }
    }
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        __m512 s = _mm512_set1_ps(at.scale[(uint64_t)c * g_stride]);
        s = form == GEMM_8BIT ? s : _mm512_mul_ps(w_scale, s);
        acc[c] = _mm512_add_ps(acc[c], _mm512_mul_ps(s, _mm512_cvtepi32_ps(sum[c])));
    }
}

/* The same for group g of a panel and the nc vectors of a tile. */
CSN_INLINE void gemm_group(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                           struct gemm_x at, int nc, uint64_t g, __m512 acc[GEMM_COLS]) {
    __m512i w[8];
    CSN_UNROLL
    for (int j = 0; j < 8; j++) {
        w[j] = _mm512_load_si512((const void *)p->code[g][j]);
    }
    __m512 w_scale = form == GEMM_8BIT ? _mm512_setzero_ps() : _mm512_load_ps(p->scale[g]);
    at.q += g * 32;
    at.scale += g;
    at.minus += g;
    CSN_UNROLL
    for (int c = 0; c < nc; c += 4) {
        __asm__("" : "+r"(at.q), "+r"(at.scale), "+r"(at.minus)); /* or to all vectors */
        gemm_quad(form, w, w_scale, at, x->q_stride, x->g_stride, nc < 4 ? nc : 4, acc + c);
        at.q += 4 * x->q_stride;
        at.scale += 4 * x->g_stride;
        at.minus += 4 * x->g_stride;
    }
}

/* Adds ng groups from g0 on, a multiple of 8, to the lanes of nc vectors from t on. */
CSN_INLINE void gemm_tile(const struct gemm_panel *p, enum gemm_form form, const csn_x8 *x,
                          uint64_t t, int nc, uint64_t g0, uint64_t ng, gemm_lane *lane) {
    const uint64_t group = t * x->g_stride + g0;
    const struct gemm_x at = {x->q + t * x->q_stride + g0 * 32, x->scale + group, x->minus + group};
    for (uint64_t k = 0; k < 8; k++) {
        __m512 acc[GEMM_COLS];
        GEMM_UNROLL
        for (int c = 0; c < nc; c++) {
            acc[c] = g0 == 0 ? _mm512_setzero_ps() : _mm512_load_ps(lane[k][c]);
        }
        for (uint64_t g = k; g < ng; g += 8) {
            gemm_group(p, form, x, at, nc, g, acc);
        }
        GEMM_UNROLL
        for (int c = 0; c < nc; c++) {
            _mm512_store_ps(lane[k][c], acc[c]);
        }
    }
}

/* Products of the exact elements whose columns this panel holds, of 8-bit codes. The panel has the
 * column of sixteen rows in one vector. */
CSN_INLINE void gemm_exact(const struct gemm_panel *p, __m512 row_scale, const csn_x8 *x,
                           uint64_t t, uint64_t nc, uint64_t g0, uint64_t ng, gemm_lane *lane) {
    for (uint64_t c = 0; c < nc; c++) {
        for (uint64_t k = 0; k < CSN_X8_EXACT; k++) {
            const uint64_t i = x->exact_i[(t + c) * CSN_X8_EXACT + k];
            const uint64_t g = i / 32 - g0;
            if (g >= ng) {
                continue;
            }
            __m512i w = _mm512_load_si512((const void *)p->code[g][i % 32 / 4]);
            w = _mm512_srl_epi32(w, _mm_cvtsi32_si128((int32_t)(i % 4 * 8)));
            w = _mm512_and_si512(w, _mm512_set1_epi32(255));
            w = _mm512_sub_epi32(w, _mm512_set1_epi32(128));
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(w), row_scale);
            v = _mm512_mul_ps(v, _mm512_set1_ps(x->exact_x[(t + c) * CSN_X8_EXACT + k]));
            _mm512_store_ps(lane[GEMM_EXACT + k][c], v);
        }
    }
}

/* Halving tree over the lanes of one tile, scales of rows, exact elements, and out. */
CSN_INLINE void gemm_finish(const gemm_lane *lane, uint64_t nc, const struct gemm_rows *rows,
                            __m512 row_scale, float *y, uint64_t y_stride, uint64_t r,
                            uint64_t r1) {
    const __mmask16 valid = (__mmask16)(r1 - r < GEMM_ROWS ? (1u << (r1 - r)) - 1 : 0xFFFF);
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
        if (rows != NULL) {
            s = _mm512_mul_ps(row_scale, s);
            for (int k = 0; rows->adds_exact && k < CSN_X8_EXACT; k++) {
                s = _mm512_add_ps(s, _mm512_load_ps(lane[GEMM_EXACT + k][c]));
            }
        }
        _mm512_mask_storeu_ps(y + c * y_stride + r, valid, s);
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

/* The f16 scales of sixteen rows from r on, the last repeated. */
CSN_INLINE __m512 gemm_scales16(const uint8_t *scales, uint64_t r, uint64_t r1) {
    _Alignas(32) uint16_t half[GEMM_ROWS];
    for (uint64_t i = 0; i < GEMM_ROWS; i++) {
        half[i] = csn_load16(scales + 2 * (r + i < r1 ? r + i : r1 - 1));
    }
    return _mm512_cvtph_ps(_mm256_load_si256((const void *)half));
}

/* y for rows [r0, r1) and n vectors. rows: of 8-bit codes with a scale a row, else NULL. */
CSN_INLINE void gemm_i8(gemm_pack_fn pack, const void *ctx, enum gemm_form form,
                        const struct gemm_rows *rows, const csn_x8 *x, uint64_t n, float *y,
                        uint64_t y_stride, uint64_t r0, uint64_t r1) {
    struct gemm_panel panel;
    _Alignas(64) gemm_lane lane[GEMM_CHUNK / GEMM_COLS][GEMM_KEPT];
    const bool fits = x->n_groups <= GEMM_GROUPS;
    const uint64_t chunk = fits ? n : GEMM_CHUNK;
    for (uint64_t r = r0; r < r1; r += GEMM_ROWS) {
        const __m512 row_scale =
            rows != NULL ? gemm_scales16(rows->scales, r, r1) : _mm512_setzero_ps();
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
                    if (rows != NULL && rows->adds_exact) {
                        gemm_exact(&panel, row_scale, x, t, nc, g0, ng, l);
                    }
                    if (g0 + ng == x->n_groups) {
                        gemm_finish(l, nc, rows, row_scale, y + t * y_stride, y_stride, r, r1);
                    }
                    t += nc;
                    l += fits ? 0 : GEMM_KEPT;
                }
            }
        }
    }
}

#endif
