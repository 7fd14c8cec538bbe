/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_MODEL_BLOCKS_STREAM_H
#define CSN_MODEL_BLOCKS_STREAM_H

#include "model/blocks/blocks.h"

/* y [n][dim] += the chosen experts of x [n][dim], fetched through moe->stream; picks are in mem.
 * Errors: those of reading, with layer and expert. */
caisson_status csn_block_streamed(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                                  csn_moe_memory *mem, uint32_t top_k, const float *x, float *y,
                                  uint64_t n, caisson_error *err);
/* So few vectors that experts are computed in the order in which they come, and mem->y, gate and up
 * are free meanwhile. */
bool csn_block_streams_few(const csn_moe *moe, uint32_t top_k, uint64_t n);

/* ---- of moe.c ---- */
/* mem->y [n][hidden] = the shared expert of mem->meanwhile, where there is one. */
void csn_moe_meanwhile(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                       uint64_t n);
/* Notes which of n vectors chose expert id (mem->rows, weights), in rising order; each expert once,
 * ids rising. Returns how many. */
uint32_t csn_moe_rows(csn_moe_memory *mem, uint32_t id, uint32_t top_k, uint64_t n);
/* Adds what expert id gives for the vectors that chose it to y. */
void csn_moe_run(csn_ops *ops, const csn_plan *plan, const csn_moe *moe, csn_moe_memory *mem,
                 uint32_t id, const csn_expert *e, uint32_t top_k, const float *x, float *y,
                 uint64_t n);

#endif
