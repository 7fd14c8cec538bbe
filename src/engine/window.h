/* SPDX-License-Identifier: Apache-2.0 */
/* A text of any length, cut into windows of a context that do not overlap. */
#ifndef CSN_ENGINE_WINDOW_H
#define CSN_ENGINE_WINDOW_H

#include "base/progress.h"

/* One window of n ids, BOS included. `progress` counts the window's own tokens. */
typedef caisson_status (*csn_window_fn)(void *ctx, const int32_t *ids, uint32_t n,
                                        const csn_progress *progress, caisson_error *err);

/* Calls fn for each window of up to n_ctx tokens in turn, each behind `bos` (< 0: none). `progress`
 * hears of `stage` in tokens of the text. CAISSON_E_ARG: no ids, or a context of fewer than two
 * tokens; else the first failure of fn or of progress. */
caisson_status csn_windows_run(const int32_t *ids, uint64_t n, int32_t bos, uint32_t n_ctx,
                               const char *stage, const csn_progress *progress, csn_window_fn fn,
                               void *ctx, caisson_error *err);

#endif
