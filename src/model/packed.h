/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of what a task mask leaves of the FFN: rows of gate_proj and up_proj one after another, so
 * that they are read in streams (docs/decisions/003-streams-of-rows.md), and rows of down_proj
 * without the columns that nothing feeds.
 *
 * The bits stay those of the whole matrices: rows do not meet, and columns are left out 256 at a
 * time, so that each group of 32 keeps its scale and its lane (kernels/kernels.h) and only +0 is
 * missing from the sums. Layers whose dtype cannot be cut (quant/cut.h) are left as they are.
 */
#ifndef CSN_MODEL_PACKED_H
#define CSN_MODEL_PACKED_H

#include "model/active.h"

/* Memory of all copies; 0: there is nothing to copy. The plan's weights need not be there. */
caisson_status csn_packed_nbytes(const csn_active *a, const csn_plan *plan, uint64_t *ret,
                                 caisson_error *err);
/* Makes them, for a plan whose weights are in memory; csn_active_free frees them. On failure the
 * mask works without. */
caisson_status csn_packed_make(csn_active *a, const csn_plan *plan, caisson_error *err);

#endif
