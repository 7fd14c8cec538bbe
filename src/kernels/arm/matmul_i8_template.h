/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8_row, q8_2f, q4_block, q4_tiled, q8g and q4g (kernels/ref says what they mean).
 * Included once an instruction set, with
 *   CSN_ISA(name)                        the function of a row of kernels.def
 *   static int32x4_t dot(a, x, b, y)     lanes whose sum is that of 16 products a x and 16 b y
 * Four groups of 32 columns make a vector of sums; lanes 0 to 3 and 4 to 7 of kernels.h take them
 * in turn. */
#include "kernels/arm/neon.h"
#include "quant/group128.h"

/* Where the rows of a matrix lie. */
struct rows {
    const uint8_t *codes, *scales;
    uint64_t row_bytes, group_bytes; /* of codes */
    uint64_t row_scales, scale_step; /* bytes from row to row, and from scale to scale */
    uint64_t groups_of_scale;        /* 0: a scale a row, which comes last */
    uint64_t n_groups, rest;         /* whole groups of a row, columns behind them */
};

/* Group g of a row times vector t. */
typedef int32x4_t (*group_fn)(const uint8_t *w, const csn_x8 *x, uint64_t t, uint64_t g);

CSN_INLINE int32x4_t group_8bit(const uint8_t *w, const csn_x8 *x, uint64_t t, uint64_t g) {
    const int8_t *q = x->q + t * x->q_stride + 32 * g;
    const int8_t *c = (const int8_t *)w;
    return dot(vld1q_s8(c), vld1q_s8(q), vld1q_s8(c + 16), vld1q_s8(q + 16));
}

CSN_INLINE int32x4_t group_4bit(const uint8_t *w, const csn_x8 *x, uint64_t t, uint64_t g) {
    const int8_t *q = x->split + t * x->q_stride + g / 2 * 64 + g % 2 * 16;
    const int8x16x2_t n = csn_nibbles(w);
    return dot(n.val[0], vld1q_s8(q), n.val[1], vld1q_s8(q + 32));
}

