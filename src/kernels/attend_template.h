/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and the cache's number formats; part of vec_template.h. A block of 64 positions is
 * decoded to f32 once for all query rows of the call; then rows go four at a time, so that one load
 * of a key or value serves four rows. Which rows share a step does not show in their bits. */
enum { TILE = CSN_KV_TILE, BLOCK = CSN_KV_BLOCK, ROWS = 4 };

/* Below every real score, and finite, so that m - m is 0 and exp(m - anything real) is 0. */
static const float M_NONE = -1e30f;

/* f16 -> f32 for finite halves: 2^112 moves the exponent's bias, subnormals included. */
INLINE float half_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)(h & 0x7FFF) << 13;
    float f;
    memcpy(&f, &bits, sizeof(f));
    f *= 0x1p112f;
    memcpy(&bits, &f, sizeof(bits));
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* f32 -> f16, half to even, saturating at 65504; NaN becomes 65504 with its sign. What does not
 * fit is told by kv_store. */
INLINE uint16_t f32_to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000;
    float a = fabsf(x);
    a = a < 65504.0f ? a : 65504.0f;
    memcpy(&bits, &a, sizeof(bits));
    if (bits < 0x38800000) { /* below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits */
        a += 0.5f;
        memcpy(&bits, &a, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3F000000));
    }
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

typedef uint16_t v8h __attribute__((vector_size(16), aligned(1), may_alias));

/* Eight codes of q8_0. */
INLINE v8f load_codes(const int8_t *p) {
#ifdef __AVX2__
    __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (v8f)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
#else
    return (v8f){(float)p[0], (float)p[1], (float)p[2], (float)p[3],
                 (float)p[4], (float)p[5], (float)p[6], (float)p[7]};
#endif
}

/* Eight halves, as half_to_f32. */
INLINE v8f load_halves(const uint8_t *p) {
#ifdef __F16C__
    return (v8f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    v8i h = __builtin_convertvector(*(const v8h *)p, v8i);
    v8f magnitude = (v8f)((h & 0x7FFF) << 13) * 0x1p112f;
    return (v8f)((v8i)magnitude | (h & 0x8000) << 16);
#endif
}

INLINE void halves_to_f32(const uint8_t *src, float *dst, uint64_t n) {
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        store(dst + i, load_halves(src + 2 * i));
    }
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof(h));
        dst[i] = half_to_f32(h);
    }
}

/* As f32_to_half; NaN is the second operand of a minimum that returns it. */
INLINE void f32_to_halves(const float *x, uint16_t *h, uint64_t n) {
    uint64_t i = 0;
#ifdef __F16C__
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256 a = _mm256_min_ps(_mm256_andnot_ps(sign, v), _mm256_set1_ps(65504.0f));
        a = _mm256_or_ps(a, _mm256_and_ps(v, sign));
        _mm_storeu_si128((__m128i *)(void *)(h + i), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; i++) {
        h[i] = f32_to_half(x[i]);
    }
}

/* 16 keys as f32 [head_dim][16]. */
static void decode_k_tile(const csn_kv_head *kv, uint32_t i_tile, float *out) {
    uint32_t hd = kv->head_dim;
    const uint8_t *tile = kv->k + i_tile * csn_kv_k_tile_bytes(kv->type_k, hd);
    if (kv->type_k == CSN_KV_F32) {
        memcpy(out, tile, (size_t)hd * TILE * sizeof(float));
    } else if (kv->type_k == CSN_KV_F16) {
        halves_to_f32(tile, out, (uint64_t)hd * TILE);
    } else {
        const int8_t *codes = (const int8_t *)tile;
        float scale[TILE] = {0};
        for (uint32_t d = 0; d < hd; d++) {
            if (d % 32 == 0) {
                halves_to_f32(tile + (size_t)hd * TILE + (size_t)d / 32 * TILE * 2, scale, TILE);
            }
            UNROLL for (uint32_t j = d * TILE; j < (d + 1) * TILE; j += 8) {
                store(out + j, load_codes(codes + j) * load(scale + j % TILE));
            }
        }
    }
}

