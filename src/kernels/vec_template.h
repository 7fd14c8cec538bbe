/* SPDX-License-Identifier: Apache-2.0 */
/* The source of the tables of vec.h: include it once in a .c file, with CSN_VEC_TABLE naming the
 * table. Vectors are the compilers' own (8 floats; two registers on the baseline), and each step is
 * an IEEE operation, so the width of the machine does not show.
 *
 * Coefficients: tests/oracle/math_poly.py. */
#include <math.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "kernels/vec.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float v8f __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i __attribute__((vector_size(32), aligned(4), may_alias));

INLINE v8f load(const float *p) {
    return *(const v8f *)p;
}

INLINE void store(float *p, v8f v) {
    *(v8f *)p = v;
}

INLINE v8f splat(float x) {
    return (v8f){x, x, x, x, x, x, x, x};
}

INLINE v8f pick(v8i mask, v8f yes, v8f no) {
    return (v8f)(((v8i)yes & mask) | ((v8i)no & ~mask));
}

INLINE v8f vmax(v8f a, v8f b) {
    return pick(a > b, a, b);
}

INLINE v8f vabs(v8f a) {
    return (v8f)((v8i)a & 0x7FFFFFFF);
}

/* The sum of 8 lanes: +4, +2, +1. */
INLINE float tree8(v8f v) {
    float a = v[0] + v[4];
    float b = v[1] + v[5];
    float c = v[2] + v[6];
    float d = v[3] + v[7];
    return (a + c) + (b + d);
}

INLINE float max8(v8f v) {
    float m = v[0];
    for (int i = 1; i < 8; i++) {
        m = v[i] > m ? v[i] : m;
    }
    return m;
}

/* exp: x = n ln2 + r, |r| <= ln2 / 2; ln2 in two parts, the first of 15 bits so that n times it is
 * exact. Adding 1.5 * 2^23 rounds to an integer that then stands in the low bits. */
INLINE v8f exp8(v8f x) {
    v8i tiny = x < splat(-87.0f);
    x = pick(tiny, splat(-87.0f), x);
    x = pick(x > splat(88.0f), splat(88.0f), x);
    v8f shifted = x * 0x1.715476p+0f + 12582912.0f;
    v8f n = shifted - 12582912.0f;
    v8f r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    v8f p = r * 0x1.686acap-10f + 0x1.124188p-7f;
    p = p * r + 0x1.555b94p-5f;
    p = p * r + 0x1.555486p-3f;
    p = p * r + 0x1.fffff8p-2f;
    p = (r * r) * p + r + 1.0f;
    v8i scale = ((v8i)shifted - 0x4B400000 + 127) << 23;
    return pick(tiny, splat(0.0f), p * (v8f)scale);
}

INLINE v8f tanh8(v8f x) {
    v8f a = vabs(x);
    v8f z = x * x;
    v8f p = z * -0x1.75d1fap-8f + 0x1.522178p-6f;
    p = p * z - 0x1.b83b2ep-5f;
    p = p * z + 0x1.110718p-3f;
    p = p * z - 0x1.555532p-2f;
    v8f small = a + a * (z * p);
    v8f e = exp8(a + a);
    v8f large = 1.0f - 2.0f / (e + 1.0f);
    v8f t = pick(a < splat(0.625f), small, large);
    return (v8f)((v8i)t | ((v8i)x & (int32_t)0x80000000));
}

INLINE v8f silu8(v8f x) {
    return x / (exp8(-x) + 1.0f);
}

INLINE v8f sigmoid8(v8f x) {
    return 1.0f / (exp8(-x) + 1.0f);
}

INLINE v8f gelu_tanh8(v8f x) {
    v8f inner = (x * x * x * 0.044715f + x) * 0x1.988454p-1f; /* sqrt(2 / pi) */
    return (x * 0.5f) * (tanh8(inner) + 1.0f);
}

