/* SPDX-License-Identifier: Apache-2.0 */
/* The array operations against libm and a plain attention in double; the tables of all instruction
 * sets against each other, bit for bit; attention's bits under every split of its rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "kernels/vec_tables.h"

static uint32_t seed = 1;

static float uniform(void) { /* in [-1, 1) */
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-31f;
}

static void fill(float *x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) {
        x[i] = uniform() * scale;
    }
}

static double ulps(float got, double want) {
    float f = (float)want;
    double ulp = (double)(nextafterf(fabsf(f), INFINITY) - fabsf(f));
    return fabs((double)got - want) / ulp;
}

static void exp_is_accurate(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 100000; i++) {
        float x = (float)i * 0.00174f - 87.0f;
        float y = x;
        csn_vec_ref.exp(&y, 1);
        worst = fmax(worst, ulps(y, exp((double)x)));
    }
    assert_true(worst <= 2.0);
    float edge[4] = {-87.5f, -INFINITY, 0.0f, 1000.0f};
    csn_vec_ref.exp(edge, 4);
    assert_true(edge[0] == 0.0f && edge[1] == 0.0f && edge[2] == 1.0f && isfinite(edge[3]));
}

static void tanh_is_accurate(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 100000; i++) {
        float x = (float)(i - 50000) * 0.0004f;
        float y = x;
        csn_vec_ref.tanh(&y, 1);
        worst = fmax(worst, x == 0.0f ? 0 : ulps(y, tanh((double)x)));
    }
    assert_true(worst <= 3.0);
}

static void activations_match_their_formulas(void **state) {
    (void)state;
    for (int i = 0; i < 2000; i++) {
        double x = (i - 1000) * 0.02;
        float silu = (float)x;
        float gelu = (float)x;
        float up = 2.0f;
        csn_vec_ref.act_mul(&(csn_vec_act){.kind = CSN_VEC_SILU}, &silu, &up, 1);
        csn_vec_ref.act_mul(&(csn_vec_act){.kind = CSN_VEC_GELU_TANH}, &gelu, &up, 1);
        x = (double)(float)x;
        double u = 0.79788456080286536 * (x + 0.044715 * x * x * x);
        assert_true(fabs((double)silu - 2 * x / (1 + exp(-x))) < 1e-6 * (1 + fabs(x)));
        assert_true(fabs((double)gelu - x * (1 + tanh(u))) < 1e-6 * (1 + fabs(x)));
    }
}

static void gates_match_their_formulas(void **state) {
    (void)state;
    const csn_vec_act plain = {.kind = CSN_VEC_SITU, .beta = 4.0f};
    const csn_vec_act both = {.kind = CSN_VEC_SITU, .beta = 4.0f, .linear_beta = 25.0f};
    for (int i = 0; i < 2000; i++) {
        float f = (float)(i - 1000) * 0.05f;
        double x = (double)f;
        double sigmoid = 1 / (1 + exp(-x));
        float up = 30.0f;
        float got[4] = {f, f, f, f};
        csn_vec_ref.act_mul(&plain, &got[0], &up, 1);
        csn_vec_ref.act_mul(&both, &got[1], &up, 1);
        csn_vec_ref.act_mul(&(csn_vec_act){.kind = CSN_VEC_SIGMOID}, &got[2], &up, 1);
        csn_vec_ref.sigmoid(&got[3], 1);
        double situ = 4 * tanh(x / 4) * sigmoid;
        assert_true(fabs((double)got[0] - situ * 30) < 4e-5);
        assert_true(fabs((double)got[1] - situ * 25 * tanh(30.0 / 25)) < 4e-5);
        assert_true(fabs((double)got[2] - 30 * sigmoid) < 1e-5);
        assert_true(fabs((double)got[3] - sigmoid) < 3e-7);
        assert_true(up == 30.0f);
    }
}

static void kda_decay_matches_its_formula(void **state) {
    (void)state;
    const float bias = 0.25f;
    for (int i = 0; i < 4000; i++) {
        float z[2] = {(float)(i - 2000) * 0.05f, (float)(i - 2000) * 0.05f};
        double x = (double)z[0] + 0.25;
        csn_vec_ref.kda_decay(&z[0], &bias, 1.5f, 0.0f, 1);
        csn_vec_ref.kda_decay(&z[1], &bias, 1.5f, -5.0f, 1);
        double softplus = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
        assert_true(fabs((double)z[0] - exp(-1.5 * softplus)) < 1e-6);
        assert_true(fabs((double)z[1] - exp(-5 / (1 + exp(-1.5 * x)))) < 1e-6);
    }
}

