/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of vq.h for NEON: the books by columns. */
#include <math.h>

#include "kernels/arm/neon.h"

enum {
    UNROLL = 4, /* vectors of four entries at once: hides the latency of eight fused steps */
    /* Values of a span that are kept between its two passes: 128 KiB. */
    MOST_OF_VECTOR = 4 * CSN_VQ_MAX_ENTRIES
};

CSN_INLINE void products(const float *column, uint64_t entries, const float *x, int n, float *t) {
    float32x4_t acc[UNROLL];
    CSN_UNROLL
    for (int k = 0; k < n; k++) {
        acc[k] = vmulq_n_f32(vld1q_f32(column + 4 * k), x[0]);
    }
    CSN_UNROLL
    for (uint64_t d = 1; d < CSN_VQ_DIM; d++) {
        CSN_UNROLL
        for (int k = 0; k < n; k++) {
            acc[k] = vfmaq_n_f32(acc[k], vld1q_f32(column + d * entries + 4 * k), x[d]);
        }
    }
    CSN_UNROLL
    for (int k = 0; k < n; k++) {
        vst1q_f32(t + 4 * k, acc[k]);
    }
}

/* All stages of one vector: t [stages][slots]. */
static void vector_f32(const csn_vq_books *b, const float *x, float *t) {
    const uint64_t slots = csn_vq_slots(b);
    for (uint64_t s = 0; s < b->stages; s++, t += slots) {
        const float *column = b->column + s * CSN_VQ_DIM * b->entries;
        uint64_t c = 0;
        for (; c + 4 * UNROLL <= b->entries; c += 4 * UNROLL) {
            products(column + c, b->entries, x, UNROLL, t + c);
        }
        for (; c < b->entries; c++) {
            t[c] = column[c] * x[0];
            for (uint64_t d = 1; d < CSN_VQ_DIM; d++) {
                t[c] = fmaf(column[d * b->entries + c], x[d], t[c]);
            }
        }
        memset(t + c, 0, (slots - c) * sizeof(float));
    }
}

void csn_vq_table_f32_any_neon(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                               uint64_t v1, void *table) {
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    (void)cols;
    for (uint64_t v = v0; v < v1; v++) {
        vector_f32(b, x + v * CSN_VQ_DIM, (float *)table + v * of_vector);
    }
}

/* The largest magnitude of n values, a multiple of 4, or a NaN. */
static float largest(const float *t, uint64_t n) {
    float32x4_t max = vdupq_n_f32(0);
    for (uint64_t i = 0; i < n; i += 4) {
        max = vmaxq_f32(max, vabsq_f32(vld1q_f32(t + i)));
    }
    return vmaxvq_f32(max);
}

/* n values, a multiple of 16. */
static void quantise(const float *t, uint64_t n, float inverse, uint8_t *codes) {
    for (uint64_t i = 0; i < n; i += 16) {
        int32x4_t q[4];
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            float32x4_t v = vmulq_n_f32(vld1q_f32(t + i + 4 * (uint64_t)k), inverse);
            v = vminnmq_f32(vmaxnmq_f32(v, vdupq_n_f32(-127)), vdupq_n_f32(127));
            q[k] = vcvtnq_s32_f32(v);
        }
        int16x8_t lo = vmovn_high_s32(vmovn_s32(q[0]), q[1]);
        int16x8_t hi = vmovn_high_s32(vmovn_s32(q[2]), q[3]);
        uint8x16_t all = vreinterpretq_u8_s8(vmovn_high_s16(vmovn_s16(lo), hi));
        vst1q_u8(codes + i, veorq_u8(all, vdupq_n_u8(128)));
    }
}

void csn_vq_table_i8_any_neon(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                              uint64_t v1, void *table) {
    float t[CSN_VQ_SPAN * MOST_OF_VECTOR];
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    float *scales = csn_vq_scales(b, cols, table);
    if (of_vector > MOST_OF_VECTOR) {
        csn_vq_table_i8_any_ref(b, x, cols, v0, v1, table);
        return;
    }
    for (uint64_t v = v0; v < v1; v += CSN_VQ_SPAN) {
        const uint64_t end = v1 - v < CSN_VQ_SPAN ? v1 : v + CSN_VQ_SPAN;
        const uint64_t n = (end - v) * of_vector;
        uint8_t *codes = (uint8_t *)table + v * of_vector;
        csn_vq_table_f32_any_neon(b, x + v * CSN_VQ_DIM, cols, 0, end - v, t);
        const float max = largest(t, n);
        scales[v / CSN_VQ_SPAN] = max < 0x1p-100f ? 0.0f : max / 127.0f;
        if (!(max >= 0x1p-100f && max < INFINITY)) {
            memset(codes, 128, n);
        } else {
            quantise(t, n, 127.0f / max, codes);
        }
    }
}