/* Value row of position pos as f32, padded with zeros to `stride`. */
static void decode_v_row(const csn_kv_head *kv, uint32_t pos, float *out, uint32_t stride) {
    uint32_t hd = kv->head_dim;
    const uint8_t *row = kv->v + pos * csn_kv_v_row_bytes(kv->type_v, hd);
    if (kv->type_v == CSN_KV_F32) {
        memcpy(out, row, hd * sizeof(float));
    } else if (kv->type_v == CSN_KV_F16) {
        halves_to_f32(row, out, hd);
    } else {
        const int8_t *codes = (const int8_t *)row;
        for (uint32_t d0 = 0; d0 < hd; d0 += 32) {
            uint16_t h;
            memcpy(&h, row + hd + d0 / 32 * 2, sizeof(h));
            float scale = half_to_f32(h);
            uint32_t d = d0;
            for (; d + 8 <= hd && d < d0 + 32; d += 8) {
                store(out + d, load_codes(codes + d) * scale);
            }
            for (; d < hd && d < d0 + 32; d++) {
                out[d] = (float)codes[d] * scale;
            }
        }
    }
    for (uint32_t d = hd; d < stride; d++) {
        out[d] = 0.0f;
    }
}

/* Codes of n <= 32 values at q (stride apart) with the scale's half. */
static uint16_t quantise_q8_0(const float *x, uint32_t n, int8_t *q, size_t stride) {
    float top = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        top = a > top ? a : top;
    }
    uint16_t h = f32_to_half(top / 127.0f);
    float scale = half_to_f32(h);
    for (uint32_t i = 0; i < n; i++) {
        float v = scale > 0.0f ? x[i] / scale : 0.0f;
        v = v < 127.0f ? v : 127.0f; /* a subnormal scale may be far too small, or x not a number */
        v = v > -127.0f ? v : -127.0f;
        float shifted = v + 12582912.0f;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        q[i * stride] = (int8_t)(bits - 0x4B400000);
    }
    return h;
}

static void store_k(const csn_kv_head *kv, uint32_t pos, const float *k) {
    uint32_t hd = kv->head_dim;
    uint8_t *tile = kv->k + pos / TILE * csn_kv_k_tile_bytes(kv->type_k, hd);
    uint32_t j = pos % TILE;
    if (kv->type_k == CSN_KV_F32) {
        for (uint32_t d = 0; d < hd; d++) {
            memcpy(tile + ((size_t)d * TILE + j) * 4, k + d, 4);
        }
    } else if (kv->type_k == CSN_KV_F16) {
        uint16_t h[32];
        for (uint32_t d0 = 0; d0 < hd; d0 += 32) {
            uint32_t n = hd - d0 < 32 ? hd - d0 : 32;
            f32_to_halves(k + d0, h, n);
            for (uint32_t d = 0; d < n; d++) {
                memcpy(tile + ((size_t)(d0 + d) * TILE + j) * 2, h + d, 2);
            }
        }
    } else {
        for (uint32_t d = 0; d < hd; d += 32) {
            uint32_t n = hd - d < 32 ? hd - d : 32;
            int8_t *codes = (int8_t *)tile + (size_t)d * TILE + j;
            uint16_t h = quantise_q8_0(k + d, n, codes, TILE);
            memcpy(tile + (size_t)hd * TILE + ((size_t)d / 32 * TILE + j) * 2, &h, 2);
        }
    }
}

static void store_v(const csn_kv_head *kv, uint32_t pos, const float *v) {
    uint32_t hd = kv->head_dim;
    uint8_t *row = kv->v + pos * csn_kv_v_row_bytes(kv->type_v, hd);
    if (kv->type_v == CSN_KV_F32) {
        memcpy(row, v, hd * sizeof(float));
    } else if (kv->type_v == CSN_KV_F16) {
        uint16_t h[32];
        for (uint32_t d0 = 0; d0 < hd; d0 += 32) {
            uint32_t n = hd - d0 < 32 ? hd - d0 : 32;
            f32_to_halves(v + d0, h, n);
            memcpy(row + (size_t)d0 * 2, h, (size_t)n * 2);
        }
    } else {
        for (uint32_t d = 0; d < hd; d += 32) {
            uint32_t n = hd - d < 32 ? hd - d : 32;
            uint16_t h = quantise_q8_0(v + d, n, (int8_t *)row + d, 1);
            memcpy(row + hd + d / 32 * 2, &h, 2);
        }
    }
}

/* Bits of the largest magnitude if the type cannot hold it, else 0. Magnitudes are ordered as the
 * integers of their bits are, infinity behind all numbers, NaN behind that. */
static uint32_t find_lost(csn_kv_type type, const float *x, uint32_t n) {
    static const float first_lost[] = {
        [CSN_KV_F16] = 65520.0f, [CSN_KV_F32] = INFINITY, [CSN_KV_Q8_0] = 127 * 65520.0f};
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof(largest));
    return largest < first_lost[type] ? 0 : most;
}

