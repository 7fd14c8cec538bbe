/* SPDX-License-Identifier: Apache-2.0 */
/* From arch and tensors to the words of a WARP manifest, or to what they cannot say. */
#ifndef CSN_CONVERT_WARP_ARCH_H
#define CSN_CONVERT_WARP_ARCH_H

#include "convert/plan.h"
#include "convert/warp_words.h"

/* Arrays go to `arena`. CAISSON_E_UNSUPPORTED: the model is not of a kind that the format's engine
 * runs; what and why is told. */
caisson_status csn_warp_words_from(const csn_source *s, const csn_convert_plan *plan,
                                   csn_arena *arena, csn_warp_words *ret, caisson_error *err);

#endif
