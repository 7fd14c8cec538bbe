/* SPDX-License-Identifier: Apache-2.0 */
/* Some rows and columns of a matrix as a matrix of its own: the same codes and scales, so that
 * products with it are the products with the rows that are left, without the columns left out. */
#ifndef CSN_QUANT_CUT_H
#define CSN_QUANT_CUT_H

#include "quant/dtype.h"

typedef struct csn_span { /* [first, end), multiples of 32 */
    uint64_t first, end;
} csn_span;

typedef struct csn_cut {  /* what is left, rising */
    const uint32_t *rows; /* [n_rows]; NULL: all */
    const csn_span *cols; /* [n_cols]; NULL: all */
    uint64_t n_rows, n_cols;
} csn_cut;

/* Whether rows and columns can be told apart in its payload (csn_dtype.parts). */
bool csn_can_cut(const csn_matrix *m);
/* What is left of m, which csn_can_cut; data is NULL. */
csn_matrix csn_cut_shape(const csn_matrix *m, const csn_cut *cut);
/* The same with its payload, which is written to out, csn_cut_shape().nbytes long. */
csn_matrix csn_cut_make(const csn_matrix *m, const csn_cut *cut, uint8_t *out);

#endif
