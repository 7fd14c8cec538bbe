/* SPDX-License-Identifier: Apache-2.0 */
/* Products with vector-quantised matrices, as vq.h defines them. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Products of the entries of stage s with the eight values at x, and zeros up to the last slot. */
static void stage_f32(const csn_vq_books *b, uint64_t s, const float *x, float *t) {
    const float *entry = b->entry + s * b->entries * CSN_VQ_DIM;
    for (uint64_t c = 0; c < csn_vq_slots(b); c++) {
        t[c] = 0.0f;
        if (c < b->entries) {
            t[c] = entry[c * CSN_VQ_DIM] * x[0];
            for (int d = 1; d < CSN_VQ_DIM; d++) {
                t[c] = fmaf(entry[c * CSN_VQ_DIM + (uint64_t)d], x[d], t[c]);
            }
        }
    }
}

void csn_vq_table_f32_any_ref(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                              uint64_t v1, void *table) {
    const uint64_t slots = csn_vq_slots(b);
    (void)cols;
    for (uint64_t i = v0 * b->stages; i < v1 * b->stages; i++) {
        stage_f32(b, i % b->stages, x + i / b->stages * CSN_VQ_DIM, (float *)table + i * slots);
    }
}

/* Stages [i0, i1) of one span, counted over vectors and stages. */
static void span_i8(const csn_vq_books *b, const float *x, uint64_t i0, uint64_t i1, uint8_t *codes,
                    float *scale) {
    const uint64_t slots = csn_vq_slots(b);
    float t[CSN_VQ_MAX_ENTRIES];
    float max = 0.0f;
    for (uint64_t i = i0; i < i1; i++) {
        stage_f32(b, i % b->stages, x + i / b->stages * CSN_VQ_DIM, t);
        for (uint64_t c = 0; c < slots; c++) {
            max = fabsf(t[c]) > max || isnan(t[c]) ? fabsf(t[c]) : max;
        }
    }
    const bool is_coded = max >= 0x1p-100f && max < INFINITY;
    const float inverse = 127.0f / max;
    *scale = max < 0x1p-100f ? 0.0f : max / 127.0f;
    for (uint64_t i = i0; i < i1; i++) {
        stage_f32(b, i % b->stages, x + i / b->stages * CSN_VQ_DIM, t);
        for (uint64_t c = 0; c < slots; c++) {
            float q = t[c] * inverse;
            q = q > -127.0f ? q : -127.0f;
            q = q < 127.0f ? q : 127.0f;
            codes[i * slots + c] = (uint8_t)(is_coded ? 128 + (int)rintf(q) : 128);
        }
    }
}

void csn_vq_table_i8_any_ref(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0,
                             uint64_t v1, void *table) {
    float *scales = csn_vq_scales(b, cols, table);
    for (uint64_t v = v0; v < v1; v += CSN_VQ_SPAN) {
        uint64_t end = v1 - v < CSN_VQ_SPAN ? v1 : v + CSN_VQ_SPAN;
        span_i8(b, x, v * b->stages, end * b->stages, table, scales + v / CSN_VQ_SPAN);
    }
}

static float row_scale(const csn_vq_matrix *m, uint64_t r) {
    return csn_f16_to_f32(csn_load_u16(m->scale + 2 * r));
}

void csn_vq_apply_f32_any_ref(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                              float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const csn_vq_books *b = m->books;
    const uint64_t slots = csn_vq_slots(b);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t r = r0; r < r1; r++) {
            const float *t = tables[i];
            float acc = 0.0f;
            for (uint32_t v = 0; v < m->cols / CSN_VQ_DIM; v++) {
                const uint8_t *vector = csn_vq_vector(m, (uint32_t)r, v);
                float sum = t[csn_vq_index(b, vector, 0)];
                t += slots;
                for (uint32_t s = 1; s < b->stages; s++, t += slots) {
                    sum += t[csn_vq_index(b, vector, s)];
                }
                acc += sum;
            }
            y[i * y_stride + r] = row_scale(m, r) * acc;
        }
    }
}

/* y [r1 - r0] += what the rows look up at position v, whose table is t. */
static void add_position(const csn_vq_matrix *m, const float *t, uint32_t v, uint64_t r0,
                         uint64_t r1, float *y) {
    const csn_vq_books *b = m->books;
    const uint64_t slots = csn_vq_slots(b);
    for (uint64_t r = r0; r < r1; r++) {
        const uint8_t *vector = csn_vq_vector(m, (uint32_t)r, v);
        float sum = t[csn_vq_index(b, vector, 0)];
        for (uint32_t s = 1; s < b->stages; s++) {
            sum += t[s * slots + csn_vq_index(b, vector, s)];
        }
        y[r - r0] += sum;
    }
}

void csn_vq_direct_f32_any_ref(const csn_vq_matrix *m, const float *const *x, uint64_t n, float *y,
                               uint64_t y_stride, uint64_t r0, uint64_t r1) {
    float t[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES];
    for (uint64_t i = 0; i < n; i++) {
        float *out = y + i * y_stride + r0;
        memset(out, 0, (r1 - r0) * sizeof(float));
        for (uint32_t v = 0; v < m->cols / CSN_VQ_DIM; v++) {
            csn_vq_table_f32_any_ref(m->books, x[i] + v * CSN_VQ_DIM, CSN_VQ_DIM, 0, 1, t);
            add_position(m, t, v, r0, r1, out);
        }
        for (uint64_t r = r0; r < r1; r++) {
            out[r - r0] = row_scale(m, r) * out[r - r0];
        }
    }
}

void csn_vq_apply_i8_any_ref(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                             float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const csn_vq_books *b = m->books;
    const uint64_t slots = csn_vq_slots(b);
    const uint32_t nv = m->cols / CSN_VQ_DIM;
    for (uint64_t i = 0; i < n; i++) {
        const float *scales = csn_vq_scales(b, m->cols, tables[i]);
        for (uint64_t r = r0; r < r1; r++) {
            const uint8_t *t = tables[i];
            float acc = 0.0f;
            for (uint32_t v0 = 0; v0 < nv; v0 += CSN_VQ_SPAN) {
                uint32_t v1 = nv - v0 < CSN_VQ_SPAN ? nv : v0 + CSN_VQ_SPAN;
                int32_t sum = 0;
                for (uint32_t v = v0; v < v1; v++) {
                    const uint8_t *vector = csn_vq_vector(m, (uint32_t)r, v);
                    for (uint32_t s = 0; s < b->stages; s++, t += slots) {
                        sum += t[csn_vq_index(b, vector, s)] - 128;
                    }
                }
                acc += scales[v0 / CSN_VQ_SPAN] * (float)sum;
            }
            y[i * y_stride + r] = row_scale(m, r) * acc;
        }
    }
}