static uint32_t vec_kv_store(const csn_kv_head *kv, uint32_t pos, const float *k, const float *v) {
    if (kv->v_dim != 0) {
        store_v(kv, pos, k);
        return find_lost(kv->type_v, k, kv->head_dim);
    }
    store_k(kv, pos, k);
    store_v(kv, pos, v);
    uint32_t lost_k = find_lost(kv->type_k, k, kv->head_dim);
    uint32_t lost_v = find_lost(kv->type_v, v, kv->head_dim);
    return lost_k > lost_v ? lost_k : lost_v;
}

/* Number i of an array of halves or floats, and the seven behind it. */
INLINE v8f load_of(const bool half, const uint8_t *p, size_t i) {
    return half ? load_halves(p + 2 * i) : load((const float *)(const void *)p + i);
}

/* Scores of nr rows q [nr][hd] for one tile of keys, halves or floats: s[row * BLOCK + 0..15], over
 * rising d. */
INLINE void score_tile(const int nr, const bool half, const float *q, uint32_t hd, const uint8_t *k,
                       float *s) {
    v8f acc[ROWS][2];
    UNROLL for (int r = 0; r < nr; r++) {
        acc[r][0] = splat(0.0f);
        acc[r][1] = splat(0.0f);
    }
    for (uint32_t d = 0; d < hd; d++) {
        v8f k0 = load_of(half, k, (size_t)d * TILE);
        v8f k1 = load_of(half, k, (size_t)d * TILE + 8);
        UNROLL for (int r = 0; r < nr; r++) {
            v8f x = splat(q[(size_t)r * hd + d]);
            acc[r][0] += x * k0;
            acc[r][1] += x * k1;
        }
    }
    UNROLL for (int r = 0; r < nr; r++) {
        store(s + r * BLOCK, acc[r][0]);
        store(s + r * BLOCK + 8, acc[r][1]);
    }
}

/* out[row] = out[row] * correction[row] + sum over n keys of p[row][key] * v[key], 16 dims from d
 * on; values are halves or floats. */
INLINE void mix_values(const int nr, const bool half, const float *p, const uint8_t *v,
                       uint32_t v_stride, uint32_t d, uint32_t n, const float *correction,
                       float *out, uint32_t out_stride) {
    v8f acc[ROWS][2];
    UNROLL for (int r = 0; r < nr; r++) {
        acc[r][0] = splat(0.0f);
        acc[r][1] = splat(0.0f);
    }
    for (size_t j = 0; j < n; j++) {
        v8f v0 = load_of(half, v, j * v_stride + d);
        v8f v1 = load_of(half, v, j * v_stride + d + 8);
        UNROLL for (int r = 0; r < nr; r++) {
            v8f x = splat(p[(size_t)r * BLOCK + j]);
            acc[r][0] += x * v0;
            acc[r][1] += x * v1;
        }
    }
    UNROLL for (int r = 0; r < nr; r++) {
        float *o = out + (size_t)r * out_stride + d;
        store(o, load(o) * correction[r] + acc[r][0]);
        store(o + 8, load(o + 8) * correction[r] + acc[r][1]);
    }
}

/* Which keys [k0, k1) of the block at `base` a query at `pos` sees, relative to the block. */
INLINE void visible(const csn_attend *a, uint32_t pos, uint32_t base, uint32_t *k0, uint32_t *k1) {
    uint32_t first = a->window != 0 && pos + 1 > a->window ? pos + 1 - a->window : 0;
    *k0 = first > base ? (first - base < BLOCK ? first - base : BLOCK) : 0;
    *k1 = pos < base ? 0 : pos - base + 1 < BLOCK ? pos - base + 1 : BLOCK;
}

/* Masks, caps and exponentiates one row of scores; updates its maximum m and sum l and returns the
 * factor that brings what was summed before to the new maximum. */
INLINE float softmax_row(float *s, uint32_t k0, uint32_t k1, float softcap, float *m, float *l) {
    if (softcap > 0.0f) {
        vec_softcap(s, BLOCK, softcap);
    }
    for (uint32_t j = 0; j < k0; j++) {
        s[j] = -INFINITY;
    }
    for (uint32_t j = k1; j < BLOCK; j++) {
        s[j] = -INFINITY;
    }
    v8f top = load(s);
    UNROLL for (int j = 8; j < BLOCK; j += 8) {
        top = vmax(top, load(s + j));
    }
    float m_new = max8(top);
    m_new = m_new > *m ? m_new : *m;
    v8f sum = splat(0.0f);
    for (int j = 0; j < BLOCK; j += 8) {
        v8f e = exp8(load(s + j) - m_new);
        store(s + j, e);
        sum += e;
    }
    float correction = *m == m_new ? 1.0f : exp8(splat(*m - m_new))[0];
    *l = *l * correction + tree8(sum);
    *m = m_new;
    return correction;
}

