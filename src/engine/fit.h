/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the description of a skill's prompts (facts 10.3): their mean hidden state and the
 * directions in which they differ most. */
#ifndef CSN_ENGINE_FIT_H
#define CSN_ENGINE_FIT_H

#include "engine/route.h"

enum { CSN_FIT_MAX_RANK = 8 };

/* phi [n][hidden] of n >= 1 prompts. mean [hidden]; basis [CSN_FIT_MAX_RANK][hidden], of which
 * min(rank, n - 1, CSN_FIT_MAX_RANK) rows are written (fewer where the prompts span fewer):
 * orthonormal, by 50 power iterations each, in f64. */
caisson_status csn_selection_fit(const float *phi, uint32_t n, uint32_t hidden, uint32_t rank,
                                 float *mean, float *basis, uint32_t *ret_rank, caisson_error *err);

/* Rounds mean and basis of s to f16, as a reader will see them, and sets err_mean and err_std: of
 * the raw errors of phi [n][hidden], n >= 1. */
void csn_selection_measure(csn_cmf_selection *s, const float *phi, uint32_t n, uint32_t hidden);

/* header.skills[].selection as the format stores it: values rounded to f16, in base64; err_mean,
 * err_std and, where it has any, holdout too. */
void csn_selection_write(csn_jw *w, const csn_cmf_selection *s, uint32_t hidden);

#endif
