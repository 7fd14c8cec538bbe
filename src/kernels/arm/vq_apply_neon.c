/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices (vq.h) for NEON, one vector at a time. f32 tables are looked up
 * by single loads. int8 tables lie in registers: tbl takes a byte of 64 by its index, and four of
 * these make 256. */
#include "kernels/arm/neon.h"

enum {
    ROWS = 1024,      /* rows that meet a table while it is in L1: 4 KiB of sums */
    ROWS_AT_ONCE = 32 /* int8 */
};

static void scale_rows(const csn_vq_matrix *m, const float *acc, uint64_t r0, uint64_t n,
                       float *y) {
    for (uint64_t r = 0; r < n; r++) {
        y[r0 + r] = csn_scale16(m->scale + 2 * (r0 + r)) * acc[r];
    }
}

/* The indices of row r, position v of a matrix in blocks. */
static const uint8_t *indices(const csn_vq_matrix *m, uint64_t r, uint64_t v) {
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    return m->index + ((r / CSN_VQ_BLOCK * nv + v) * CSN_VQ_BLOCK + r % CSN_VQ_BLOCK) *
                          csn_vq_vector_bytes(m->books);
}

/* ---- f32 tables ---- */

CSN_INLINE float32x4_t look_up(const float *t, const uint8_t *p, uint64_t stages) {
    float32x4_t v = vld1q_dup_f32(t + p[0]);
    v = vld1q_lane_f32(t + p[stages], v, 1);
    v = vld1q_lane_f32(t + p[2 * stages], v, 2);
    return vld1q_lane_f32(t + p[3 * stages], v, 3);
}

/* Adds what n rows look up at one position, four at a time: some rows past the last too. */
CSN_INLINE void add_rows(const uint8_t *p, const float *t, uint64_t stages, uint64_t n,
                         float *acc) {
    for (uint64_t r = 0; r < n; r += 4, p += 4 * stages) {
        float32x4_t sum = look_up(t, p, stages);
        for (uint64_t s = 1; s < stages; s++) {
            sum = vaddq_f32(sum, look_up(t + 256 * s, p + s, stages));
        }
        vst1q_f32(acc + r, vaddq_f32(vld1q_f32(acc + r), sum));
    }
}

/* One vector: its table, or else itself. */
static void apply_f32(const csn_vq_matrix *m, const float *table, const float *x, float *y,
                      uint64_t r0, uint64_t r1) {
    const csn_vq_books *b = m->books;
    float room[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES];
    float acc[ROWS];
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t n_rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v = 0; v < m->cols / CSN_VQ_DIM; v++) {
            const float *t = room;
            if (table != NULL) {
                t = table + v * b->stages * 256;
            } else {
                csn_vq_table_f32_any_neon(b, x + v * CSN_VQ_DIM, CSN_VQ_DIM, 0, 1, room);
            }
            for (uint64_t r = 0; r < n_rows; r += CSN_VQ_BLOCK) {
                const uint64_t n = n_rows - r < CSN_VQ_BLOCK ? n_rows - r : CSN_VQ_BLOCK;
                const uint8_t *p = indices(m, first + r, v);
                switch (b->stages) {
                case 2: add_rows(p, t, 2, n, acc + r); break;
                case 3: add_rows(p, t, 3, n, acc + r); break;
                default: add_rows(p, t, b->stages, n, acc + r); break;
                }
            }
        }
        scale_rows(m, acc, first, n_rows, y);
    }
}

void csn_vq_apply_f32_any_neon(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                               float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != CSN_VQ_BLOCK || m->books->is_packed) {
        csn_vq_apply_f32_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        apply_f32(m, tables[i], NULL, y + i * y_stride, r0, r1);
    }
}

void csn_vq_direct_f32_any_neon(const csn_vq_matrix *m, const float *const *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != CSN_VQ_BLOCK || m->books->is_packed) {
        csn_vq_direct_f32_any_ref(m, x, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        apply_f32(m, NULL, x[i], y + i * y_stride, r0, r1);
    }
}

/* ---- int8 tables ---- */

CSN_INLINE uint8x16x4_t table64(const uint8_t *t) {
    return (uint8x16x4_t){{vld1q_u8(t), vld1q_u8(t + 16), vld1q_u8(t + 32), vld1q_u8(t + 48)}};
}

/* Adds bytes to the 16-bit sums of 16 rows. */
CSN_INLINE void add_bytes(uint16x8_t sum[2], uint8x16_t v) {
    sum[0] = vaddw_u8(sum[0], vget_low_u8(v));
    sum[1] = vaddw_high_u8(sum[1], v);
}

/* Adds the stages of one position, whose table is at t, to the sums of ROWS_AT_ONCE rows. */
typedef void (*add_fn)(const uint8_t *p, const uint8_t *t, uint16x8_t (*sum)[2]);

