/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/cut.h"

#include <string.h>

enum { N_PARTS = sizeof(((csn_dtype *)0)->parts) / sizeof(csn_payload_part) };

bool csn_can_cut(const csn_matrix *m) {
    return m->dtype->parts[0].of_32 != 0 && m->cols % 32 == 0;
}

static uint64_t part_nbytes(const csn_payload_part *p, uint64_t rows, uint64_t cols) {
    return rows * (cols / 32 * p->of_32 + p->of_row) + cols * p->of_col;
}

static uint64_t nbytes(const csn_matrix *m) {
    uint64_t sum = 0;
    for (int i = 0; i < N_PARTS; i++) {
        sum += part_nbytes(&m->dtype->parts[i], m->rows, m->cols);
    }
    return sum;
}

csn_matrix csn_cut_shape(const csn_matrix *m, const csn_cut *cut) {
    csn_matrix r = {.dtype = m->dtype,
                    .rows = cut->rows != NULL ? cut->n_rows : m->rows,
                    .cols = cut->cols != NULL ? 0 : m->cols};
    for (uint64_t i = 0; cut->cols != NULL && i < cut->n_cols; i++) {
        r.cols += cut->cols[i].end - cut->cols[i].first;
    }
    r.nbytes = nbytes(&r);
    return r;
}

/* Copies what is left of n columns of `of_32` bytes for each 32 of them; returns the end. */
static uint8_t *copy_cols(const uint8_t *from, uint64_t n, uint64_t of_32, const csn_cut *cut,
                          uint8_t *out) {
    const csn_span all = {0, n};
    const csn_span *cols = cut->cols != NULL ? cut->cols : &all;
    uint64_t n_cols = cut->cols != NULL ? cut->n_cols : 1;
    for (uint64_t i = 0; i < n_cols; i++) {
        size_t nbytes = (size_t)((cols[i].end - cols[i].first) / 32 * of_32);
        memcpy(out, from + cols[i].first / 32 * of_32, nbytes);
        out += nbytes;
    }
    return out;
}

static uint8_t *copy_part(const csn_matrix *m, const csn_payload_part *p, const uint8_t *from,
                          const csn_cut *cut, uint8_t *out) {
    if (p->of_col != 0) {
        return copy_cols(from, m->cols, (uint64_t)32 * p->of_col, cut, out);
    }
    uint64_t row_bytes = m->cols / 32 * p->of_32 + p->of_row;
    uint64_t n_rows = cut->rows != NULL ? cut->n_rows : m->rows;
    for (uint64_t i = 0; i < n_rows; i++) {
        const uint8_t *row = from + (cut->rows != NULL ? cut->rows[i] : i) * row_bytes;
        if (p->of_32 != 0) {
            out = copy_cols(row, m->cols, p->of_32, cut, out);
        } else {
            memcpy(out, row, p->of_row);
            out += p->of_row;
        }
    }
    return out;
}

csn_matrix csn_cut_make(const csn_matrix *m, const csn_cut *cut, uint8_t *out) {
    csn_matrix r = csn_cut_shape(m, cut);
    const uint8_t *from = m->data;
    r.data = out;
    for (int i = 0; i < N_PARTS; i++) {
        const csn_payload_part *p = &m->dtype->parts[i];
        out = copy_part(m, p, from, cut, out);
        from += part_nbytes(p, m->rows, m->cols);
    }
    return r;
}