/* acc += (w_scale * x_scale) * sums for groups [g, g + 4) of one row, of which there are m. */
CSN_INLINE void add_four(group_fn group, const struct rows *k, const uint8_t *w,
                         const uint8_t *scale, const csn_x8 *x, uint64_t t, uint64_t g, uint64_t m,
                         float32x4_t *acc) {
    int32x4_t s[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    float ws[4] = {0};
    for (uint64_t i = 0; i < m; i++) {
        s[i] = group(w + i * k->group_bytes, x, t, g + i);
        if (k->groups_of_scale != 0) {
            ws[i] = csn_scale16(scale + (g + i) / k->groups_of_scale * k->scale_step);
        }
    }
    float32x4_t factor = vld1q_f32(x->scale + t * x->g_stride + g);
    if (k->groups_of_scale != 0) {
        factor = vmulq_f32(vld1q_f32(ws), factor);
    }
    int32x4_t sums = vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
    *acc = vaddq_f32(*acc, vmulq_f32(factor, vcvtq_f32_s32(sums)));
}

/* Row r times vector t. */
CSN_INLINE float one(group_fn group, const struct rows *k, const csn_x8 *x, uint64_t t,
                     uint64_t r) {
    const uint8_t *w = k->codes + r * k->row_bytes;
    const uint8_t *scale = k->scales + r * k->row_scales;
    float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    uint64_t g = 0;
    for (; g + 4 <= k->n_groups; g += 4) {
        add_four(group, k, w + g * k->group_bytes, scale, x, t, g, 4, &acc[g / 4 % 2]);
    }
    if (g < k->n_groups || k->rest > 0) { /* up to three groups and a part of one */
        uint8_t last[4 * 32] = {0};
        const uint64_t m = k->n_groups - g;
        if (k->rest > 0) {
            memcpy(last, w + g * k->group_bytes, m * k->group_bytes + k->rest);
        }
        add_four(group, k, k->rest > 0 ? last : w + g * k->group_bytes, scale, x, t, g,
                 m + (k->rest > 0), &acc[g / 4 % 2]);
    }
    float lane[8];
    vst1q_f32(lane, acc[0]);
    vst1q_f32(lane + 4, acc[1]);
    return k->groups_of_scale != 0 ? csn_tree8(lane) : csn_scale16(scale) * csn_tree8(lane);
}

CSN_INLINE void matmul(group_fn group, const struct rows *k, const csn_x8 *x, uint64_t n, float *y,
                       uint64_t y_stride, uint64_t r0, uint64_t r1) {
    for (uint64_t r = r0; r < r1; r++) {
        for (uint64_t t = 0; t < n; t++) {
            y[t * y_stride + r] = one(group, k, x, t, r);
        }
    }
}

static void load_scales(const uint8_t *f16, uint64_t m, float *out) {
    for (uint64_t r = 0; r < m; r++) {
        out[r] = csn_scale16(f16 + 2 * r);
    }
}

#include "kernels/exact_template.h"

/* The parameters of a matmul_i8 kernel, and the arguments that hand them on. */
#define PARAMETERS                                                                                 \
    const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride, uint64_t r0,    \
        uint64_t r1
#define ARGUMENTS x, n, y, y_stride, r0, r1

void CSN_ISA(csn_matmul_i8_q8_row)(PARAMETERS) {
    const struct rows k = {.codes = w->data,
                           .scales = w->data + w->rows * w->cols,
                           .row_bytes = w->cols,
                           .group_bytes = 32,
                           .row_scales = 2,
                           .n_groups = w->cols / 32,
                           .rest = w->cols % 32};
    matmul(group_8bit, &k, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_q8_2f)(PARAMETERS) {
    CSN_ISA(csn_matmul_i8_q8_row)(w, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_exact_q8_row)(PARAMETERS) {
    CSN_ISA(csn_matmul_i8_q8_row)(w, ARGUMENTS);
    add_exact(w, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_exact_q8_2f)(PARAMETERS) {
    CSN_ISA(csn_matmul_i8_exact_q8_row)(w, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_rows_q8_row)(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                        bool adds_exact, float *y, uint64_t y_stride,
                                        const uint32_t *rows, uint64_t n_rows) {
    for (uint64_t i = 0; i < n_rows; i++) {
        const uint64_t r = rows[i];
        (adds_exact ? CSN_ISA(csn_matmul_i8_exact_q8_row)
                    : CSN_ISA(csn_matmul_i8_q8_row))(w, x, n, y, y_stride, r, r + 1);
    }
}

void CSN_ISA(csn_matmul_i8_rows_q8_2f)(const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                       bool adds_exact, float *y, uint64_t y_stride,
                                       const uint32_t *rows, uint64_t n_rows) {
    CSN_ISA(csn_matmul_i8_rows_q8_row)(w, x, n, adds_exact, y, y_stride, rows, n_rows);
}

void CSN_ISA(csn_matmul_i8_q4_block)(PARAMETERS) {
    const uint64_t groups = w->cols / 32;
    const struct rows k = {.codes = w->data,
                           .scales = w->data + w->rows * groups * 16,
                           .row_bytes = 16 * groups,
                           .group_bytes = 16,
                           .row_scales = 2 * groups,
                           .scale_step = 2,
                           .groups_of_scale = 1,
                           .n_groups = groups};
    matmul(group_4bit, &k, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_q4_tiled)(PARAMETERS) {
    const uint64_t groups = w->cols / 32;
    const struct rows k = {.codes = w->data + 2,
                           .scales = w->data,
                           .row_bytes = 18 * groups,
                           .group_bytes = 18,
                           .row_scales = 18 * groups,
                           .scale_step = 18,
                           .groups_of_scale = 1,
                           .n_groups = groups};
    matmul(group_4bit, &k, ARGUMENTS);
}

/* A scale for four groups; those that pad a row count. */
CSN_INLINE struct rows rows_of_128(const csn_matrix *w, uint64_t group_bytes) {
    const uint64_t scales = csn_group128_count(w->cols);
    return (struct rows){.codes = w->data,
                         .scales = w->data + w->rows * scales * 4 * group_bytes,
                         .row_bytes = scales * 4 * group_bytes,
                         .group_bytes = group_bytes,
                         .row_scales = 2 * scales,
                         .scale_step = 2,
                         .groups_of_scale = 4,
                         .n_groups = 4 * scales};
}

void CSN_ISA(csn_matmul_i8_q8g)(PARAMETERS) {
    const struct rows k = rows_of_128(w, 32);
    matmul(group_8bit, &k, ARGUMENTS);
}

void CSN_ISA(csn_matmul_i8_q4g)(PARAMETERS) {
    const struct rows k = rows_of_128(w, 16);
    matmul(group_4bit, &k, ARGUMENTS);
}
