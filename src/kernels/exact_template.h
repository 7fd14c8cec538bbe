/* SPDX-License-Identifier: Apache-2.0 */
/* add_exact for rows of int8 codes with one f16 scale a row (q8_row, q8_2f). Included once a width,
 * behind a definition of
 *   static void load_scales(const uint8_t *f16, uint64_t m, float *out)    m <= EXACT_ROWS
 *
 * A column of a matrix that lies in rows costs a cache line a row. So a block of rows is done for
 * all vectors, and the columns that it needed last are kept: the large elements of neighbouring
 * tokens mostly stand in the same few columns. */
#include <string.h>

_Static_assert(CSN_X8_EXACT == 2, "add_two adds two");
enum { EXACT_ROWS = 64, EXACT_SLOTS = 32 };

struct exact_columns { /* one set for each k: two columns of a vector never share a slot */
    uint32_t of[CSN_X8_EXACT][EXACT_SLOTS]; /* which column is in a slot */
    float w[CSN_X8_EXACT][EXACT_SLOTS][EXACT_ROWS];
};

static const float *get_column(struct exact_columns *c, const csn_matrix *w, uint32_t i, uint64_t b,
                               uint64_t m, const float *scale, unsigned k) {
    uint32_t slot = i % EXACT_SLOTS;
    float *out = c->w[k][slot];
    if (c->of[k][slot] == i) {
        return out;
    }
    c->of[k][slot] = i;
    const int8_t *codes = (const int8_t *)w->data + b * w->cols + i;
    int8_t q[EXACT_ROWS] = {0};
    for (uint64_t r = 0; r < m; r++) {
        q[r] = codes[r * w->cols];
    }
    for (uint64_t r = 0; r < EXACT_ROWS; r++) {
        out[r] = (float)q[r] * scale[r];
    }
    return out;
}

/* y += w0 * x0, then w1 * x1. */
static inline void add_two(float *restrict y, const float *w0, float x0, const float *w1, float x1,
                           uint64_t m) {
    for (uint64_t r = 0; r < m; r++) {
        float v = y[r] + w0[r] * x0;
        y[r] = v + w1[r] * x1;
    }
}

static void add_exact(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,
                      uint64_t r0, uint64_t r1) {
    const uint8_t *scales = w->data + w->rows * w->cols;
    struct exact_columns c;
    float scale[EXACT_ROWS] = {0};
    for (uint64_t b = r0; b < r1; b += EXACT_ROWS) {
        uint64_t m = r1 - b < EXACT_ROWS ? r1 - b : EXACT_ROWS;
        load_scales(scales + 2 * b, m, scale);
        memset(c.of, 0xff, sizeof(c.of));
        for (uint64_t t = 0; t < n; t++) {
            const float *column[CSN_X8_EXACT];
            const float *v = x->exact_x + t * CSN_X8_EXACT;
            for (unsigned k = 0; k < CSN_X8_EXACT; k++) {
                column[k] = get_column(&c, w, x->exact_i[t * CSN_X8_EXACT + k], b, m, scale, k);
            }
            if (m == EXACT_ROWS) { /* a length that the compiler knows */
                add_two(y + t * y_stride + b, column[0], v[0], column[1], v[1], EXACT_ROWS);
            } else {
                add_two(y + t * y_stride + b, column[0], v[0], column[1], v[1], m);
            }
        }
    }
}
