/* SPDX-License-Identifier: Apache-2.0 */
/* Everything in a forward pass that is not a matrix product, over arrays of f32: norms, rotary
 * embedding, activations, and attention over the cache of keys and values.
 *
 * The same steps on every machine, so the same bits: multiplications and additions are not fused,
 * sums go in lanes whose number is written below, exp and tanh are our own polynomials. One source
 * (vec_template.h, attend_template.h) is compiled once for the baseline and once for AVX2.
 *
 * Nothing here allocates, fails or knows threads. Arrays need the alignment of float only.
 */
#ifndef CSN_KERNELS_VEC_H
#define CSN_KERNELS_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum csn_kv_type { CSN_KV_F16, CSN_KV_F32, CSN_KV_Q8_0 } csn_kv_type;

/* Keys come in tiles of 16 positions with positions innermost, so that scores are computed for 16
 * keys at once without a horizontal sum; values are rows. A tile starts at a multiple of 16 of the
 * absolute position, a softmax block at a multiple of 64.
 *   K f32, f16   [n_tiles][head_dim][16]
 *   K q8_0       [n_tiles]{ i8 [head_dim][16], f16 scale [ceil(head_dim / 32)][16] }
 *   V f32, f16   [n_ctx][head_dim]
 *   V q8_0       [n_ctx]{ i8 [head_dim], f16 scale [ceil(head_dim / 32)] } */
enum { CSN_KV_TILE = 16, CSN_KV_BLOCK = 64 };

typedef struct csn_kv_head { /* one kv head of one layer */
    csn_kv_type type_k, type_v;
    uint8_t *k, *v; /* n_ctx rounded up to CSN_KV_BLOCK positions; every byte initialised */
    uint32_t head_dim;
    /* Latent attention keeps one row a position: it is the key, its first v_dim values are the
     * value. Rows lie at v, as type_v lays them out; k is not used. 0 = keys and values apart. */
    uint32_t v_dim;
} csn_kv_head;

static inline uint64_t csn_kv_k_tile_bytes(csn_kv_type type, uint32_t head_dim) {
    uint64_t n = (uint64_t)head_dim * CSN_KV_TILE;
    return type == CSN_KV_F32   ? n * 4
           : type == CSN_KV_F16 ? n * 2
                                : n + (uint64_t)(head_dim + 31) / 32 * CSN_KV_TILE * 2;
}

static inline uint64_t csn_kv_v_row_bytes(csn_kv_type type, uint32_t head_dim) {
    uint64_t n = head_dim;
    return type == CSN_KV_F32 ? n * 4 : type == CSN_KV_F16 ? n * 2 : n + (n + 31) / 32 * 2;
}

/* Attention of `n_group` adjacent query heads, which share one kv head, for n_queries consecutive
 * positions. Query t, head g is at q + t * q_stride + g * head_dim; the result likewise at out, of
 * latent attention [v_dim] at out + t * out_stride + g * v_dim.
 * Query t stands at position pos0 + t and sees keys [max(0, pos0 + t + 1 - window), pos0 + t]
 * (window 0: from 0), which must be stored already.
 *
 * Order, per query row: q is scaled; scores are sums over rising d; softmax runs online over
 * blocks of 64 positions in rising order: the block's maximum, its weights summed in 8 lanes, its
 * values summed over rising position from zero, then out = out * correction + sum. */
typedef struct csn_attend {
    csn_kv_head kv;
    const float *q;
    float *out;
    uint64_t q_stride, out_stride;
    uint32_t n_group, n_queries;
    uint32_t pos0, window;
    float scale;
    float softcap;  /* scores = softcap * tanh(scores / softcap); 0 = none */
    float *scratch; /* csn_attend_scratch(head_dim, n_group * n_queries) floats */
} csn_attend;

/* The delta rule with a decay for each row (Kimi Delta Attention) over n tokens in rising order,
 * for some columns of one head's state:
 *
 *   s[i] = s[i] * decay[i];  u = sum of s[i] * k[i];  d = beta * (v - u);
 *   s[i] = s[i] + k[i] * d;  out = sum of s[i] * q[i]
 *
 * over rising rows i, each product and sum rounded; columns do not meet. */
