/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_CONVERT_FAMILIES_GEMMA_INTERNAL_H
#define CSN_CONVERT_FAMILIES_GEMMA_INTERNAL_H

#include "arch/arch.h"
#include "convert/config.h"

/* Norm style, activation and embedding scale of all Gemmas; sizes must be set. */
void csn_gemma_common(csn_arch *a);
/* sliding_window of Gemma 2 and 3, which have one always: null and 0 are refused. */
caisson_status csn_gemma_window(csn_config *c, csn_arch *a, caisson_error *err);

#endif