/* Odd numbers of channels, and inputs of one call carried into the next. */
static void short_conv_matches_its_formula(void **state) {
    (void)state;
    enum { N = 9, C = 11, W = 4 };
    float in[N][C];
    float x[N][C];
    float taps[W][C];
    float history[W - 1][C] = {{0}};
    fill(in[0], (size_t)N * C, 2);
    fill(taps[0], (size_t)W * C, 1);
    memcpy(x, in, sizeof(x));
    for (uint64_t t = 0; t < N; t += 3) {
        csn_short_conv c = {.x = x[t],
                            .taps = taps[0],
                            .history = history[0],
                            .n = 3,
                            .stride = C,
                            .n_channels = C,
                            .width = W};
        csn_vec_ref.short_conv(&c, 0, 8);
        csn_vec_ref.short_conv(&c, 8, C);
    }
    for (int t = 0; t < N; t++) {
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int j = 0; j < W; j++) {
                int from = t - W + 1 + j;
                sum += from >= 0 ? (double)taps[j][c] * (double)in[from][c] : 0;
            }
            assert_true(fabs((double)x[t][c] - sum / (1 + exp(-sum))) < 1e-5);
        }
    }
    assert_memory_equal(history, in[N - W + 1], sizeof(history));
}

struct delta_case {
    enum { DELTA_N = 7, DELTA_ROWS = 9, DELTA_COLS = 19 } size;
    float q[DELTA_N][32], k[DELTA_N][32], decay[DELTA_N][32], v[DELTA_N][32], out[DELTA_N][32];
    float beta[DELTA_N];
    float state[DELTA_ROWS][CSN_DELTA_COLS];
};

static void make_delta(struct delta_case *c) {
    memset(c, 0, sizeof(*c));
    fill(c->q[0], sizeof(c->q) / sizeof(float), 1);
    fill(c->k[0], sizeof(c->k) / sizeof(float), 0.4f);
    fill(c->v[0], sizeof(c->v) / sizeof(float), 1);
    fill(c->decay[0], sizeof(c->decay) / sizeof(float), 0.4f);
    for (int t = 0; t < DELTA_N; t++) {
        c->beta[t] = 0.5f + 0.4f * uniform();
        for (int i = 0; i < DELTA_ROWS; i++) {
            c->decay[t][i] += 0.6f;
        }
    }
}

static void run_delta(const csn_vec *vec, struct delta_case *c, int t0, int t1) {
    csn_delta d = {.state = c->state[0],
                   .q = c->q[t0],
                   .k = c->k[t0],
                   .decay = c->decay[t0],
                   .v = c->v[t0],
                   .out = c->out[t0],
                   .beta = &c->beta[t0],
                   .n = (uint64_t)(t1 - t0),
                   .stride = 32,
                   .beta_stride = 1,
                   .n_rows = DELTA_ROWS,
                   .n_cols = DELTA_COLS};
    vec->delta(&d);
}

static void delta_rule_matches_its_formula(void **state) {
    (void)state;
    static struct delta_case c;
    make_delta(&c);
    run_delta(&csn_vec_ref, &c, 0, DELTA_N);
    double s[DELTA_ROWS][DELTA_COLS] = {{0}};
    for (int t = 0; t < DELTA_N; t++) {
        for (int j = 0; j < DELTA_COLS; j++) {
            double u = 0;
            double o = 0;
            for (int i = 0; i < DELTA_ROWS; i++) {
                s[i][j] *= (double)c.decay[t][i];
                u += s[i][j] * (double)c.k[t][i];
            }
            double d = (double)c.beta[t] * ((double)c.v[t][j] - u);
            for (int i = 0; i < DELTA_ROWS; i++) {
                s[i][j] += (double)c.k[t][i] * d;
                o += s[i][j] * (double)c.q[t][i];
            }
            assert_true(fabs((double)c.out[t][j] - o) < 1e-5);
        }
    }
    assert_true(c.out[0][DELTA_COLS] == 0.0f); /* columns that are not there stay untouched */
}

