/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that carry a state from token to token; part of vec_template.h. Channels and columns of a
 * state do not meet, so they go in vectors; tokens and rows go one after another. */

/* n <= 8 values; those that are missing are 0. */
INLINE v8f load_part(const float *p, uint64_t n) {
    if (n == 8) {
        return load(p);
    }
    float pad[8] = {0};
    memcpy(pad, p, n * sizeof(float));
    return load(pad);
}

INLINE void store_part(float *p, v8f v, uint64_t n) {
    if (n == 8) {
        store(p, v);
        return;
    }
    float pad[8];
    store(pad, v);
    memcpy(p, pad, n * sizeof(float));
}

/* Channels [c, c + n), n <= 8. */
static void conv_part(const csn_short_conv *a, uint64_t c, uint64_t n) {
    v8f taps[CSN_MAX_CONV];
    v8f in[CSN_MAX_CONV]; /* the last `width` inputs, oldest first */
    uint32_t width = a->width;
    for (uint32_t j = 0; j < width; j++) {
        taps[j] = load_part(a->taps + j * a->n_channels + c, n);
    }
    for (uint32_t j = 0; j + 1 < width; j++) {
        in[j] = load_part(a->history + j * a->n_channels + c, n);
    }
    for (uint64_t t = 0; t < a->n; t++) {
        float *x = a->x + t * a->stride + c;
        in[width - 1] = load_part(x, n);
        v8f sum = splat(0.0f);
        for (uint32_t j = 0; j < width; j++) {
            sum += taps[j] * in[j];
        }
        store_part(x, silu8(sum), n);
        for (uint32_t j = 0; j + 1 < width; j++) {
            in[j] = in[j + 1];
        }
    }
    for (uint32_t j = 0; j + 1 < width; j++) {
        store_part(a->history + j * a->n_channels + c, in[j], n);
    }
}

static void vec_short_conv(const csn_short_conv *a, uint64_t c0, uint64_t c1) {
    for (uint64_t c = c0; c < c1; c += 8) {
        conv_part(a, c, c1 - c < 8 ? c1 - c : 8);
    }
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + u), u = exp(-|x|); log(1 + u) is twice the series of atanh
 * in s = u / (2 + u) <= 1/3, whose next term is below 2^-26 of the sum. */
INLINE v8f softplus8(v8f x) {
    v8f u = exp8(-vabs(x));
    v8f s = u / (u + 2.0f);
    v8f z = s * s;
    v8f p = z * (1.0f / 13.0f) + 1.0f / 11.0f;
    p = p * z + 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 1.0f / 5.0f;
    p = p * z + 1.0f / 3.0f;
    v8f log1p = (s + s * (z * p)) * 2.0f;
    return vmax(x, splat(0.0f)) + log1p;
}

static void vec_kda_decay(float *z, const float *bias, float rate, float bound, uint64_t n) {
    vec_add(z, bias, n);
    if (bound < 0.0f) {
        FOR_EACH_8(z, n, exp8(sigmoid8(v * rate) * bound));
    } else {
        FOR_EACH_8(z, n, exp8(-(softplus8(v) * rate)));
    }
}

enum { DELTA_VECTORS = CSN_DELTA_COLS / 8 };

/* One token; v and out [CSN_DELTA_COLS]. */
INLINE void delta_token(float *state, const float *q, const float *k, const float *decay,
                        const float *v, float beta, float *out, uint32_t n_rows) {
    v8f acc[DELTA_VECTORS];
    v8f d[DELTA_VECTORS];
    UNROLL for (int j = 0; j < DELTA_VECTORS; j++) {
        acc[j] = splat(0.0f);
    }
    for (size_t i = 0; i < n_rows; i++) {
        float *row = state + i * CSN_DELTA_COLS;
        UNROLL for (int j = 0; j < DELTA_VECTORS; j++) {
            v8f s = load(row + 8 * j) * decay[i];
            store(row + 8 * j, s);
            acc[j] += s * k[i];
        }
    }
    UNROLL for (int j = 0; j < DELTA_VECTORS; j++) {
        d[j] = (load(v + 8 * j) - acc[j]) * beta;
        acc[j] = splat(0.0f);
    }
    for (size_t i = 0; i < n_rows; i++) {
        float *row = state + i * CSN_DELTA_COLS;
        UNROLL for (int j = 0; j < DELTA_VECTORS; j++) {
            v8f s = load(row + 8 * j) + d[j] * k[i];
            store(row + 8 * j, s);
            acc[j] += s * q[i];
        }
    }
    UNROLL for (int j = 0; j < DELTA_VECTORS; j++) {
        store(out + 8 * j, acc[j]);
    }
}

static void vec_delta(const csn_delta *a) {
    size_t nbytes = a->n_cols * sizeof(float);
    for (uint64_t t = 0; t < a->n; t++) {
        uint64_t at = t * a->stride;
        float v[CSN_DELTA_COLS] = {0};
        float out[CSN_DELTA_COLS];
        memcpy(v, a->v + at, nbytes);
        delta_token(a->state, a->q + at, a->k + at, a->decay + at, v, a->beta[t * a->beta_stride],
                    out, a->n_rows);
        memcpy(a->out + at, out, nbytes);
    }
}
