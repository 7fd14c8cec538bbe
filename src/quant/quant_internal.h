/* SPDX-License-Identifier: Apache-2.0 */
/* What the dtype files of this folder share: the rows of the table, little-endian access, the
 * format's scale rule, nibbles, and splitting an encoder's work over a pool.
 */
#ifndef CSN_QUANT_INTERNAL_H
#define CSN_QUANT_INTERNAL_H

#include <stdatomic.h>

#include "base/size.h"
#include "quant/dtype.h"
#include "quant/half.h"

/* ---- rows of dtypes.c: formats of CMF ---- */
extern const csn_dtype csn_dtype_f32, csn_dtype_f16, csn_dtype_bf16;
extern const csn_dtype csn_dtype_q8_row, csn_dtype_q8_2f;
extern const csn_dtype csn_dtype_q4_block, csn_dtype_q4_tiled, csn_dtype_q4tp;
extern const csn_dtype csn_dtype_u8, csn_dtype_mix8_4, csn_dtype_q4_col;
extern const csn_dtype csn_dtype_vbit, csn_dtype_vbit_ro;
extern const csn_dtype csn_dtype_q1, csn_dtype_q1s, csn_dtype_q1t, csn_dtype_q2tp;
/* ---- rows of dtypes.c: formats that only other containers use ---- */
extern const csn_dtype csn_dtype_q8g, csn_dtype_q4g, csn_dtype_q3g;
extern const csn_dtype csn_dtype_q4_0, csn_dtype_q4_1, csn_dtype_q5_0, csn_dtype_q5_1;
extern const csn_dtype csn_dtype_q8_0, csn_dtype_q2_k, csn_dtype_q3_k, csn_dtype_q4_k;
extern const csn_dtype csn_dtype_q5_k, csn_dtype_q6_k, csn_dtype_iq4_nl, csn_dtype_iq4_xs;
extern const csn_dtype csn_dtype_mxfp4, csn_dtype_f8_e4m3, csn_dtype_f8_e5m2;
/* known by name and size only */
extern const csn_dtype csn_dtype_q8_1, csn_dtype_q8_k, csn_dtype_iq2_xxs, csn_dtype_iq2_xs;
extern const csn_dtype csn_dtype_iq3_xxs, csn_dtype_iq1_s, csn_dtype_iq3_s, csn_dtype_iq2_s;
extern const csn_dtype csn_dtype_i8, csn_dtype_i16, csn_dtype_i32, csn_dtype_i64, csn_dtype_f64;
extern const csn_dtype csn_dtype_iq1_m, csn_dtype_tq1_0, csn_dtype_tq2_0, csn_dtype_nvfp4;
extern const csn_dtype csn_dtype_q1_0, csn_dtype_bool8, csn_dtype_u8_raw, csn_dtype_u16;
extern const csn_dtype csn_dtype_u32, csn_dtype_u64, csn_dtype_f8_e8m0;

enum { CSN_GROUP = 32 }; /* elements that share a scale in every CMF format with groups */

static inline uint16_t csn_load16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t csn_load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void csn_store16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void csn_store32(uint8_t *p, uint32_t v) {
    csn_store16(p, (uint16_t)v);
    csn_store16(p + 2, (uint16_t)(v >> 16));
}

/* Round half to even; |x| < 2^22. Adding 1.5 * 2^23 leaves no fraction bits, so the hardware's
 * rounding does the work, without a call on CPUs that lack a rounding instruction. */
