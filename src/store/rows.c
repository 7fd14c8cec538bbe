/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rows.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

csn_rows csn_rows_in_memory(const csn_matrix *m) {
    return (csn_rows){.m = *m};
}

csn_rows csn_rows_in_file(const csn_matrix *m, csn_str name, csn_file *file, uint64_t offset,
                          uint64_t head_nbytes, uint64_t rest_offset) {
    csn_rows t = {.m = *m, .name = name, .file = file};
    uint64_t at = 0; /* in the payload */
    t.n_parts = csn_row_parts(m->dtype, m->cols, t.parts);
    for (uint32_t i = 0; i < t.n_parts; i++) {
        t.offsets[i] = at < head_nbytes ? offset + at : rest_offset + (at - head_nbytes);
        at += t.parts[i].nbytes * (t.parts[i].is_shared ? 1 : m->rows);
    }
    return t;
}

uint64_t csn_rows_nbytes(const csn_rows *t, uint64_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_parts; i++) {
        sum += t->parts[i].nbytes * (t->parts[i].is_shared ? 1 : n);
    }
    return sum;
}

caisson_status csn_rows_fetch(const csn_rows *t, uint64_t row0, uint64_t n, uint8_t *buffer,
                              csn_matrix *ret, caisson_error *err) {
    uint8_t *to = buffer;
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const csn_row_part *p = &t->parts[i];
        uint64_t at = t->offsets[i] + (p->is_shared ? 0 : row0 * p->nbytes);
        size_t nbytes = (size_t)(p->nbytes * (p->is_shared ? 1 : n));
        CSN_TRY(csn_file_read_at(t->file, at, to, nbytes, err));
        to += nbytes;
    }
    *ret = (csn_matrix){.dtype = t->m.dtype,
                        .data = buffer,
                        .nbytes = (uint64_t)(to - buffer),
                        .rows = n,
                        .cols = t->m.cols};
    return CAISSON_OK;
}

static caisson_status read_row(const csn_rows *t, int32_t row, uint8_t *buffer, float *out,
                               caisson_error *err) {
    csn_matrix one;
    char text[96];
    caisson_status status = csn_rows_fetch(t, (uint64_t)row, 1, buffer, &one, err);
    if (status != CAISSON_OK) {
        (void)snprintf(text, sizeof(text), "%.*s, row %d", CSN_STR_ARGS(t->name), (int)row);
        csn_error_tensor(err, csn_str_from(text));
        csn_error_file(err, t->file->path);
        return status;
    }
    one.dtype->decode(&one, 0, one.cols, out);
    return CAISSON_OK;
}

/* Place of the first id that is ids[i]. */
static uint64_t find_first(const int32_t *ids, uint64_t i) {
    uint64_t k = 0;
    while (ids[k] != ids[i]) {
        k++;
    }
    return k;
}

caisson_status csn_rows_read(const csn_rows *t, const int32_t *ids, uint64_t n, float *out,
                             caisson_error *err) {
    uint64_t cols = t->m.cols;
    caisson_status status = CAISSON_OK;
    uint8_t *buffer;
    CSN_TRY(CSN_NEW((size_t)csn_rows_nbytes(t, 1), &buffer, err));
    for (uint64_t i = 0; i < n && status == CAISSON_OK; i++) {
        uint64_t k = find_first(ids, i);
        if (k < i) {
            memcpy(out + i * cols, out + k * cols, (size_t)cols * sizeof(float));
        } else {
            status = read_row(t, ids[i], buffer, out + i * cols, err);
        }
    }
    csn_free(buffer);
    return status;
}