/* The last n % 8 values go through a padded copy, so that they take the same steps. */
#define FOR_EACH_8(x_, n_, expression)                                                             \
    do {                                                                                           \
        uint64_t i_ = 0;                                                                           \
        for (; i_ + 8 <= (n_); i_ += 8) {                                                          \
            v8f v = load((x_) + i_);                                                               \
            store((x_) + i_, (expression));                                                        \
        }                                                                                          \
        if (i_ < (n_)) {                                                                           \
            float pad_[8] = {0};                                                                   \
            memcpy(pad_, (x_) + i_, ((n_)-i_) * sizeof(float));                                    \
            v8f v = load(pad_);                                                                    \
            store(pad_, (expression));                                                             \
            memcpy((x_) + i_, pad_, ((n_)-i_) * sizeof(float));                                    \
        }                                                                                          \
    } while (0)

static void vec_exp(float *x, uint64_t n) {
    FOR_EACH_8(x, n, exp8(v));
}

static void vec_tanh(float *x, uint64_t n) {
    FOR_EACH_8(x, n, tanh8(v));
}

static void vec_softcap(float *x, uint64_t n, float cap) {
    FOR_EACH_8(x, n, tanh8(v / cap) * cap);
}

static void vec_add(float *y, const float *x, uint64_t n) {
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        store(y + i, load(y + i) + load(x + i));
    }
    for (; i < n; i++) {
        y[i] += x[i];
    }
}

static void vec_sigmoid(float *x, uint64_t n) {
    FOR_EACH_8(x, n, sigmoid8(v));
}

static void mul(float *y, const float *x, uint64_t n) {
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        store(y + i, load(y + i) * load(x + i));
    }
    for (; i < n; i++) {
        y[i] *= x[i];
    }
}

/* `up` passes through a small copy: it is the caller's. */
static void situ_mul(const csn_vec_act *act, float *gate, const float *up, uint64_t n) {
    float beta = act->beta;
    float linear_beta = act->linear_beta;
    FOR_EACH_8(gate, n, tanh8(v / beta) * beta * sigmoid8(v));
    if (!(linear_beta > 0.0f)) {
        mul(gate, up, n);
        return;
    }
    for (uint64_t i = 0; i < n; i += 64) {
        float u[64];
        uint64_t k = n - i < 64 ? n - i : 64;
        memcpy(u, up + i, k * sizeof(float));
        FOR_EACH_8(u, k, tanh8(v / linear_beta) * linear_beta);
        mul(gate + i, u, k);
    }
}

static void vec_act_mul(const csn_vec_act *act, float *gate, const float *up, uint64_t n) {
    if (act->kind == CSN_VEC_SITU) {
        situ_mul(act, gate, up, n);
        return;
    }
    if (act->kind == CSN_VEC_SILU) {
        FOR_EACH_8(gate, n, silu8(v));
    } else if (act->kind == CSN_VEC_SIGMOID) {
        FOR_EACH_8(gate, n, sigmoid8(v));
    } else {
        FOR_EACH_8(gate, n, gelu_tanh8(v));
    }
    mul(gate, up, n);
}

static float vec_dot(const float *a, const float *b, uint64_t n) {
    v8f lane[2] = {splat(0.0f), splat(0.0f)};
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        lane[0] += load(a + i) * load(b + i);
        lane[1] += load(a + i + 8) * load(b + i + 8);
    }
    if (i < n) {
        float x[16] = {0};
        float y[16] = {0};
        memcpy(x, a + i, (n - i) * sizeof(float));
        memcpy(y, b + i, (n - i) * sizeof(float));
        lane[0] += load(x) * load(y);
        lane[1] += load(x + 8) * load(y + 8);
    }
    return tree8(lane[0] + lane[1]);
}

/* nr rows, 16 columns from c on. */
INLINE void add_rows_16(const int nr, float *y, uint64_t y_stride, const float *p,
                        uint64_t p_stride, const float *m, uint64_t m_stride, uint64_t n_terms) {
    v8f acc[4][2];
    UNROLL for (int r = 0; r < nr; r++) {
        acc[r][0] = load(y + (uint64_t)r * y_stride);
        acc[r][1] = load(y + (uint64_t)r * y_stride + 8);
    }
    for (uint64_t j = 0; j < n_terms; j++) {
        v8f m0 = load(m + j * m_stride);
        v8f m1 = load(m + j * m_stride + 8);
        UNROLL for (int r = 0; r < nr; r++) {
            v8f x = splat(p[(uint64_t)r * p_stride + j]);
            acc[r][0] += x * m0;
            acc[r][1] += x * m1;
        }
    }
    UNROLL for (int r = 0; r < nr; r++) {
        store(y + (uint64_t)r * y_stride, acc[r][0]);
        store(y + (uint64_t)r * y_stride + 8, acc[r][1]);
    }
}

