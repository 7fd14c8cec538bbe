/* SPDX-License-Identifier: Apache-2.0 */
/* The outliers of q1s and q1t on top of the product of their tiles, int8 mode. Included once a
 * width, behind a definition of
 *   static inline float outlier_delta(const uint8_t *value, float weight, const uint8_t *scale)
 *                                                            value - weight * scale, of f16
 *
 * For each outlier of a row, in rising order:
 *   y += (value - weight of the tile * scale) * (x_scale[g] * (float)q_x[i]), not fused. */
#include "quant/q1.h"

enum {
    LANES = 8,            /* vectors at once, where there are more than one */
    MOST_FLOATS = 1 << 14 /* of x at once: 64 KiB */
};

/* Columns [c0, c1) of vectors t to t + lanes - 1 as floats, out[column - c0][lanes]; zeros where
 * there is no vector. */
static inline void x_floats(const csn_x8 *x, uint64_t t, uint64_t n, unsigned lanes, uint64_t c0,
                            uint64_t c1, float *out) {
    for (unsigned l = 0; l < lanes; l++) {
        const bool is_there = t + l < n;
        const uint64_t of = is_there ? t + l : t;
        for (uint64_t c = c0; c < c1; c += 32) { /* both are multiples of 32 */
            const float scale = x->scale[of * x->g_stride + c / 32];
            for (uint64_t k = 0; k < 32; k++) {
                float v = scale * (float)x->q[of * x->q_stride + c + k];
                out[(c - c0 + k) * lanes + l] = is_there ? v : 0;
            }
        }
    }
}

/* Value less what the tile has, of the outlier at p in column `col` of a row of tiles. */
static inline float delta_of(bool is_q1t, const uint8_t *p, const uint8_t *tiles, uint64_t col) {
    static const float sign[2] = {-1.0f, 1.0f};
    const uint8_t *tile = tiles + col / 32 * (is_q1t ? CSN_Q1T_TILE : CSN_Q1_TILE);
    unsigned k = (unsigned)col % 32;
    float weight = is_q1t ? (float)csn_q1t_weight(tile, k) : sign[csn_q1_bit(tile, k)];
    return outlier_delta(p + (is_q1t ? CSN_Q1T_OUTLIER : CSN_Q1S_OUTLIER) - 2, weight, tile);
}

/* Some rows and columns of one product. */
struct patch {
    const csn_matrix *w;
    const float *x; /* of columns [c0, c1), from x_floats */
    uint64_t c0, c1;
    float *y; /* of the first of the vectors */
    uint64_t y_stride, n;
};

/* Adds the outliers of row r from p on, to the first that is another row's or to `end`; returns
 * where they end. */
static inline const uint8_t *add_row(bool is_q1t, unsigned lanes, const struct patch *a, uint64_t r,
                                     const uint8_t *p, const uint8_t *end) {
    const uint64_t first = is_q1t ? 0 : r * a->w->cols;
    const uint64_t tile_bytes = is_q1t ? CSN_Q1T_TILE : CSN_Q1_TILE;
    const uint8_t *tiles = a->w->data + r * (a->w->cols / 32) * tile_bytes;
    float sum[LANES] = {0};
    for (unsigned l = 0; l < lanes && l < a->n; l++) {
        sum[l] = a->y[l * a->y_stride + r];
    }
    for (; p < end; p += is_q1t ? CSN_Q1T_OUTLIER : CSN_Q1S_OUTLIER) {
        uint64_t col = (is_q1t ? csn_q1t_column(p) : csn_q1s_index(p)) - first;
        if (col - a->c0 >= a->c1 - a->c0) { /* below c0: changed under the mapping */
            break;
        }
        float delta = delta_of(is_q1t, p, tiles, col);
        const float *x = a->x + (col - a->c0) * lanes;
        for (unsigned l = 0; l < lanes; l++) {
            sum[l] += delta * x[l];
        }
    }
    for (unsigned l = 0; l < lanes && l < a->n; l++) {
        a->y[l * a->y_stride + r] = sum[l];
    }
    return p;
}

static inline void add_rows(bool is_q1t, unsigned lanes, const struct patch *a, uint64_t r0,
                            uint64_t r1) {
    const csn_matrix *w = a->w;
    const uint64_t bytes = is_q1t ? CSN_Q1T_OUTLIER : CSN_Q1S_OUTLIER;
    const bool follow = !is_q1t && a->c0 == 0 && a->c1 == w->cols; /* on each other, all rows */
    csn_outliers o = {0};
    for (uint64_t r = r0; r < r1; r++) {
        if (is_q1t) {
            o = csn_q1t_outliers(w, r, a->c0, a->c1);
        } else if (!follow || r == r0) {
            uint64_t end = follow ? r1 * w->cols : r * w->cols + a->c1;
            o = csn_q1s_outliers(w, r * w->cols + a->c0, end);
        }
        const uint8_t *p = add_row(is_q1t, lanes, a, r, o.p, o.p + o.n * bytes);
        o.n -= (uint64_t)(p - o.p) / bytes;
        o.p = p;
    }
}

static inline void add_outliers(bool is_q1t, const csn_matrix *w, const csn_x8 *x, uint64_t n,
                                float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    float floats[MOST_FLOATS];
    const unsigned lanes = n == 1 ? 1 : LANES;
    for (uint64_t t = 0; t < n; t += lanes) {
        for (uint64_t c0 = 0; c0 < w->cols; c0 += MOST_FLOATS / lanes) {
            uint64_t c1 = w->cols - c0 < MOST_FLOATS / lanes ? w->cols : c0 + MOST_FLOATS / lanes;
            x_floats(x, t, n, lanes, c0, c1, floats);
            const struct patch a = {w, floats, c0, c1, y + t * y_stride, y_stride, n - t};
            if (lanes == 1) {
                add_rows(is_q1t, 1, &a, r0, r1);
            } else {
                add_rows(is_q1t, LANES, &a, r0, r1);
            }
        }
    }
}