static void delta_bits_ignore_the_cut_and_the_table(void **state) {
    (void)state;
    static struct delta_case a;
    static struct delta_case b;
    make_delta(&a);
    b = a;
    run_delta(&csn_vec_ref, &a, 0, DELTA_N);
    run_delta(csn_vec_get(), &b, 0, 1);
    run_delta(csn_vec_get(), &b, 1, 5);
    run_delta(csn_vec_get(), &b, 5, DELTA_N);
    assert_memory_equal(&a, &b, sizeof(a));
}

static void rows_are_added_in_order(void **state) {
    (void)state;
    enum { ROWS = 6, TERMS = 5, COLS = 37 };
    float p[ROWS][TERMS];
    float m[TERMS][COLS];
    float y[2][ROWS][COLS];
    fill(p[0], (size_t)ROWS * TERMS, 1);
    fill(m[0], (size_t)TERMS * COLS, 1);
    fill(y[0][0], (size_t)ROWS * COLS, 1);
    memcpy(y[1], y[0], sizeof(y[0]));
    csn_vec_get()->add_rows(y[0][0], COLS, p[0], TERMS, ROWS, m[0], COLS, TERMS, COLS);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            for (int j = 0; j < TERMS; j++) {
                y[1][r][c] += p[r][j] * m[j][c];
            }
        }
    }
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
}

static void pairs_rotate(void **state) {
    (void)state;
    float x[6] = {1, 0, 0, 1, 3, 4};
    const float cos[3] = {0.6f, 0.6f, 1};
    const float sin[3] = {0.8f, 0.8f, 0};
    csn_vec_get()->rope_pairs(x, cos, sin, 3);
    const float want[6] = {0.6f, 0.8f, -0.8f, 0.6f, 3, 4};
    assert_memory_equal(x, want, sizeof(x));
}

static void rms_norm_matches_its_formula(void **state) {
    (void)state;
    float x[67];
    float w[67];
    float y[67];
    fill(x, 67, 3);
    fill(w, 67, 1);
    csn_vec_ref.rms_norm(x, w, 1e-5f, y, 67);
    double ss = 0;
    for (int i = 0; i < 67; i++) {
        ss += (double)x[i] * (double)x[i];
    }
    double inverse = 1 / sqrt(ss / 67 + 1e-5);
    for (int i = 0; i < 67; i++) {
        assert_true(fabs((double)y[i] - (double)x[i] * inverse * (double)w[i]) < 1e-6);
    }
}

/* ---- attention ---- */

struct cache {
    csn_kv_head head;
    float *k, *v; /* what was stored, [n][hd] */
};

/* v_dim as in csn_kv_head. */
static struct cache make_cache_of(csn_kv_type type, uint32_t hd, uint32_t v_dim, uint32_t n) {
    struct cache c = {.head = {.type_k = type, .type_v = type, .head_dim = hd, .v_dim = v_dim}};
    uint64_t n_round = (n + 63) / 64 * 64;
    c.head.k = calloc(n_round / 16, csn_kv_k_tile_bytes(type, hd));
    c.head.v = calloc(n_round, csn_kv_v_row_bytes(type, hd));
    c.k = malloc(sizeof(float) * n * hd);
    c.v = malloc(sizeof(float) * n * hd);
    fill(c.k, (size_t)n * hd, 2);
    fill(c.v, (size_t)n * hd, 1);
    for (uint32_t i = 0; i < n; i++) {
        csn_vec_ref.kv_store(&c.head, i, c.k + (size_t)i * hd, c.v + (size_t)i * hd);
    }
    return c;
}

static struct cache make_cache(csn_kv_type type, uint32_t hd, uint32_t n) {
    return make_cache_of(type, hd, 0, n);
}

static void free_cache(struct cache *c) {
    free(c->head.k);
    free(c->head.v);
    free(c->k);
    free(c->v);
}

static void run(const csn_vec *vec, struct cache *c, const float *q, float *out, uint32_t n_group,
                uint32_t t0, uint32_t t1, uint32_t pos0, uint32_t window, float cap) {
    uint32_t hd = c->head.head_dim;
    uint64_t stride = (uint64_t)n_group * hd;
    uint64_t out_stride = c->head.v_dim != 0 ? (uint64_t)n_group * c->head.v_dim : stride;
    csn_attend a = {.kv = c->head,
                    .q = q + t0 * stride,
                    .out = out + t0 * out_stride,
                    .q_stride = stride,
                    .out_stride = out_stride,
                    .n_group = n_group,
                    .n_queries = t1 - t0,
                    .pos0 = pos0 + t0,
                    .window = window,
                    .scale = 0.3f,
                    .softcap = cap};
    a.scratch = malloc(sizeof(float) * csn_attend_scratch(hd, (uint64_t)n_group * (t1 - t0)));
    vec->attend(&a);
    free(a.scratch);
}