struct attend_state { /* shapes for R rows, hdp = head_dim rounded up to 16, vdp = v_dim */
    float *k;         /* [BLOCK / TILE][head_dim][TILE] the block as f32 */
    float *v;         /* [BLOCK][hdp] */
    float *q;         /* [R][head_dim], scaled */
    float *out;       /* [R][vdp] */
    float *m, *l;     /* [R] */
    uint32_t hdp, vdp;
};

/* One block for rows [r, r + nr) of the call; its keys and values as f32, or as they are stored
 * (halves). */
INLINE void attend_rows(const int nr, const bool half, const csn_attend *a,
                        const struct attend_state *st, const uint8_t *k, const uint8_t *v,
                        uint64_t r, uint32_t base) {
    uint32_t hd = a->kv.head_dim;
    uint32_t k0[ROWS];
    uint32_t k1[ROWS];
    uint32_t low = BLOCK;
    uint32_t high = 0;
    for (int i = 0; i < nr; i++) {
        visible(a, a->pos0 + (uint32_t)((r + (uint64_t)i) / a->n_group), base, &k0[i], &k1[i]);
        if (k0[i] < k1[i]) {
            low = k0[i] < low ? k0[i] : low;
            high = k1[i] > high ? k1[i] : high;
        }
    }
    if (low >= high) {
        return;
    }
    float s[ROWS * BLOCK];
    float correction[ROWS];
    for (uint32_t j = low / TILE * TILE; j < high; j += TILE) {
        size_t at = (size_t)j * hd * (half ? 2 : sizeof(float));
        score_tile(nr, half, st->q + r * hd, hd, k + at, s + j);
    }
    for (int i = 0; i < nr; i++) {
        /* tiles that were not computed are outside [k0, k1): softmax_row overwrites them */
        float *row = s + (size_t)i * BLOCK;
        for (uint32_t j = 0; j < low / TILE * TILE; j++) {
            row[j] = 0.0f;
        }
        for (uint32_t j = (high + TILE - 1) / TILE * TILE; j < BLOCK; j++) {
            row[j] = 0.0f;
        }
        uint32_t end = k0[i] < k1[i] ? k1[i] : k0[i];
        correction[i] = softmax_row(row, k0[i], end, a->softcap, st->m + r + i, st->l + r + i);
    }
    for (uint32_t d = 0; d < st->vdp; d += 16) {
        size_t at = (size_t)low * st->hdp * (half ? 2 : sizeof(float));
        mix_values(nr, half, s + low, v + at, st->hdp, d, high - low, correction,
                   st->out + r * st->vdp, st->vdp);
    }
}

#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

/* 8 x 8 values: out[d * TILE + j] = rows[j * stride + d]. Pairs, fours and eights of rows change
 * places with those of columns. */