static void vec_add_rows(float *y, uint64_t y_stride, const float *p, uint64_t p_stride,
                         uint64_t n_rows, const float *m, uint64_t m_stride, uint64_t n_terms,
                         uint64_t n_cols) {
    uint64_t end = n_cols & ~UINT64_C(15);
    uint64_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        for (uint64_t c = 0; c < end; c += 16) {
            add_rows_16(4, y + r * y_stride + c, y_stride, p + r * p_stride, p_stride, m + c,
                        m_stride, n_terms);
        }
    }
    for (; r < n_rows; r++) {
        for (uint64_t c = 0; c < end; c += 16) {
            add_rows_16(1, y + r * y_stride + c, y_stride, p + r * p_stride, p_stride, m + c,
                        m_stride, n_terms);
        }
    }
    for (r = 0; r < n_rows; r++) {
        for (uint64_t c = end; c < n_cols; c++) {
            float sum = y[r * y_stride + c];
            for (uint64_t j = 0; j < n_terms; j++) {
                sum += p[r * p_stride + j] * m[j * m_stride + c];
            }
            y[r * y_stride + c] = sum;
        }
    }
}

static void vec_rms_norm(const float *x, const float *w, float eps, float *y, uint64_t n) {
    v8f lane[2] = {splat(0.0f), splat(0.0f)};
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v8f a = load(x + i);
        v8f b = load(x + i + 8);
        lane[0] += a * a;
        lane[1] += b * b;
    }
    if (i < n) {
        float pad[16] = {0};
        memcpy(pad, x + i, (n - i) * sizeof(float));
        v8f a = load(pad);
        v8f b = load(pad + 8);
        lane[0] += a * a;
        lane[1] += b * b;
    }
    float mean = tree8(lane[0] + lane[1]) / (float)n;
    float inverse = 1.0f / sqrtf(mean + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        v8f v = load(x + i) * inverse;
        if (w != NULL) {
            v *= load(w + i);
        }
        store(y + i, v);
    }
    for (; i < n; i++) {
        float v = x[i] * inverse;
        y[i] = w == NULL ? v : v * w[i];
    }
}

static void vec_rope(float *x, const float *cos, const float *sin, uint32_t half) {
    uint32_t i = 0;
    for (; i + 8 <= half; i += 8) {
        v8f x0 = load(x + i);
        v8f x1 = load(x + half + i);
        v8f c = load(cos + i);
        v8f s = load(sin + i);
        store(x + i, x0 * c - x1 * s);
        store(x + half + i, x1 * c + x0 * s);
    }
    for (; i < half; i++) {
        float x0 = x[i];
        float x1 = x[half + i];
        x[i] = x0 * cos[i] - x1 * sin[i];
        x[half + i] = x1 * cos[i] + x0 * sin[i];
    }
}

static void vec_rope_pairs(float *x, const float *cos, const float *sin, uint32_t half) {
    for (uint32_t i = 0; i < half; i++) {
        float x0 = x[2 * (size_t)i];
        float x1 = x[2 * (size_t)i + 1];
        x[2 * (size_t)i] = x0 * cos[i] - x1 * sin[i];
        x[2 * (size_t)i + 1] = x1 * cos[i] + x0 * sin[i];
    }
}

#include "kernels/attend_template.h"
#include "kernels/recurrent_template.h"

const csn_vec CSN_VEC_TABLE = {
    .rms_norm = vec_rms_norm,
    .rope = vec_rope,
    .rope_pairs = vec_rope_pairs,
    .act_mul = vec_act_mul,
    .sigmoid = vec_sigmoid,
    .add = vec_add,
    .dot = vec_dot,
    .add_rows = vec_add_rows,
    .softcap = vec_softcap,
    .exp = vec_exp,
    .tanh = vec_tanh,
    .kv_store = vec_kv_store,
    .attend = vec_attend,
    .short_conv = vec_short_conv,
    .kda_decay = vec_kda_decay,
    .delta = vec_delta,
};