/* Largest difference from softmax in double over the values that went in; with v_dim those of
 * latent attention, whose values are its keys. */
static double attention_error_of(csn_kv_type type, uint32_t hd, uint32_t v_dim, uint32_t pos0,
                                 uint32_t n_q, uint32_t window, float cap) {
    enum { GROUP = 3 };
    struct cache c = make_cache_of(type, hd, v_dim, pos0 + n_q);
    uint32_t vd = v_dim != 0 ? v_dim : hd;
    const float *values = v_dim != 0 ? c.k : c.v;
    size_t n = (size_t)n_q * GROUP * hd;
    float *q = malloc(sizeof(float) * n);
    float *out = malloc(sizeof(float) * n);
    fill(q, n, 1);
    run(&csn_vec_ref, &c, q, out, GROUP, 0, n_q, pos0, window, cap);
    double worst = 0;
    double *p = malloc(sizeof(double) * (pos0 + n_q));
    for (uint32_t r = 0; r < n_q * GROUP; r++) {
        uint32_t pos = pos0 + r / GROUP;
        uint32_t first = window != 0 && pos + 1 > window ? pos + 1 - window : 0;
        double sum = 0;
        for (uint32_t j = first; j <= pos; j++) {
            double s = 0;
            for (uint32_t d = 0; d < hd; d++) {
                s += (double)q[(size_t)r * hd + d] * 0.3 * (double)c.k[(size_t)j * hd + d];
            }
            p[j] = exp(cap > 0 ? (double)cap * tanh(s / (double)cap) : s);
            sum += p[j];
        }
        for (uint32_t d = 0; d < vd; d++) {
            double o = 0;
            for (uint32_t j = first; j <= pos; j++) {
                o += p[j] / sum * (double)values[(size_t)j * hd + d];
            }
            worst = fmax(worst, fabs(o - (double)out[(size_t)r * vd + d]));
        }
    }
    free(p);
    free(q);
    free(out);
    free_cache(&c);
    return worst;
}

static double attention_error(csn_kv_type type, uint32_t hd, uint32_t pos0, uint32_t n_q,
                              uint32_t window, float cap) {
    return attention_error_of(type, hd, 0, pos0, n_q, window, cap);
}

static void latent_attention_matches_softmax(void **state) {
    (void)state;
    static const uint32_t dims[][2] = {{24, 16}, {40, 32}, {36, 20}};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        uint32_t hd = dims[i][0];
        uint32_t vd = dims[i][1];
        assert_true(attention_error_of(CSN_KV_F32, hd, vd, 0, 5, 0, 0) < 1e-5);
        assert_true(attention_error_of(CSN_KV_F32, hd, vd, 150, 21, 0, 0) < 1e-5);
        assert_true(attention_error_of(CSN_KV_F16, hd, vd, 130, 1, 0, 0) < 5e-3);
        assert_true(attention_error_of(CSN_KV_Q8_0, hd, vd, 70, 3, 0, 0) < 0.1);
    }
}

static void attention_matches_softmax_f32(void **state) {
    (void)state;
    assert_true(attention_error(CSN_KV_F32, 64, 0, 100, 0, 0) < 2e-6);
    assert_true(attention_error(CSN_KV_F32, 20, 200, 3, 0, 0) < 2e-6);
    assert_true(attention_error(CSN_KV_F32, 256, 130, 1, 0, 0) < 2e-6);
}

static void attention_window_and_softcap(void **state) {
    (void)state;
    assert_true(attention_error(CSN_KV_F32, 32, 0, 200, 1, 0) < 2e-6);
    assert_true(attention_error(CSN_KV_F32, 32, 0, 200, 70, 0) < 2e-6);
    assert_true(attention_error(CSN_KV_F32, 32, 190, 5, 16, 5.0f) < 2e-6);
}

static void attention_with_narrow_caches(void **state) {
    (void)state;
    assert_true(attention_error(CSN_KV_F16, 64, 0, 100, 0, 0) < 2e-3);
    assert_true(attention_error(CSN_KV_Q8_0, 64, 0, 100, 0, 0) < 3e-2);
    assert_true(attention_error(CSN_KV_Q8_0, 40, 60, 10, 0, 0) < 3e-2);
}