INLINE void turn_8x8(const float *rows, size_t stride, float *out) {
    v8f a[8];
    v8f b[8];
    UNROLL for (int j = 0; j < 8; j += 2) {
        v8f r0 = load(rows + (size_t)j * stride);
        v8f r1 = load(rows + (size_t)(j + 1) * stride);
        a[j] = SHUFFLE(r0, r1, 0, 8, 1, 9, 4, 12, 5, 13);
        a[j + 1] = SHUFFLE(r0, r1, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int j = 0; j < 8; j += 4) {
        UNROLL for (int k = 0; k < 2; k++) {
            b[j + 2 * k] = SHUFFLE(a[j + k], a[j + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[j + 2 * k + 1] = SHUFFLE(a[j + k], a[j + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    UNROLL for (size_t k = 0; k < 4; k++) {
        store(out + k * TILE, SHUFFLE(b[k], b[k + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(out + (k + 4) * TILE, SHUFFLE(b[k], b[k + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

/* Keys of latent attention: a tile of 16 rows with positions innermost. */
static void turn_rows(const float *rows, uint32_t stride, uint32_t hd, float *out) {
    uint32_t d = 0;
    for (; d + 8 <= hd; d += 8) {
        turn_8x8(rows + d, stride, out + (size_t)d * TILE);
        turn_8x8(rows + (size_t)8 * stride + d, stride, out + (size_t)d * TILE + 8);
    }
    for (; d < hd; d++) {
        for (uint32_t j = 0; j < TILE; j++) {
            out[d * TILE + j] = rows[(size_t)j * stride + d];
        }
    }
}

/* Decodes the block once, then takes its rows four at a time. */
static void attend_block(const csn_attend *a, const struct attend_state *st, uint64_t n_rows,
                         uint32_t base, uint32_t n_keys) {
    uint32_t hd = a->kv.head_dim;
    bool is_latent = a->kv.v_dim != 0;
    /* a tile that is turned is whole: the cache has rows, zeros or of old, up to the block's end */
    uint32_t n_rows_v = is_latent ? (n_keys + TILE - 1) / TILE * TILE : n_keys;
    for (uint32_t j = 0; j < n_rows_v; j++) {
        decode_v_row(&a->kv, base + j, st->v + (size_t)j * st->hdp, st->hdp);
    }
    for (uint32_t j = 0; j < n_keys; j += TILE) {
        float *tile = st->k + (size_t)j * hd;
        if (is_latent) {
            turn_rows(st->v + (size_t)j * st->hdp, st->hdp, hd, tile);
        } else {
            decode_k_tile(&a->kv, (base + j) / TILE, tile);
        }
    }
    const uint8_t *k = (const uint8_t *)st->k;
    const uint8_t *v = (const uint8_t *)st->v;
    uint64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS) {
        attend_rows(ROWS, false, a, st, k, v, r, base);
    }
    switch (n_rows - r) {
    case 3: attend_rows(3, false, a, st, k, v, r, base); break;
    case 2: attend_rows(2, false, a, st, k, v, r, base); break;
    case 1: attend_rows(1, false, a, st, k, v, r, base); break;
    default: break;
    }
}

/* Up to four rows over halves as they are stored: each key is read once, so decoding it to memory
 * first would only cost. */
static void attend_block_halves(const csn_attend *a, const struct attend_state *st, uint64_t n_rows,
                                uint32_t base) {
    uint32_t hd = a->kv.head_dim;
    const uint8_t *k = a->kv.k + base / TILE * csn_kv_k_tile_bytes(CSN_KV_F16, hd);
    const uint8_t *v = a->kv.v + base * csn_kv_v_row_bytes(CSN_KV_F16, hd);
    switch (n_rows) {
    case 4: attend_rows(4, true, a, st, k, v, 0, base); break;
    case 3: attend_rows(3, true, a, st, k, v, 0, base); break;
    case 2: attend_rows(2, true, a, st, k, v, 0, base); break;
    default: attend_rows(1, true, a, st, k, v, 0, base); break;
    }
}

static void vec_attend(const csn_attend *a) {
    uint32_t hd = a->kv.head_dim;
    uint64_t n_rows = (uint64_t)a->n_group * a->n_queries;
    uint32_t vd = a->kv.v_dim != 0 ? a->kv.v_dim : hd;
    struct attend_state st = {.hdp = (hd + 15) / 16 * 16, .vdp = (vd + 15) / 16 * 16};
    st.k = a->scratch;
    st.v = st.k + (size_t)BLOCK * hd;
    st.q = st.v + (size_t)BLOCK * st.hdp;
    st.out = st.q + n_rows * hd;
    st.m = st.out + n_rows * st.vdp;
    st.l = st.m + n_rows;

    for (uint64_t r = 0; r < n_rows; r++) {
        const float *q = a->q + r / a->n_group * a->q_stride + r % a->n_group * hd;
        for (uint32_t d = 0; d < hd; d++) {
            st.q[r * hd + d] = q[d] * a->scale;
        }
        st.m[r] = M_NONE;
        st.l[r] = 0.0f;
    }
    memset(st.out, 0, n_rows * st.vdp * sizeof(float));

    bool as_stored = n_rows <= ROWS && a->kv.type_k == CSN_KV_F16 && a->kv.type_v == CSN_KV_F16 &&
                     st.hdp == hd && a->kv.v_dim == 0;
    uint32_t last = a->pos0 + a->n_queries - 1;
    uint32_t first = a->window != 0 && a->pos0 + 1 > a->window ? a->pos0 + 1 - a->window : 0;
    for (uint32_t base = first / BLOCK * BLOCK; base <= last; base += BLOCK) {
        if (as_stored) {
            attend_block_halves(a, &st, n_rows, base);
        } else {
            attend_block(a, &st, n_rows, base, last - base + 1 < BLOCK ? last - base + 1 : BLOCK);
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        float *out = a->out + r / a->n_group * a->out_stride + r % a->n_group * vd;
        float inverse = 1.0f / st.l[r];
        for (uint32_t d = 0; d < vd; d++) {
            out[d] = st.out[r * st.vdp + d] * inverse;
        }
    }
}
