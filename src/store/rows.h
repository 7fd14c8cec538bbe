/* SPDX-License-Identifier: Apache-2.0 */
/* A table of which few rows are used at a time, the embedding: in memory, or read from its file as
 * rows are wanted, through the page cache. A row that cannot be read is an error that names the
 * tensor and the row; the table stays as good as it was. */
#ifndef CSN_STORE_ROWS_H
#define CSN_STORE_ROWS_H

#include "base/io.h"
#include "quant/dtype.h"

typedef struct csn_rows {
    csn_matrix m; /* data NULL: it is read */
    csn_str name; /* in the directory's memory */
    csn_file *file;
    uint32_t n_parts;
    csn_row_part parts[CSN_ROW_PARTS];
    uint64_t offsets[CSN_ROW_PARTS]; /* of row 0 in the file */
} csn_rows;

csn_rows csn_rows_in_memory(const csn_matrix *m);
/* Of m, which has csn_row_parts: the first `head_nbytes` bytes of the payload lie at `offset`,
 * the rest at rest_offset. A part lies in one of the two. */
csn_rows csn_rows_in_file(const csn_matrix *m, csn_str name, csn_file *file, uint64_t offset,
                          uint64_t head_nbytes, uint64_t rest_offset);
/* Of a table in a file: rows [row0, row0 + n) as a payload of their own, `buffer` holding
 * csn_rows_nbytes; *ret is the matrix that they are. CAISSON_E_IO. */
uint64_t csn_rows_nbytes(const csn_rows *t, uint64_t n);
caisson_status csn_rows_fetch(const csn_rows *t, uint64_t row0, uint64_t n, uint8_t *buffer,
                              csn_matrix *ret, caisson_error *err);
/* Of a table in a file: rows `ids`, each in [0, m.rows), as f32: out [n][m.cols]. A row that is
 * wanted twice is read once. CAISSON_E_IO, _NOMEM. Any thread. */
caisson_status csn_rows_read(const csn_rows *t, const int32_t *ids, uint64_t n, float *out,
                             caisson_error *err);

#endif