static void attention_bits_ignore_the_split(void **state) {
    (void)state;
    enum { HD = 48, GROUP = 3, N = 150 };
    for (int type = CSN_KV_F16; type <= CSN_KV_Q8_0; type++) {
        for (uint32_t window = 0; window <= 50; window += 50) {
            struct cache c = make_cache((csn_kv_type)type, HD, N);
            size_t n = (size_t)N * GROUP * HD;
            float *q = malloc(sizeof(float) * n);
            float *whole = calloc(n, sizeof(float));
            float *parts = calloc(n, sizeof(float));
            fill(q, n, 1);
            run(&csn_vec_ref, &c, q, whole, GROUP, 0, N, 0, window, 0);
            for (uint32_t t = 0, step = 1; t < N; t += step, step = step % 7 + 1) {
                uint32_t end = t + step < N ? t + step : N;
                run(csn_vec_get(), &c, q, parts, GROUP, t, end, 0, window, 0);
            }
            assert_memory_equal(whole, parts, n * sizeof(float));
            free(q);
            free(whole);
            free(parts);
            free_cache(&c);
        }
    }
}

static void tables_agree_bit_for_bit(void **state) {
    (void)state;
    const csn_vec *fast = csn_vec_get();
    float x[1003];
    float a[1003];
    float b[1003];
    float w[1003];
    fill(x, 1003, 40);
    fill(w, 1003, 1);
#define SAME(call_a, call_b)                                                                       \
    do {                                                                                           \
        memcpy(a, x, sizeof(a));                                                                   \
        memcpy(b, x, sizeof(b));                                                                   \
        call_a;                                                                                    \
        call_b;                                                                                    \
        assert_memory_equal(a, b, sizeof(a));                                                      \
    } while (0)
    SAME(csn_vec_ref.exp(a, 1003), fast->exp(b, 1003));
    SAME(csn_vec_ref.tanh(a, 1003), fast->tanh(b, 1003));
    SAME(csn_vec_ref.softcap(a, 1003, 30), fast->softcap(b, 1003, 30));
    SAME(csn_vec_ref.add(a, w, 1003), fast->add(b, w, 1003));
    SAME(csn_vec_ref.rope(a, w, w + 501, 501), fast->rope(b, w, w + 501, 501));
    SAME(csn_vec_ref.act_mul(&(csn_vec_act){.kind = CSN_VEC_SILU}, a, w, 1003),
         fast->act_mul(&(csn_vec_act){.kind = CSN_VEC_SILU}, b, w, 1003));
    SAME(csn_vec_ref.act_mul(&(csn_vec_act){.kind = CSN_VEC_GELU_TANH}, a, w, 1003),
         fast->act_mul(&(csn_vec_act){.kind = CSN_VEC_GELU_TANH}, b, w, 1003));
    const csn_vec_act situ = {.kind = CSN_VEC_SITU, .beta = 4, .linear_beta = 0.5f};
    SAME(csn_vec_ref.act_mul(&situ, a, w, 1003), fast->act_mul(&situ, b, w, 1003));
    SAME(csn_vec_ref.sigmoid(a, 1003), fast->sigmoid(b, 1003));
    SAME(csn_vec_ref.kda_decay(a, w, 2, 0, 1003), fast->kda_decay(b, w, 2, 0, 1003));
    SAME(csn_vec_ref.kda_decay(a, w, 2, -5, 1003), fast->kda_decay(b, w, 2, -5, 1003));
    SAME(a[0] = csn_vec_ref.dot(x, w, 1003), b[0] = fast->dot(x, w, 1003));
    SAME(csn_vec_ref.rope_pairs(a, w, w + 501, 501), fast->rope_pairs(b, w, w + 501, 501));
    SAME(csn_vec_ref.rms_norm(a, w, 1e-6f, a, 1003), fast->rms_norm(b, w, 1e-6f, b, 1003));
    for (uint64_t n = 0; n < 40; n++) {
        SAME(csn_vec_ref.exp(a, n), fast->exp(b, n));
        SAME(csn_vec_ref.rms_norm(a, NULL, 1e-6f, a, n + 1),
             fast->rms_norm(b, NULL, 1e-6f, b, n + 1));
    }
    for (int type = CSN_KV_F16; type <= CSN_KV_Q8_0; type++) {
        uint8_t ka[16 * 80 * 4] = {0};
        uint8_t kb[16 * 80 * 4] = {0};
        uint8_t va[16 * 80 * 4] = {0};
        uint8_t vb[16 * 80 * 4] = {0};
        csn_kv_head ha = {.type_k = (csn_kv_type)type,
                          .type_v = (csn_kv_type)type,
                          .k = ka,
                          .v = va,
                          .head_dim = 80};
        csn_kv_head hb = {.type_k = (csn_kv_type)type,
                          .type_v = (csn_kv_type)type,
                          .k = kb,
                          .v = vb,
                          .head_dim = 80};
        csn_vec_ref.kv_store(&ha, 5, x, x + 100);
        fast->kv_store(&hb, 5, x, x + 100);
        assert_memory_equal(ka, kb, sizeof(ka));
        assert_memory_equal(va, vb, sizeof(va));
    }
}