CSN_INLINE void add_packed(const uint8_t *p, const uint8_t *t, uint16x8_t (*sum)[2]) {
    uint8x16_t i[ROWS_AT_ONCE / 16][4];
    CSN_UNROLL
    for (int k = 0; k < ROWS_AT_ONCE / 16; k++) { /* 24 bits: four indices of six, lowest first */
        const uint8x16x3_t b = vld3q_u8(p + 48 * k);
        const uint8x16_t low6 = vdupq_n_u8(63);
        i[k][0] = vandq_u8(b.val[0], low6);
        i[k][1] = vandq_u8(vsliq_n_u8(vshrq_n_u8(b.val[0], 6), b.val[1], 2), low6);
        i[k][2] = vandq_u8(vsliq_n_u8(vshrq_n_u8(b.val[1], 4), b.val[2], 4), low6);
        i[k][3] = vshrq_n_u8(b.val[2], 2);
    }
    CSN_UNROLL
    for (int s = 0; s < 4; s++) {
        const uint8x16x4_t table = table64(t + 64 * s);
        CSN_UNROLL
        for (int k = 0; k < ROWS_AT_ONCE / 16; k++) {
            add_bytes(sum[k], vqtbl4q_u8(table, i[k][s]));
        }
    }
}

/* index [ROWS_AT_ONCE / 16]: of stage s; an index past 64 entries gives nothing. */
CSN_INLINE void add_stage(const uint8x16_t *index, const uint8_t *t, uint16x8_t (*sum)[2]) {
    uint8x16_t v[ROWS_AT_ONCE / 16];
    CSN_UNROLL
    for (int part = 0; part < 4; part++) {
        const uint8x16x4_t table = table64(t + 64 * part);
        CSN_UNROLL
        for (int k = 0; k < ROWS_AT_ONCE / 16; k++) {
            uint8x16_t i = vsubq_u8(index[k], vdupq_n_u8((uint8_t)(64 * part)));
            v[k] = part == 0 ? vqtbl4q_u8(table, i) : vqtbx4q_u8(v[k], table, i);
        }
    }
    CSN_UNROLL
    for (int k = 0; k < ROWS_AT_ONCE / 16; k++) {
        add_bytes(sum[k], v[k]);
    }
}

CSN_INLINE void add_3_bytes(const uint8_t *p, const uint8_t *t, uint16x8_t (*sum)[2]) {
    const uint8x16x3_t b[2] = {vld3q_u8(p), vld3q_u8(p + 48)};
    CSN_UNROLL
    for (int s = 0; s < 3; s++) {
        add_stage((uint8x16_t[]){b[0].val[s], b[1].val[s]}, t + 256 * s, sum);
    }
}

CSN_INLINE void add_2_bytes(const uint8_t *p, const uint8_t *t, uint16x8_t (*sum)[2]) {
    const uint8x16x2_t b[2] = {vld2q_u8(p), vld2q_u8(p + 32)};
    CSN_UNROLL
    for (int s = 0; s < 2; s++) {
        add_stage((uint8x16_t[]){b[0].val[s], b[1].val[s]}, t + 256 * s, sum);
    }
}

/* acc [8] += scale * (sums - bias), not fused */
CSN_INLINE void add_span(uint16x8_t sum, int32_t bias, float scale, float *acc) {
    const int32x4_t part[2] = {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(sum))),
                               vreinterpretq_s32_u32(vmovl_high_u16(sum))};
    CSN_UNROLL
    for (int k = 0; k < 2; k++) {
        float32x4_t f = vcvtq_f32_s32(vsubq_s32(part[k], vdupq_n_s32(bias)));
        vst1q_f32(acc + 4 * k, vaddq_f32(vld1q_f32(acc + 4 * k), vmulq_n_f32(f, scale)));
    }
}

CSN_INLINE void apply_i8(add_fn add, const csn_vq_matrix *m, const void *table, float *y,
                         uint64_t r0, uint64_t r1) {
    const csn_vq_books *b = m->books;
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    const uint64_t of_vector = b->stages * csn_vq_slots(b);
    const float *scales = csn_vq_scales(b, m->cols, table);
    float acc[ROWS];
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v0 = 0; v0 < nv; v0 += CSN_VQ_SPAN) {
            const uint64_t n = nv - v0 < CSN_VQ_SPAN ? nv - v0 : CSN_VQ_SPAN;
            for (uint64_t r = 0; r < rows; r += ROWS_AT_ONCE) {
                const uint8_t *p = indices(m, first + r, v0);
                const uint8_t *t = (const uint8_t *)table + v0 * of_vector;
                uint16x8_t sum[ROWS_AT_ONCE / 16][2] = {{vdupq_n_u16(0), vdupq_n_u16(0)},
                                                        {vdupq_n_u16(0), vdupq_n_u16(0)}};
                for (uint64_t v = 0; v < n; v++, t += of_vector) {
                    add(p, t, sum);
                    p += CSN_VQ_BLOCK * csn_vq_vector_bytes(b);
                }
                for (uint64_t k = 0; k < ROWS_AT_ONCE / 8; k++) {
                    add_span(sum[k / 2][k % 2], (int32_t)(128 * b->stages * n),
                             scales[v0 / CSN_VQ_SPAN], acc + r + 8 * k);
                }
            }
        }
        scale_rows(m, acc, first, rows, y);
    }
}

void csn_vq_apply_i8_packed_neon(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != CSN_VQ_BLOCK) {
        csn_vq_apply_i8_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        apply_i8(add_packed, m, tables[i], y + i * y_stride, r0, r1);
    }
}

void csn_vq_apply_i8_bytes_neon(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint32_t stages = m->books->stages;
    if (m->block != CSN_VQ_BLOCK || (stages != 2 && stages != 3)) {
        csn_vq_apply_i8_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (stages == 3) {
            apply_i8(add_3_bytes, m, tables[i], y + i * y_stride, r0, r1);
        } else {
            apply_i8(add_2_bytes, m, tables[i], y + i * y_stride, r0, r1);
        }
    }
}