static inline float csn_round_even(float x) {
    return (x + 12582912.0f) - 12582912.0f;
}
static inline float csn_clamp(float x, float lo, float hi) {
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

/* The scale rule S of facts 4.1: through f16 and back, at least 2^-14. *ret is what is stored, the
 * result is what is divided by. */
static inline float csn_scale_rule(float x, uint16_t *ret) {
    uint16_t h = csn_half_from_f32(x);
    float s = csn_half_to_f32(h);
    if (s < 0x1p-14f) {
        h = 0x0400;
        s = 0x1p-14f;
    }
    *ret = h;
    return s;
}

static inline float csn_absmax(const float *x, uint64_t n) {
    float m = 0;
    for (uint64_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        m = a > m ? a : m;
    }
    return m;
}

/* Rows and columns of the matrix view (see csn_matrix). */
void csn_shape_matrix(const csn_shape *s, uint64_t *rows, uint64_t *cols);
/* Number of elements and, for formats with rows, of rows; BOUNDS when it overflows. */
caisson_status csn_shape_count_or_fail(const csn_shape *s, uint64_t *ret, caisson_error *err);
caisson_status csn_fail_nbytes(caisson_error *err);
/* BOUNDS unless the shape is [rows, cols] with cols % 32 == 0. */
caisson_status csn_shape_need_groups(const csn_shape *s, const char *what, caisson_error *err);
/* Size of q4tp and q2tp, which differ in the bytes of a group's codes. */
caisson_status csn_ladder_nbytes(const csn_shape *shape, const char *what, uint64_t group_bytes,
                                 uint64_t *ret, caisson_error *err);
uint32_t csn_ladder_row_parts(uint64_t cols, uint64_t group_bytes, csn_row_part ret[CSN_ROW_PARTS]);

/* The f16 scale of each group of 32 of the flattened elements, `stride` bytes from one to the next.
 */
static inline csn_numbers csn_group_scales(const csn_matrix *m, uint64_t first, uint32_t stride) {
    uint64_t n = m->rows * m->cols;
    return (csn_numbers){.kind = CSN_NUMBER_F16,
                         .first = first,
                         .n = n / CSN_GROUP + (n % CSN_GROUP != 0),
                         .stride = stride,
                         .of_row = m->cols % CSN_GROUP == 0 ? m->cols / CSN_GROUP : 0};
}

/* A job of an encoder: units [u0, u1) of work; sets has_inf when a stored number became
 * infinite. */
typedef struct csn_encode_job {
    const csn_dtype *dtype;
    const float *x;
    uint8_t *out;
    uint64_t n, rows, cols;
    const csn_encode_options *options;
    void *extra;
    const char *largest; /* what the stored numbers hold, where they are not f16 */
    atomic_bool has_inf;
} csn_encode_job;
typedef void (*csn_encode_fn)(csn_encode_job *job, uint64_t u0, uint64_t u1);

/* Runs fn over [0, n_units) on all threads of the pool. */
void csn_encode_split(csn_pool *pool, csn_encode_job *job, csn_encode_fn fn, uint64_t n_units);
/* Fills a job; makes room in out where the shape alone says how much, else `room` does. */
caisson_status csn_encode_begin(const csn_dtype *d, const float *x, const csn_shape *shape,
                                const csn_encode_options *options, csn_buf *out,
                                csn_encode_job *ret, caisson_error *err);
/* job->out: nbytes bytes, the whole of *out. Their contents are not set. */
caisson_status csn_encode_room(csn_encode_job *job, uint64_t nbytes, csn_buf *out,
                               caisson_error *err);
/* OK, or BOUNDS when a value or scale does not fit. */
caisson_status csn_encode_end(const csn_encode_job *job, caisson_error *err);

static inline void csn_note_inf(csn_encode_job *job, uint16_t h) {
    if ((h & 0x7c00u) == 0x7c00u) {
        atomic_store_explicit(&job->has_inf, true, memory_order_relaxed);
    }
}

/* ---- 32 weights as codes from lo < 0 to hi > 0 and a scale (scale_search.c) ---- */
typedef struct csn_codes {
    int lo, hi;
} csn_codes;
static const csn_codes csn_nibble_codes = {-8, 7};
/* Codes for a scale, round(x / s) clamped, and their squared error. */
float csn_codes_measure(const float x[CSN_GROUP], csn_codes c, float s, float code[CSN_GROUP]);
/* The error of codes round(x * (1 / s)). Two such errors say which is smaller when they differ by
 * more than the sums' own rounding. */
float csn_codes_error(const float x[CSN_GROUP], csn_codes c, float s);
#define CSN_LESS 0.999998f
/* Replaces a scale h and its codes where another has a smaller error; it may be negative. */
void csn_codes_search(const float x[CSN_GROUP], csn_codes c, uint16_t *h, float code[CSN_GROUP]);

/* The largest magnitude, and round(x / s) from -128 to 127 (scale_search.c as well). */
float csn_row_absmax(const float *x, uint64_t n);
void csn_row_to_bytes(const float *x, uint64_t n, float s, int8_t *ret);

/* 32 weights as 16 bytes: element 2k in the low nibble of byte k, 2k + 1 in the high one, offset
 * 8. Missing elements (n < 32) become code 8, zero. Returns the f16 scale, which may be negative;
 * infinite when the weights are too large for it (nibbles.c). */
uint16_t csn_nibbles_encode(const float *x, uint64_t n, csn_encoder encoder, uint8_t out[16]);
static inline float csn_nibble(const uint8_t *bytes, unsigned k) {
    return (float)((int)(bytes[k / 2] >> (k % 2 * 4) & 15) - 8);
}

#endif