enum { CSN_DELTA_COLS = 32 };
typedef struct csn_delta {
    float *state;               /* [n_rows][CSN_DELTA_COLS]; columns behind n_cols stay zero */
    const float *q, *k, *decay; /* [n_rows] of the first token, the next `stride` floats behind */
    const float *v;             /* [n_cols] likewise */
    float *out;                 /* [n_cols] likewise; may be v */
    const float *beta;          /* one of the first token, the next beta_stride floats behind */
    uint64_t n, stride, beta_stride;
    uint32_t n_rows, n_cols; /* n_cols <= CSN_DELTA_COLS */
} csn_delta;

/* Depthwise causal convolution in time with a SiLU behind it, in place: for channel c of token t
 *   x[t][c] = silu(sum over rising j of taps[j][c] * x[t - width + 1 + j][c]),
 * where x before the first token is `history`, which then becomes the last width - 1 inputs. */
typedef struct csn_short_conv {
    float *x;          /* [n] rows, `stride` floats apart */
    const float *taps; /* [width][n_channels], the last is the present token's */
    float *history;    /* [width - 1][n_channels], oldest first */
    uint64_t n, stride, n_channels;
    uint32_t width; /* 1 to CSN_MAX_CONV */
} csn_short_conv;
enum { CSN_MAX_CONV = 64 };

uint64_t csn_attend_scratch(uint32_t head_dim, uint64_t n_rows);

typedef enum csn_vec_act_kind {
    CSN_VEC_SILU,
    CSN_VEC_GELU_TANH,
    CSN_VEC_SIGMOID,
    CSN_VEC_SITU /* beta * tanh(x / beta) * sigmoid(x) */
} csn_vec_act_kind;

typedef struct csn_vec_act {
    csn_vec_act_kind kind;
    float beta;        /* of SiTU, above 0 */
    float linear_beta; /* of SiTU: above 0, up becomes linear_beta * tanh(up / linear_beta) */
} csn_vec_act;

typedef struct csn_vec {
    /* y = x * (1 / sqrt(mean(x^2) + eps)) * w; the mean in 16 lanes (lane = i mod 16) and a halving
     * tree. y may be x; w NULL = ones. */
    void (*rms_norm)(const float *x, const float *w, float eps, float *y, uint64_t n);
    /* Half-split rotation of one head: pairs (i, i + half) by the angle whose cos, sin [half]. */
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t half);
    /* The same for interleaved pairs (2 i, 2 i + 1). */
    void (*rope_pairs)(float *x, const float *cos, const float *sin, uint32_t half);
    /* gate = act(gate) * up */
    void (*act_mul)(const csn_vec_act *act, float *gate, const float *up, uint64_t n);
    void (*sigmoid)(float *x, uint64_t n);
    void (*add)(float *y, const float *x, uint64_t n); /* y += x */
    /* sum of a * b, in 16 lanes and a halving tree as rms_norm */
    float (*dot)(const float *a, const float *b, uint64_t n);
    /* y[r] += sum over rising j of p[r][j] * m[j], added one by one; y [n_rows] rows of n_cols
     * values, m [n_terms] of them, strides in floats. */
    void (*add_rows)(float *y, uint64_t y_stride, const float *p, uint64_t p_stride,
                     uint64_t n_rows, const float *m, uint64_t m_stride, uint64_t n_terms,
                     uint64_t n_cols);
    void (*softcap)(float *x, uint64_t n, float cap); /* x = cap * tanh(x / cap) */
    void (*exp)(float *x, uint64_t n);  /* x below -87 gives 0, above 88 exp(88); 2 ulp else */
    void (*tanh)(float *x, uint64_t n); /* 3 ulp */
    /* Writes the key and the value [head_dim] of position pos, or the one row k of latent
     * attention. Returns 0, or of what the type cannot hold the largest magnitude, as its bits:
     * from 65520 on in f16, in q8_0 from 127 times that, infinity and NaN. The row is then wrong.
     */
    uint32_t (*kv_store)(const csn_kv_head *kv, uint32_t pos, const float *k, const float *v);
    void (*attend)(const csn_attend *a);
    void (*short_conv)(const csn_short_conv *c, uint64_t c0, uint64_t c1); /* of those channels */
    /* Turns z into a decay in [0, 1]: exp(-rate * softplus(z + bias)), or with a lower bound below
     * 0 exp(bound * sigmoid(rate * (z + bias))). */
    void (*kda_decay)(float *z, const float *bias, float rate, float bound, uint64_t n);
    void (*delta)(const csn_delta *d);
} csn_vec;

/* The table for the current CPU flags; static, never NULL. */
const csn_vec *csn_vec_get(void);

#endif
