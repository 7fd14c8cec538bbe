/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, NEON: the 32 lanes of kernels.h are eight vectors. A row is decoded piece by piece, and
 * each piece meets all vectors of x. */
#include <math.h>

#include "kernels/arm/neon.h"
#include "quant/group128.h"

enum {
    PIECE = 1024, /* columns decoded at once: 4 KiB, stays in L1 */
    CHUNK = 32    /* vectors whose lanes are kept between pieces: 4 KiB */
};

/* Values of columns [c, c + m) of row r: in `buf`, or where they lie; c is a multiple of PIECE. */
typedef const void *(*decode_fn)(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                 float *buf);

/* lane += w * x over m columns; w is not aligned. */
static void add_piece(const void *w, const float *x, uint64_t m, float *lane) {
    float32x4_t acc[8];
    CSN_UNROLL
    for (int k = 0; k < 8; k++) {
        acc[k] = vld1q_f32(lane + 4 * k);
    }
    uint64_t i = 0;
    for (; i + 32 <= m; i += 32) {
        CSN_UNROLL
        for (uint64_t k = 0; k < 8; k++) {
            float32x4_t v = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)w + 4 * i + 16 * k));
            acc[k] = vfmaq_f32(acc[k], v, vld1q_f32(x + i + 4 * k));
        }
    }
    CSN_UNROLL
    for (int k = 0; k < 8; k++) {
        vst1q_f32(lane + 4 * k, acc[k]);
    }
    for (; i < m; i++) {
        float v;
        memcpy(&v, (const uint8_t *)w + 4 * i, sizeof(v));
        lane[i % 32] = fmaf(v, x[i], lane[i % 32]);
    }
}

CSN_INLINE void matmul(decode_fn decode, const csn_matrix *w, const float *x, uint64_t x_stride,
                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    float buf[PIECE];
    float lane[CHUNK][32];
    for (uint64_t t0 = 0; t0 < n; t0 += CHUNK) {
        const uint64_t nt = n - t0 < CHUNK ? n - t0 : CHUNK;
        for (uint64_t r = r0; r < r1; r++) {
            memset(lane, 0, nt * sizeof(lane[0]));
            for (uint64_t c = 0; c < w->cols; c += PIECE) {
                const uint64_t m = w->cols - c < PIECE ? w->cols - c : PIECE;
                const void *row = decode(w, r, c, m, buf);
                for (uint64_t t = 0; t < nt; t++) {
                    add_piece(row, x + (t0 + t) * x_stride + c, m, lane[t]);
                }
            }
            for (uint64_t t = 0; t < nt; t++) {
                y[(t0 + t) * y_stride + r] = csn_tree32(lane[t]);
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

CSN_INLINE void scale_16(int8x16_t q, float scale, float *out) {
    CSN_UNROLL
    for (int k = 0; k < 4; k++) {
        vst1q_f32(out + 4 * k, vmulq_n_f32(csn_four_codes(q, k), scale));
    }
}

CSN_INLINE const void *decode_q8_row(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                     float *buf) {
    const int8_t *q = (const int8_t *)w->data + r * w->cols + c;
    const float s = csn_scale16(w->data + w->rows * w->cols + 2 * r);
    uint64_t i = 0;
    for (; i + 16 <= m; i += 16) {
        scale_16(vld1q_s8(q + i), s, buf + i);
    }
    for (; i < m; i++) {
        buf[i] = (float)q[i] * s;
    }
    return buf;
}

/* Rows are padded to whole groups of 128, so more columns may be decoded than are left. */
CSN_INLINE const void *decode_q8g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t groups = csn_group128_count(w->cols);
    const int8_t *q = (const int8_t *)w->data + r * groups * CSN_GROUP128 + c;
    const uint8_t *scale =
        w->data + w->rows * groups * CSN_GROUP128 + 2 * (r * groups + c / CSN_GROUP128);
    for (uint64_t i = 0; i < m; i += 16) {
        scale_16(vld1q_s8(q + i), csn_scale16(scale + i / CSN_GROUP128 * 2), buf + i);
    }
    return buf;
}

CSN_INLINE const void *decode_q4g(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint64_t groups = csn_group128_count(w->cols);
    const uint8_t *nib = w->data + r * groups * (CSN_GROUP128 / 2) + c / 2;
    const uint8_t *scale =
        w->data + w->rows * groups * (CSN_GROUP128 / 2) + 2 * (r * groups + c / CSN_GROUP128);
    for (uint64_t i = 0; i < m; i += 32) {
        const float s = csn_scale16(scale + i / CSN_GROUP128 * 2);
        const int8x16x2_t n = csn_nibbles(nib + i / 2);
        scale_16(vzip1q_s8(n.val[0], n.val[1]), s, buf + i);
        scale_16(vzip2q_s8(n.val[0], n.val[1]), s, buf + i + 16);
    }
    return buf;
}

#define CSN_DEFINE_F32(dtype)                                                                      \
    void csn_matmul_f32_##dtype##_neon(const csn_matrix *w, const float *x, uint64_t x_stride,     \
                                       uint64_t n, float *y, uint64_t y_stride, uint64_t r0,       \
                                       uint64_t r1) {                                              \
        matmul(decode_##dtype, w, x, x_stride, n, y, y_stride, r0, r1);                            \
    }

CSN_DEFINE_F32(any)
CSN_DEFINE_F32(f32)
CSN_DEFINE_F32(q8_row)
CSN_DEFINE_F32(q8g)
CSN_DEFINE_F32(q4g)
