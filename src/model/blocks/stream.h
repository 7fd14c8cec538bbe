/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_MODEL_BLOCKS_STREAM_H
#define CSN_MODEL_BLOCKS_STREAM_H

#include "model/blocks/blocks.h"

enum {
    CSN_LOOKAHEAD = 6
}; /* experts guessed of the next layer: what comes after is wrong too often
    * (warp facts 12) */

/* y [n][dim] += the chosen experts of x [n][dim], fetched through moe->stream; picks are in mem.
 * Errors: those of reading, with layer and expert. */
caisson_status csn_block_streamed(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                                  csn_moe_memory *mem, uint32_t top_k, const float *x, float *y,
                                  uint64_t n, caisson_error *err);
/* Asks the router of the next mixture what it would choose for this one's input x [hidden], and has
 * that read when the disk is free. Picks and logits in mem are overwritten. */
void csn_block_look_ahead(csn_ops *ops, const csn_plan *plan, const csn_moe *next,
                          csn_moe_memory *mem, const float *x);

/* ---- of moe.c ---- */
/* Notes which of n vectors chose expert id (mem->rows, weights), in rising order; each expert once,
 * ids rising. Returns how many. */
uint32_t csn_moe_rows(csn_moe_memory *mem, uint32_t id, uint32_t top_k, uint64_t n);
/* Adds what expert id gives for the vectors that chose it to y. */
void csn_moe_run(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                 uint32_t id, const csn_expert *e, uint32_t top_k, const float *x, float *y,
                 uint64_t n);

#endif