static void f16_cache_rounds_and_saturates(void **state) {
    (void)state;
    const float x[8] = {1.0f, 1e6f, -1e6f, 0x1p-24f, 0x1p-26f, 1.00048828125f, 65519.0f, -0.0f};
    const uint16_t want[8] = {0x3C00, 0x7BFF, 0xFBFF, 1, 0, 0x3C00, 0x7BFF, 0x8000};
    uint8_t k[16 * 8 * 2] = {0};
    uint8_t v[64 * 8 * 2] = {0};
    csn_kv_head h = {.type_k = CSN_KV_F16, .type_v = CSN_KV_F16, .k = k, .v = v, .head_dim = 8};
    csn_vec_ref.kv_store(&h, 0, x, x);
    assert_memory_equal(v, want, sizeof(want));
}

static void what_the_cache_cannot_hold_is_told(void **state) {
    (void)state;
    static const struct {
        csn_kv_type type;
        float x;
        bool fits;
    } cases[] = {
        {CSN_KV_F16, 65519.996f, true}, {CSN_KV_F16, 65520.0f, false},
        {CSN_KV_F16, -1e7f, false},     {CSN_KV_F16, NAN, false},
        {CSN_KV_Q8_0, 8.3e6f, true},    {CSN_KV_Q8_0, -8.4e6f, false},
        {CSN_KV_Q8_0, NAN, false},      {CSN_KV_F32, 3e38f, true},
        {CSN_KV_F32, -INFINITY, false}, {CSN_KV_F32, NAN, false},
    };
    const csn_vec *const tables[] = {&csn_vec_ref, csn_vec_get()};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int in_v = 0; in_v < 2; in_v++) {
            uint8_t k[16 * 40 * 4] = {0};
            uint8_t v[64 * 40 * 4] = {0};
            float x[2][40] = {{1.0f}, {1.0f}};
            csn_kv_head h = {
                .type_k = cases[i].type, .type_v = cases[i].type, .k = k, .v = v, .head_dim = 40};
            x[in_v][39] = cases[i].x;
            float magnitude = fabsf(cases[i].x);
            uint32_t bits;
            memcpy(&bits, &magnitude, sizeof(bits));
            uint32_t lost = tables[i % 2]->kv_store(&h, 3, x[0], x[1]);
            assert_int_equal(lost, cases[i].fits ? 0 : bits);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(what_the_cache_cannot_hold_is_told),
        cmocka_unit_test(tanh_is_accurate),
        cmocka_unit_test(activations_match_their_formulas),
        cmocka_unit_test(gates_match_their_formulas),
        cmocka_unit_test(kda_decay_matches_its_formula),
        cmocka_unit_test(short_conv_matches_its_formula),
        cmocka_unit_test(delta_rule_matches_its_formula),
        cmocka_unit_test(delta_bits_ignore_the_cut_and_the_table),
        cmocka_unit_test(rows_are_added_in_order),
        cmocka_unit_test(pairs_rotate),
        cmocka_unit_test(rms_norm_matches_its_formula),
        cmocka_unit_test(attention_matches_softmax_f32),
        cmocka_unit_test(latent_attention_matches_softmax),
        cmocka_unit_test(attention_window_and_softcap),
        cmocka_unit_test(attention_with_narrow_caches),
        cmocka_unit_test(attention_bits_ignore_the_split),
        cmocka_unit_test(tables_agree_bit_for_bit),
        cmocka_unit_test(f16_cache_rounds_and_saturates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
